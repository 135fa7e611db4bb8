// src/attention/plain/plain_call.h: checks a plain call, describes it as a problem of the kernels, and splits its
// workspace; plain::attention and its backward pass both use this.
#pragma once
#include <attn/plain.h>

#include "attention/schedule/call_part.h"
#include "kernels/attention/problem.h"
#include "runtime/memory.h"

#include <atomic>
#include <thread>

namespace attn::plain {

Status check(const Attention& call);
/// Checks that strides are given completely, and that each has at least the magnitude of `width`.
Status check_rows(const Attention& call, const Strides& strides, std::int64_t heads, std::int64_t rows,
                  std::int64_t width);
/// Returns the strides of a mask or bias: row-major if none is given, else key stride 1 if that is not given.
ScoreStrides whole(const Attention& call, ScoreStrides strides);
Strides or_contiguous(const Strides& strides, std::int64_t heads, std::int64_t rows, std::int64_t columns);

/// A problem, and the mask and the bias that it points to.
struct Described {
  kernels::AttentionProblem problem;
  kernels::MaskNode nodes[5];
  kernels::BiasTerm bias;
};
void describe(const Attention& call, Described& to);

/// Returns where the rows and keys of the call are in their sequence.
inline CallPart part_of(const Attention& call) {
  return {.row_block_step = call.row_block_step, .first_key = call.first_key};
}

/// Splits the workspace into as many slots as fit. A slot is a cache line with a flag, then scratch memory. A task
/// takes any free slot.
class Slots {
 public:
  static std::size_t slot_bytes(std::size_t scratch) { return runtime::aligned(scratch + runtime::alignment); }

  Slots(void* workspace, std::size_t bytes, std::size_t scratch) : slot_(slot_bytes(scratch)) {
    const auto address = reinterpret_cast<std::uintptr_t>(workspace);
    const std::size_t skip = (runtime::alignment - address % runtime::alignment) % runtime::alignment;
    first_ = static_cast<char*>(workspace) + skip;
    count_ = workspace && bytes > skip ? (bytes - skip) / slot_ : 0;
    for (std::size_t n = 0; n < count_; ++n) flag(n).store(0, std::memory_order_relaxed);
  }
  std::size_t count() const { return count_; }

  char* take(std::int64_t task) const {
    for (std::size_t n = static_cast<std::size_t>(task);; ++n) {
      const std::size_t slot = n % count_;
      if (flag(slot).exchange(1, std::memory_order_acquire) == 0) return first_ + slot * slot_ + runtime::alignment;
      if (slot + 1 == count_) std::this_thread::yield();
    }
  }
  void give_back(char* scratch) const {
    std::atomic_ref(*reinterpret_cast<std::uint32_t*>(scratch - runtime::alignment))
        .store(0, std::memory_order_release);
  }

 private:
  std::atomic_ref<std::uint32_t> flag(std::size_t slot) const {
    return std::atomic_ref(*reinterpret_cast<std::uint32_t*>(first_ + slot * slot_));
  }

  std::size_t slot_, count_ = 0;
  char* first_ = nullptr;
};

}  // namespace attn::plain
