// src/kernels/attention/target.h: the attention kernels of one instruction set.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/attention/strip.h"

#include <cstddef>

namespace attn::kernels {

struct AttentionTarget {
  const char* name;  // "avx512", "avx2", "neon"
  /// The rows of a strip, from their first key to their last. False when a result is NaN: the specification must then decide
  /// these rows (a hidden key may hold NaN or inf, which a weight of 0 does not silence); nothing was written.
  bool (*attend_f32)(const AttentionProblem&, const LaneMap&, void* scratch);
  bool (*attend_f64)(const AttentionProblem&, const LaneMap&, void* scratch);
};

/// The kernels of a target by name, or null when they are not built in.
const AttentionTarget* attention_target(const char* name) noexcept;

}  // namespace attn::kernels
