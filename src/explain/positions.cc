// src/explain/positions.cc: computes sinusoidal and rotary positions in double and rounds them once.
#include "explain/positions.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include <cmath>

namespace attn::explain_detail {
namespace {

double angle(std::int64_t row, std::int64_t pair, std::int64_t dim) {
  return static_cast<double>(row) / std::pow(10000.0, 2.0 * static_cast<double>(pair) / static_cast<double>(dim));
}

}  // namespace

Tensor sines(std::int64_t rows, std::int64_t dim, Dtype dtype) {
  std::vector<double> values;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t d = 0; d < dim; ++d)
      values.push_back(d % 2 == 0 ? std::sin(angle(row, d / 2, dim)) : std::cos(angle(row, d / 2, dim)));
  return tensor<double>(values, {rows, dim}).to(dtype);
}

Tensor rotated(const Tensor& x) {
  const std::int64_t rows = x.size(2), dim = x.size(3);
  if (dim % 2 != 0)
    throw ValueError(
        runtime::format("explain: rotary positions turn pairs of numbers; dk is {}, it must be even", dim));
  std::vector<double> values = x.to_vector();
  for (std::size_t at = 0; at < values.size(); at += 2) {
    const auto i = static_cast<std::int64_t>(at);
    const double turn = angle(i / dim % rows, i % dim / 2, dim), a = values[at], b = values[at + 1];
    values[at] = a * std::cos(turn) - b * std::sin(turn);
    values[at + 1] = a * std::sin(turn) + b * std::cos(turn);
  }
  return tensor<double>(values, x.sizes()).to(x.dtype());
}

}  // namespace attn::explain_detail
