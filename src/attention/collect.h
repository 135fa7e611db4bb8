// src/attention/collect.h: what a call asks of its weights, taken strip by strip, so that they never exist as a whole
// unasked.
#pragma once
#include "attention/check.h"
#include "attention/plan.h"

#include <utility>

namespace attn {

/// The answer to Weights in memory, and where kernels' strips go in it. T: the compute type.
struct Collected {
  Weights::Kind kind = Weights::none;
  std::int64_t count = 0;                                   // top_k: n; rows: how many
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;  // rows: (row, place among those asked for), by row
  // full [B, Hq, Tq, Tk], head_average [B, Tq, Tk], rows [B, Hq, n, Tk], ...
  Tensor values;
  Tensor keys;  // top_k: i64 [B, Hq, Tq, n]

  /// Whether a strip's weights are looked at.
  bool wants(const kernels::QueryTile& map) const;
};

/// Sizes of the answer, [B, ...] of any rank of the call, and the answer as the call's rank has it.
Dims collected_sizes(const Call& call, const Weights& weights);
Tensor shown_weights(const Call& call, const Weights& weights, const Tensor& values);

/// Checked: ValueError, ShapeError or DtypeError in the words of the call. Memory is there, where it must be with zeros
/// in it.
Collected collected_memory(const Call& call, const Weights& weights);

/// A strip with its weights in problem.lane_weights.
struct LaneStrip {
  const kernels::AttentionProblem& problem;
  const kernels::QueryTile& map;         // of one head
  const kernels::ForwardKernel* strips;  // null: the reference
};
/// full, rows, top_k: the strip's rows into their places.
void collect_strip(const Collected& to, const LaneStrip& strip);
/// head_average: sums over heads, [keys][lane_rows] as lane_weights, to means in their places.
void collect_average(const Collected& to, const LaneStrip& strip, void* sums);
/// column_sums: sum[key of the part] goes on over the strip's rows, ascending.
void add_columns(const LaneStrip& strip, void* sum);

}  // namespace attn
