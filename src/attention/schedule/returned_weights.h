// src/attention/schedule/returned_weights.h: holds the attention weights that a call returns, written tile by tile:
// they exist as Tq x Tk only if the full matrix is requested.
#pragma once
#include "attention/call/call.h"
#include "attention/schedule/plan.h"

#include <utility>

namespace attn {

/// The memory of the returned weights, and how each query tile is written to it.
struct ReturnedWeights {
  Weights::Kind kind = Weights::none;
  std::int64_t count = 0;                                   // top_k: n; rows: number of rows
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;  // rows: (row, its index in the result), sorted by row
  // full [B, Hq, Tq, Tk], head_average [B, Tq, Tk], rows [B, Hq, n, Tk], ...
  Tensor values;
  Tensor keys;  // top_k: i64 [B, Hq, Tq, n]

  /// Returns whether the weights of a query tile are needed.
  bool wants(const kernels::Task& tile) const;
};

/// Return the sizes of the returned weights, [B, ...] whatever the rank of the call, and the weights in the call's
/// rank.
Dims returned_sizes(const Call& call, const Weights& weights);
Tensor shown_weights(const Call& call, const Weights& weights, const Tensor& values);

/// Checks the options (ValueError, ShapeError or DtypeError with the caller's names) and allocates the memory, filled
/// with zeros if not every element will be written.
ReturnedWeights returned_memory(const Call& call, const Weights& weights);

/// A query tile, with its weights in Task::lane_weights.
struct WeightsTile {
  const kernels::AttentionProblem& problem;
  const kernels::Task& tile;             // of one head
  const kernels::ForwardKernel* kernel;  // null: the reference code
};
/// Writes the weights of the query tile's rows, for full, rows and top_k.
void write_weights(const ReturnedWeights& to, const WeightsTile& from);
/// Writes the means for head_average. `sums` holds the sums over heads in the layout of lane_weights,
/// [keys][lane_rows].
void write_average(const ReturnedWeights& to, const WeightsTile& from, void* sums);
/// Adds the weights of the query tile's rows, in ascending order, to sum[key of the sequence], for column_sums.
void add_columns(const WeightsTile& from, void* sum);

}  // namespace attn
