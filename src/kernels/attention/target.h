// src/kernels/attention/target.h: the attention kernels of one instruction set.
#pragma once
#include "kernels/attention/problem.h"

#include <cstddef>

namespace attn::kernels {

struct AttentionTarget {
  const char* name;  // "avx512", "avx2", "neon"
  /// Rows [row_begin, row_end) of head h of batch item b; at most strip_rows of them. Returns false when the result holds a
  /// NaN: the specification must then decide these rows (nothing that was written may be kept).
  bool (*prefill_f32)(const AttentionProblem&, std::int64_t b, std::int64_t h, std::int64_t row_begin, std::int64_t row_end, void* scratch);
  bool (*prefill_f64)(const AttentionProblem&, std::int64_t b, std::int64_t h, std::int64_t row_begin, std::int64_t row_end, void* scratch);
};

/// The kernels of a target by name, or null when they are not built in.
const AttentionTarget* attention_target(const char* name) noexcept;

}  // namespace attn::kernels
