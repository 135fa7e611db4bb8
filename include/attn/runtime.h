// include/attn/runtime.h: sets the number of threads, describes the machine, and sends messages to the host program.
#pragma once
#include <attn/export.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// Sets the number of threads of a parallel call, the caller included; 1 to 1024, else ValueError. Default:
/// ATTN_NUM_THREADS, else the number of cores; an invalid ATTN_NUM_THREADS is an error at the first call that needs it.
/// No result depends on the number of threads. Thread-safe; running calls keep their number.
ATTN_API void set_num_threads(int threads);
ATTN_API int num_threads();

/// Returns the version as text, such as "0.1.0".
ATTN_API std::string version();

/// The numerics version: it rises whenever an order of operations changes.
inline constexpr int numerics_version = 2;

/// The information that `attn info` prints.
struct Info {
  std::string version;
  int numerics_version;
  std::string cpu;                    // "AMD EPYC", as the system names it
  std::vector<std::string> features;  // "avx2", "fma", "avx512f", "avx512_bf16", ...
  std::vector<std::string> targets;   // kernels that can run here, best first: "scalar" is the reference
  std::string target;                 // the target in use (set by ATTN_TARGET)
  int cores;
  int threads;
  std::string compiler;
};
ATTN_API Info info();

/// The kinds of messages; a message is one line of text without a line end.
enum class MessageKind {
  trace,   // one line per call: shapes, the plan, the reason; only while tracing is on
  notice,  // sent at most once per process
};
using MessageHandler = std::function<void(MessageKind kind, std::string_view text)>;

/// Sets the function that receives messages and returns the previous one. An empty handler restores the default: traces
/// go to stderr, notices are dropped. Messages come from any thread, one at a time; the handler must not call the
/// library and must not throw.
ATTN_API MessageHandler set_message_handler(MessageHandler handler);
/// Turns tracing on or off. It is off by default, unless ATTN_TRACE is 1.
ATTN_API void set_trace(bool on);

}  // namespace attn
