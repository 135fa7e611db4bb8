// include/attn/runtime.h: threads, the machine, and what the library may tell its host.
#pragma once
#include <attn/export.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Threads that take part in a parallel call, the caller included; at least 1. Default: ATTN_NUM_THREADS, else the
/// cores. No result depends on it. ValueError outside 1 to 1024; ATTN_NUM_THREADS, when wrong, at the first call that
/// needs it. Thread-safe; calls that run already keep their number.
ATTN_API void set_num_threads(int threads);
ATTN_API int num_threads();

/// "1.0.0".
ATTN_API std::string version();

/// The numerics version: any change of an order of operations raises it.
inline constexpr int numerics_version = 2;

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

/// What the library has to say: one line of text without its end of line.
enum class MessageKind {
  trace,   // one line a call: shapes, the plan, the reason. Only while tracing is on
  notice,  // something worth knowing, said once a process
};
using MessageHandler = std::function<void(MessageKind kind, std::string_view text)>;

/// Where messages go; an empty handler restores the default: traces to stderr, notices nowhere. Returns the one before.
/// Messages come from any thread, one at a time; the handler must not call the library and must not throw.
ATTN_API MessageHandler set_message_handler(MessageHandler handler);
/// Tracing is off unless ATTN_TRACE is 1, or this turns it on.
ATTN_API void set_trace(bool on);

}  // namespace attn
