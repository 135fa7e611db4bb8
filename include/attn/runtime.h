// include/attn/runtime.h: threads, the machine, and what the library may tell its host.
#pragma once
#include <attn/export.h>

#include <string>
#include <vector>

namespace attn {

/// Threads that take part in a parallel call, the caller included; at least 1. Default: ATTN_NUM_THREADS, else the cores.
/// No result depends on it.
ATTN_API void set_num_threads(int threads);
ATTN_API int num_threads();

/// "1.0.0".
ATTN_API std::string version();

/// What `attn info` prints.
struct Info {
  std::string version;
  int numerics_version;
  std::string cpu;                    // "AMD EPYC", as the system names it
  std::vector<std::string> features;  // "avx2", "fma", "avx512f", "avx512_bf16", ...
  std::vector<std::string> targets;   // kernels that can run here, best first: "scalar" is the reference
  std::string target;                 // the one in use (ATTN_TARGET)
  int cores;
  int threads;
  std::string compiler;
};
ATTN_API Info info();

}  // namespace attn
