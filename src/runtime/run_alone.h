// src/runtime/run_alone.h: runs the parts of work in the calling thread.
#pragma once
#include <cstdint>

namespace attn::runtime {

using PartFunction = void (*)(void* context, std::int64_t index);

inline constexpr int max_threads = 1024;

/// Marks this thread as running parts of a shared job; the destructor restores the earlier mark.
class InsidePart {
 public:
  InsidePart();
  ~InsidePart();
  InsidePart(const InsidePart&) = delete;
  InsidePart& operator=(const InsidePart&) = delete;

 private:
  bool before_;
};

/// Returns true while this thread runs a part of a shared job. Its nested calls then run in this thread alone.
bool inside_part();

/// Runs all parts in this thread, with the same rules as `parallel_for`.
void run_alone(PartFunction part, void* context, std::int64_t parts);

}  // namespace attn::runtime
