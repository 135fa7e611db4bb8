// src/runtime/trace.h: declares how the library tells the host what it does.
#pragma once
#include <atomic>
#include <string_view>

namespace attn::runtime {

/// Returns whether trace lines are wanted. It costs one load; call it before building the text.
bool trace_enabled();
/// Passes one line to the host's handler, or writes it to stderr.
void trace(std::string_view line);

/// Gives a notice once in a process: `static NoticeOnce once; once("...")`. Thread-safe.
class NoticeOnce {
 public:
  void operator()(std::string_view text);

 private:
  std::atomic<bool> given_{false};
};

}  // namespace attn::runtime
