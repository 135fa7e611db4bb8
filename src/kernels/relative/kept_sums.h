// src/kernels/relative/kept_sums.h: adds the sums of a step of the backward pass to a gradient, and keeps those that
// were computed before the turn of the step.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "runtime/alignment.h"

#include <limits>
#include <new>

namespace attn::kernels {

/// Sums that a step has computed before its turn: steps that share elements of a gradient add to them in order. They
/// are added by begin_turn, or when the memory is full.
struct KeptSums {
  const StepOrder& order;  // `wait` is null if no other thread takes part: sums are added at once
  char* memory = nullptr;  // 64-byte aligned
  std::size_t bytes = 0, used = 0;
  bool turn = order.wait == nullptr;  // earlier steps have added all of theirs
};

/// Begins the memory of sums that are kept: `count` numbers follow after `header` bytes, to be added to `to`.
template <typename T>
struct Kept {
  static constexpr std::size_t header = 64;
  T* to;
  std::int64_t count;
  T factor;
  static std::size_t bytes(std::int64_t count) {
    return header + runtime::aligned(static_cast<std::size_t>(count) * sizeof(T));
  }
};

/// Adds sums times `factor` to a gradient; NaN becomes the canonical one.
template <typename T>
void add_sums(T* to, const T* sums, std::int64_t count, T factor) {
  for (std::int64_t n = 0; n < count; ++n) {
    const T sum = to[n] + sums[n] * factor;
    to[n] = sum == sum ? sum : std::numeric_limits<T>::quiet_NaN();
  }
}

/// Waits for the turn of the step and adds the sums that are kept.
template <typename T>
void begin_turn(KeptSums& kept) {
  if (kept.turn) return;
  kept.order.wait(kept.order.context, every_key);
  for (std::size_t at = 0; at < kept.used;) {
    const auto* const sums = reinterpret_cast<const Kept<T>*>(kept.memory + at);
    add_sums(sums->to, reinterpret_cast<const T*>(kept.memory + at + Kept<T>::header), sums->count, sums->factor);
    at += Kept<T>::bytes(sums->count);
  }
  kept.used = 0;
  kept.turn = true;
}

/// Adds the sums that sums(y) computes times `factor` to a gradient that other steps add to; before the turn of this
/// step it keeps them, if there is room. `own`: memory for the sums if they are not kept.
template <typename T, typename F>
void add_in_turn(KeptSums& kept, const Kept<T>& to, T* own, F&& sums) {
  const std::size_t bytes = Kept<T>::bytes(to.count);
  if (!kept.turn && kept.used + bytes > kept.bytes) begin_turn<T>(kept);
  if (kept.turn) return sums(own), add_sums(to.to, own, to.count, to.factor);
  char* const at = kept.memory + kept.used;
  new (at) Kept<T>(to);
  sums(reinterpret_cast<T*>(at + Kept<T>::header));
  kept.used += bytes;
}

}  // namespace attn::kernels
