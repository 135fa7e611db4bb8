// src/kernels/attention/dispatch.h: declares the forward kernels of one instruction set, as function pointers.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/attention/query_tile.h"

#include <cstddef>

namespace attn::kernels {

/// Functions that compute attention of a query tile, for one element type. `memory` is their scratch, 64-byte aligned.
///  They return false when a result is NaN. Then nothing was written of its query tile, and the rows must be recomputed
/// (mask/masked_values.h).
struct ForwardKernel {
  // most rows of a query tile; `attend` accepts any number of tiles of one head and computes them one by one
  int rows = 0;
  // the most query tiles of a task for which it is faster to compute them together, because they share converted K and
  // V
  int task_tiles = 1;
  std::size_t (*scratch_bytes)(const AttentionProblem&);
  std::size_t (*partial_bytes)(const AttentionProblem&, const Task&);
  /// Computes the tile over all keys.
  bool (*attend)(const AttentionProblem&, const Task&, void* memory);
  /// `attend_splits` computes the splits [first, last) of 1,024 keys into adjacent `partials`; `attend_merge` merges
  /// those of all splits. The bits are those of `attend`.
  void (*attend_splits)(const AttentionProblem&, const Task&, std::int64_t first, std::int64_t last, void* partials,
                        void* memory);
  bool (*attend_merge)(const AttentionProblem&, const Task&, const void* partials, std::int64_t splits, void* memory);
  /// Recomputes rows after `false`, one row at a time, with masked values as 0; NaN results are written. Null: the
  /// reference code does it.
  void (*nan_safe_rows)(const AttentionProblem&, const Task&, void* memory);
  /// Transposes Task::lane_weights of `keys` keys to `rows` rows, `stride` elements apart.
  void (*transpose_weights)(const void* lanes, std::int64_t keys, std::int64_t rows, void* to, std::int64_t stride);
  /// Returns the form in which decode reads int8 keys and values fastest, with one scale per `group` elements. Null:
  /// i8.
  Element (*int8_form)(std::int64_t dim, std::int64_t value_dim, std::int64_t group) = nullptr;
};

struct AttentionTarget {
  const char* name;  // "amx", "avx512", "avx2", "neon"
  ForwardKernel f32, f64;
  ForwardKernel
      bf16;  // by the processor's dot product of bf16 pairs, or its tiles; rows == 0: not built for this target
};

/// Returns the kernels of the target of that name; null if it is not built in.
const AttentionTarget* attention_target(const char* name) noexcept;

}  // namespace attn::kernels
