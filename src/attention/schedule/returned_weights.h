// src/attention/schedule/returned_weights.h: attention weights that a call returns, written tile by tile: they exist as
// Tq x Tk only when asked for in full.
#pragma once
#include "attention/call/call.h"
#include "attention/schedule/plan.h"

#include <utility>

namespace attn {

/// The memory of the returned weights, and where each query tile is written in it. T: the compute type.
struct ReturnedWeights {
  Weights::Kind kind = Weights::none;
  std::int64_t count = 0;                                   // top_k: n; rows: how many
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;  // rows: (row, its index in the result), by row
  // full [B, Hq, Tq, Tk], head_average [B, Tq, Tk], rows [B, Hq, n, Tk], ...
  Tensor values;
  Tensor keys;  // top_k: i64 [B, Hq, Tq, n]

  /// Whether the weights of a query tile are needed.
  bool wants(const kernels::QueryTile& tile) const;
};

/// The sizes of the returned weights, [B, ...] for any rank of the call, and the weights in the call's rank.
Dims returned_sizes(const Call& call, const Weights& weights);
Tensor shown_weights(const Call& call, const Weights& weights, const Tensor& values);

/// Checked: ValueError, ShapeError or DtypeError in the words of the call. Memory is there, where it must be with zeros
/// in it.
ReturnedWeights returned_memory(const Call& call, const Weights& weights);

/// A query tile with its weights in problem.lane_weights.
struct WeightsTile {
  const kernels::AttentionProblem& problem;
  const kernels::QueryTile& tile;        // of one head
  const kernels::ForwardKernel* kernel;  // null: the reference
};
/// full, rows, top_k: writes the query tile's rows.
void write_weights(const ReturnedWeights& to, const WeightsTile& from);
/// head_average: writes means from sums over heads, which are [keys][lane_rows] as lane_weights.
void write_average(const ReturnedWeights& to, const WeightsTile& from, void* sums);
/// column_sums: adds the query tile's rows, ascending, to sum[key of the sequence].
void add_columns(const WeightsTile& from, void* sum);

}  // namespace attn
