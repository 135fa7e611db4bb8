// src/kernels/attention/dispatch.h: the forward kernels of one instruction set, as function pointers.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/attention/query_tile.h"

#include <cstddef>

namespace attn::kernels {

/// Attention of a query tile, for one element type. `scratch` is 64-byte aligned.
///  Returns false when a result is NaN; nothing was written then, and the rows must be recomputed: a masked key may
/// hold NaN or inf, and 0 x NaN is NaN.
struct ForwardKernel {
  int rows = 0;        // most rows of a query tile; `attend` takes any number of tiles of one head, one by one
  int task_tiles = 1;  // most query tiles of a task that are faster together, because they share converted K and V
  std::size_t (*scratch_bytes)(const AttentionProblem&);
  std::size_t (*partial_bytes)(const AttentionProblem&, const QueryTile&);
  /// From the first key to the last.
  bool (*attend)(const AttentionProblem&, const QueryTile&, void* memory);
  /// The splits [first, last) of 1,024 keys into their `partials`, side by side; then those of all splits merged: the
  /// same bits.
  void (*attend_splits)(const AttentionProblem&, const QueryTile&, std::int64_t first, std::int64_t last,
                        void* partials, void* memory);
  bool (*attend_merge)(const AttentionProblem&, const QueryTile&, const void* partials, std::int64_t splits,
                       void* memory);
  /// Recomputes rows after `false`, one row at a time, with masked values taken as 0; NaN is written. Null: the
  /// reference does it.
  void (*nan_safe_rows)(const AttentionProblem&, const QueryTile&, void* memory);
  /// problem.lane_weights of `keys` keys to `rows` rows, `stride` elements apart.
  void (*transpose_weights)(const void* lanes, std::int64_t keys, std::int64_t rows, void* to, std::int64_t stride);
  /// The form in which decode rows read int8 keys and values fastest, `group` elements a scale. Null: i8.
  Element (*int8_form)(std::int64_t dim, std::int64_t value_dim, std::int64_t group) = nullptr;
};

struct AttentionTarget {
  const char* name;  // "amx", "avx512", "avx2", "neon"
  ForwardKernel f32, f64;
  ForwardKernel
      bf16;  // by the processor's dot product of bf16 pairs, or its tiles; rows == 0: not built for this target
};

/// The kernels of a target by name, or null when they are not built in.
const AttentionTarget* attention_target(const char* name) noexcept;

}  // namespace attn::kernels
