// src/attention/schedule/returned_weights.cc: writes the weights of a query tile in the form that the call returns:
// rows, head means, column sums, or the largest weights of each row.
#include "attention/schedule/returned_weights.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

/// The weights of a query tile in the layout [keys][lanes]; each lane is one row.
template <typename T>
struct Lanes {
  const kernels::AttentionProblem& p;
  const kernels::Task& tile;
  const T* at;
  std::int64_t begin, keys, rows;  // the valid keys and rows

  explicit Lanes(const WeightsTile& from)
      : p(from.problem), tile(from.tile), at(static_cast<const T*>(tile.lane_weights)), begin(p.keys_begin(tile)),
        keys(std::max<std::int64_t>(0, p.keys_end(tile) - begin)),
        rows(std::clamp<std::int64_t>(p.rows_end(tile) - tile.row, 0, tile.rows)) {}
  T weight(std::int64_t j, std::int64_t lane) const { return at[j * tile.lane_rows + lane]; }
};

/// Transposes lanes to rows that are `stride` elements apart.
template <typename T>
void transpose(const WeightsTile& from, const T* lanes, std::int64_t keys, std::int64_t rows, T* to,
               std::int64_t stride) {
  if (from.kernel != nullptr) return from.kernel->transpose_weights(lanes, keys, rows, to, stride);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < keys; ++j) to[i * stride + j] = lanes[j * from.tile.lane_rows + i];
}

template <typename T>
void full_rows(const ReturnedWeights& to, const WeightsTile& from) {
  const Lanes<T> lanes(from);
  const std::int64_t row = (lanes.tile.batch * lanes.p.q_heads + lanes.tile.head) * lanes.p.q_rows + lanes.tile.row;
  transpose(from, lanes.at, lanes.keys, lanes.rows, to.values.data<T>() + row * lanes.p.k_rows + lanes.begin,
            lanes.p.k_rows);
}

template <typename T>
void chosen_rows(const ReturnedWeights& to, const WeightsTile& from) {
  const Lanes<T> lanes(from);
  auto next = std::lower_bound(to.rows.begin(), to.rows.end(), std::pair(lanes.tile.row, std::int64_t{0}));
  for (; next != to.rows.end() && next->first < lanes.tile.row + lanes.rows; ++next) {
    T* row = to.values.data<T>() +
             ((lanes.tile.batch * lanes.p.q_heads + lanes.tile.head) * to.count + next->second) * lanes.p.k_rows +
             lanes.begin;
    for (std::int64_t j = 0; j < lanes.keys; ++j) row[j] = lanes.weight(j, next->first - lanes.tile.row);
  }
}

/// Writes the n largest weights above 0 of each row in descending order; of equal weights the earlier key comes first.
template <typename T>
void largest(const ReturnedWeights& to, const WeightsTile& from) {
  const Lanes<T> lanes(from);
  const std::int64_t n = to.count,
                     first =
                         ((lanes.tile.batch * lanes.p.q_heads + lanes.tile.head) * lanes.p.q_rows + lanes.tile.row) * n;
  T* const values = to.values.data<T>() + first;  // initially 0
  std::int64_t* const keys = to.keys.data<std::int64_t>() + first;
  T least[64] = {};  // the smallest of the n weights that each row has so far
  for (std::int64_t j = 0; j < lanes.keys; ++j) {
    const T* weights = lanes.at + j * lanes.tile.lane_rows;
    int above = 0;
    for (std::int64_t i = 0; i < lanes.rows; ++i) above += weights[i] > least[i];
    for (std::int64_t i = 0; above > 0 && i < lanes.rows; ++i) {
      if (!(weights[i] > least[i])) continue;
      std::int64_t place = n - 1;
      for (; place > 0 && values[i * n + place - 1] < weights[i]; --place) {
        values[i * n + place] = values[i * n + place - 1];
        keys[i * n + place] = keys[i * n + place - 1];
      }
      values[i * n + place] = weights[i];
      keys[i * n + place] = lanes.begin + j;
      least[i] = values[i * n + n - 1];
      --above;
    }
  }
}

template <typename T>
void means(const ReturnedWeights& to, const WeightsTile& from, T* sums) {
  const Lanes<T> lanes(from);
  for (std::int64_t n = 0; n < lanes.keys * lanes.tile.lane_rows; ++n) sums[n] /= static_cast<T>(lanes.p.q_heads);
  const std::int64_t row = lanes.tile.batch * lanes.p.q_rows + lanes.tile.row;
  transpose(from, sums, lanes.keys, lanes.rows, to.values.data<T>() + row * lanes.p.k_rows + lanes.begin,
            lanes.p.k_rows);
}

/// Sums each key's weights over the rows, for eight keys at a time, so that the eight chains of additions run in
/// parallel.
template <typename T>
void columns(const WeightsTile& from, T* sum) {
  constexpr std::int64_t side_by_side = 8;
  const Lanes<T> lanes(from);
  for (std::int64_t first = 0; first < lanes.keys; first += side_by_side) {
    const std::int64_t count = std::min(side_by_side, lanes.keys - first);
    for (std::int64_t i = 0; i < lanes.rows; ++i)
      for (std::int64_t j = first; j < first + count; ++j) sum[j] += lanes.weight(j, i);
  }
}

