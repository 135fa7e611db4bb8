// src/runtime/trace.h: how the rooms above tell the host what they do.
#pragma once
#include <atomic>
#include <string_view>

namespace attn::runtime {

/// Whether anyone wants trace lines. One load; ask before the text is built.
bool trace_enabled();
/// One line to the host's handler, or to stderr.
void trace(std::string_view line);

/// A notice that is given once a process: `static NoticeOnce once; once("...")`. Thread-safe.
class NoticeOnce {
 public:
  void operator()(std::string_view text);

 private:
  std::atomic<bool> given_{false};
};

}  // namespace attn::runtime
