// src/verify/weights.cc: computes averages, column sums, rows and largest weights from all weights.
#include "verify/weights.h"

#include <attn/ops.h>

#include <algorithm>
#include <numeric>

namespace attn::cases {
namespace {

constexpr std::int64_t row_block = 64;  // part of the order of column sums: docs/numerics.md section 5.3

Tensor average(const Tensor& full) {
  Tensor sum = zeros_like(full.select(1, 0));
  for (std::int64_t h = 0; h < full.size(1); ++h) sum = add(sum, full.select(1, h));
  return div(sum, static_cast<double>(full.size(1)));
}

/// Sums the columns in blocks of `row_block` rows, counted anew from the start of each sequence.
Tensor columns(const Tensor& full, const std::vector<std::int64_t>& starts) {
  Tensor total = zeros({full.size(0), full.size(1), full.size(3)}, full.dtype());
  for (std::size_t s = 0; s + 1 < starts.size(); ++s)
    for (std::int64_t first = starts[s]; first < starts[s + 1]; first += row_block) {
      Tensor block = zeros_like(total);
      for (std::int64_t i = first; i < std::min(first + row_block, starts[s + 1]); ++i)
        block = add(block, full.select(2, i));
      total = add(total, block);
    }
  return total;
}

Results largest(const Tensor& full, std::int64_t n) {
  const std::int64_t keys = full.size(3), rows = keys == 0 ? 0 : full.numel() / keys;
  const std::vector<double> weights = full.to_vector();
  Tensor values = zeros({full.size(0), full.size(1), full.size(2), n}, full.dtype()),
         of = attn::full(values.sizes(), -1, Dtype::i64);
  std::vector<std::int64_t> order(static_cast<std::size_t>(keys));
  for (std::int64_t row = 0; row < rows; ++row) {
    const double* w = weights.data() + row * keys;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) { return w[a] > w[b]; });
    for (std::int64_t m = 0; m < n && w[order[static_cast<std::size_t>(m)]] > 0; ++m) {
      const std::int64_t key = order[static_cast<std::size_t>(m)];
      values.reshape({-1}).select(0, row * n + m).fill_(w[key]);
      of.data<std::int64_t>()[row * n + m] = key;
    }
  }
  return {{"weights", values}, {"weight_keys", of}};
}

}  // namespace

Results weights_asked_for(const Weights& weights, const Tensor& full, const Tensor& starts) {
  switch (weights.kind) {
    case Weights::full: return {{"weights", full}};
    case Weights::head_average: return {{"weights", average(full)}};
    case Weights::column_sums:
      return {{"weights",
               columns(full, starts.defined() ? starts.to_int_vector() : std::vector<std::int64_t>{0, full.size(2)})}};
    case Weights::row_subset: return {{"weights", full.index_select(2, weights.indices)}};
    case Weights::largest: return largest(full, weights.count);
    default: return {};
  }
}

}  // namespace attn::cases