bool is_f64(const kernels::AttentionProblem& p) { return p.element == kernels::Element::f64; }

std::vector<std::pair<std::int64_t, std::int64_t>> checked_rows(const Call& call, const Tensor& indices) {
  if (!indices.defined() || !is_integral(indices.dtype()))
    throw DtypeError(runtime::format("{}: the rows of weights are {}; they must be i64 or i32", call.function,
                                     indices.defined() ? name_of(indices.dtype()) : "undefined"));
  if (indices.dim() != 1)
    throw ShapeError(runtime::format("{}: the rows of weights have shape {}; they must be [n]", call.function,
                                     to_string(indices.sizes())));
  std::vector<std::pair<std::int64_t, std::int64_t>> rows;
  for (const std::int64_t row : indices.to_int_vector()) {
    if (row < 0 || row >= call.problem.q_rows)
      throw ValueError(
          runtime::format("{}: row {} of weights is {}; it must be below the number of rows, {}, and at least -{}",
                          call.function, rows.size(), row, call.problem.q_rows, call.problem.q_rows));
    rows.emplace_back(row, static_cast<std::int64_t>(rows.size()));
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace

bool ReturnedWeights::wants(const kernels::Task& tile) const {
  if (kind == Weights::none) return false;
  if (kind != Weights::row_subset) return true;
  const auto next = std::lower_bound(rows.begin(), rows.end(), std::pair(tile.row, std::int64_t{0}));
  return next != rows.end() && next->first < tile.row + tile.rows;
}

Dims returned_sizes(const Call& call, const Weights& weights) {
  const kernels::AttentionProblem& p = call.problem;
  switch (weights.kind) {
    case Weights::head_average: return {p.batch, p.q_rows, p.k_rows};
    case Weights::column_sums: return {p.batch, p.q_heads, p.k_rows};
    case Weights::row_subset: return {p.batch, p.q_heads, weights.indices.numel(), p.k_rows};
    case Weights::largest: return {p.batch, p.q_heads, p.q_rows, weights.count};
    default: return {p.batch, p.q_heads, p.q_rows, p.k_rows};
  }
}

Tensor shown_weights(const Call& call, const Weights& weights, const Tensor& values) {
  if (weights.kind != Weights::head_average) return values.reshape(call.shown(values.sizes()));
  // a head average has no head dim to remove
  return call.rank == 2 || (call.rank == 3 && call.packed) ? values.squeeze(0) : values;
}

ReturnedWeights returned_memory(const Call& call, const Weights& weights) {
  if (weights.kind == Weights::none) return {};
  const kernels::AttentionProblem& p = call.problem;
  ReturnedWeights to{.kind = weights.kind, .count = weights.count, .rows = {}, .values = {}, .keys = {}};
  if (to.kind == Weights::row_subset) {
    to.rows = checked_rows(call, weights.indices);
    to.count = static_cast<std::int64_t>(to.rows.size());
  }
  const Dims sizes = returned_sizes(call, weights);
  if (to.kind == Weights::largest) {
    if (to.count < 1 || to.count > p.k_rows)
      throw ValueError(runtime::format("{}: top_k of weights is {}; it must be from 1 to the number of keys, {}",
                                       call.function, to.count, p.k_rows));
    to.keys = attn::full(sizes, -1, Dtype::i64);
  }
  // a call without lengths and sequences writes every pair
  const bool whole =
      call.sequences.empty() && p.query_lengths == nullptr && p.key_lengths == nullptr && p.key_start == nullptr;
  const bool all_written =
      whole && (to.kind == Weights::full || to.kind == Weights::head_average || to.kind == Weights::row_subset);
  to.values = all_written ? empty(sizes, call.compute_dtype()) : zeros(sizes, call.compute_dtype());
  return to;
}

void write_weights(const ReturnedWeights& to, const WeightsTile& from) {
  const bool f64 = is_f64(from.problem);
  if (to.kind == Weights::full) return f64 ? full_rows<double>(to, from) : full_rows<float>(to, from);
  if (to.kind == Weights::row_subset) return f64 ? chosen_rows<double>(to, from) : chosen_rows<float>(to, from);
  if (to.kind == Weights::largest) return f64 ? largest<double>(to, from) : largest<float>(to, from);
}

void write_average(const ReturnedWeights& to, const WeightsTile& from, void* sums) {
  is_f64(from.problem) ? means(to, from, static_cast<double*>(sums)) : means(to, from, static_cast<float*>(sums));
}

void add_columns(const WeightsTile& from, void* sum) {
  is_f64(from.problem) ? columns(from, static_cast<double*>(sum)) : columns(from, static_cast<float*>(sum));
}

}  // namespace attn
