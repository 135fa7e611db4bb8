// src/tensor/random_multinomial.cc: draws indices with probabilities given by weights.
#include <attn/ops.h>

#include "runtime/format.h"

#include "runtime/floating_point.h"
#include "tensor/random_fill.h"

#include <cmath>
#include <numeric>

namespace attn {
namespace {

constexpr const char* function = "multinomial";

void check(const Tensor& weights, std::int64_t samples, bool replacement) {
  check_floating(function, weights);
  if (weights.dim() != 1 && weights.dim() != 2)
    throw ShapeError("multinomial: weights have shape " + to_string(weights.sizes()) +
                     "; they must be [weights] or [rows, weights]");
  if (weights.size(-1) == 0)
    throw ValueError("multinomial: weights have shape " + to_string(weights.sizes()) +
                     "; there must be at least one to draw from");
  if (samples <= 0) throw ValueError("multinomial: samples is " + std::to_string(samples) + "; it must be positive");
  if (!replacement && samples > weights.size(-1))
    throw ValueError("multinomial: " + std::to_string(samples) + " samples of " + std::to_string(weights.size(-1)) +
                     " weights; without replacement there must be as many weights");
}

/// Throws ValueError unless the weights of the row are valid.
template <typename C>
void check_row(const C* row, std::int64_t n) {
  C sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (!(row[i] >= 0) || !std::isfinite(row[i]))
      throw ValueError(runtime::format("multinomial: a weight is {}; all must be finite and not negative", row[i]));
    sum += row[i];
  }
  if (!(sum > 0))
    throw ValueError(runtime::format("multinomial: a row of weights sums to {}; it must be positive", sum));
}

/// Writes the indices of the `samples` largest values of weight / exponential to `indices`, in descending order of the
/// values. The caller has drawn the exponentials of all rows before.
template <typename C>
void without_replacement(const C* weights, const C* exponentials, std::int64_t n, std::int64_t samples,
                         std::int64_t* indices) {
  std::vector<C> scores(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) scores[static_cast<std::size_t>(i)] = weights[i] / exponentials[i];
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + samples, order.end(), [&](std::int64_t a, std::int64_t b) {
    const C left = scores[static_cast<std::size_t>(a)], right = scores[static_cast<std::size_t>(b)];
    return left != right ? left > right : a < b;
  });
  std::copy_n(order.begin(), samples, indices);
}

/// Draws each sample by a search in the cumulative sum of the weights.
template <typename C>
void with_replacement(const C* weights, std::int64_t n, std::int64_t samples, std::int64_t* indices,
                      Generator& generator) {
  std::vector<C> running(static_cast<std::size_t>(n));
  std::partial_sum(weights, weights + n, running.begin());
  const C total = running.back();
  for (C& value : running) value /= total;
  running.back() = 1;
  for (std::int64_t s = 0; s < samples; ++s) {
    const double drawn = generator.uniform_f64();
    const auto found =
        std::lower_bound(running.begin(), running.end(), drawn, [](C value, double u) { return value < u; });
    indices[s] = found - running.begin();
  }
}

template <typename C>
void draw(const Tensor& weights, std::int64_t samples, bool replacement, Tensor& indices, Generator& generator) {
  const std::int64_t n = weights.size(-1), rows = weights.numel() / n;
  const C* data = weights.data<C>();
  std::int64_t* to = indices.data<std::int64_t>();
  for (std::int64_t r = 0; r < rows; ++r) check_row(data + r * n, n);
  if (replacement && samples > 1) {
    for (std::int64_t r = 0; r < rows; ++r) with_replacement(data + r * n, n, samples, to + r * samples, generator);
    return;
  }
  const Tensor exponentials = exponential_(empty(weights.sizes(), weights.dtype()), 1, generator);
  for (std::int64_t r = 0; r < rows; ++r)
    without_replacement(data + r * n, exponentials.data<C>() + r * n, n, samples, to + r * samples);
}

}  // namespace

Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement, Generator& generator) {
  const runtime::DefaultFloatingPoint floating_point;
  check(weights, samples, replacement);
  Dims sizes = weights.sizes();
  sizes[sizes.size() - 1] = samples;
  Tensor indices = empty(sizes, Dtype::i64);
  if (weights.dtype() == Dtype::f64) draw<double>(weights.contiguous(), samples, replacement, indices, generator);
  else draw<float>(weights.to(Dtype::f32).contiguous(), samples, replacement, indices, generator);
  return indices;
}

Tensor multinomial(const Tensor& weights, std::int64_t samples, bool replacement) {
  return multinomial(weights, samples, replacement, LockedGenerator());
}

}  // namespace attn
