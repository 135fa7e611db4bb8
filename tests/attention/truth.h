// tests/attention/truth.h: attention as its formula reads, in any floating type: the truth in long double, the naive
// way in float.
#pragma once
#include <attn/attention.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace attn::testing {

inline Tensor normal(const Dims& sizes, std::uint64_t seed, Dtype dtype = Dtype::f32) {
  Generator generator(seed);
  return randn(sizes, generator).to(dtype);
}

/// Everything around the scores, as functions of the pair.
struct Around {
  double scale = 1, softcap = 0, temperature = 1;
  std::vector<double> sinks = {};
  std::function<bool(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> sees = {};
  std::function<double(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j)> bias = {};
};

struct Plainly {
  std::vector<double> output, weights, logsumexp;
};

/// q, k, v of rank 4; all sums in T, no tricks but the maximum.
template <typename T>
Plainly attend_plainly(const Tensor& q, const Tensor& k, const Tensor& v, const Around& around) {
  const std::int64_t batch = q.size(0), heads = q.size(1), rows = q.size(2), keys = k.size(2), dim = q.size(3),
                     width = v.size(3);
  const std::vector<double> qs = q.to_vector(), ks = k.to_vector(), vs = v.to_vector();
  const T infinity = std::numeric_limits<T>::infinity();
  Plainly result;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t h = 0; h < heads; ++h) {
      const std::int64_t g = b * k.size(1) + h / (heads / k.size(1)), gv = b * v.size(1) + h / (heads / v.size(1));
      for (std::int64_t i = 0; i < rows; ++i) {
        std::vector<T> s(static_cast<std::size_t>(keys), -infinity);
        T largest = around.sinks.empty() ? -infinity : static_cast<T>(around.sinks[static_cast<std::size_t>(h)]);
        bool any = false;
        for (std::int64_t j = 0; j < keys; ++j) {
          if (around.sees && !around.sees(b, h, i, j)) continue;
          T x = 0;
          for (std::int64_t d = 0; d < dim; ++d)
            x += static_cast<T>(qs[static_cast<std::size_t>(((b * heads + h) * rows + i) * dim + d)]) *
                 static_cast<T>(ks[static_cast<std::size_t>((g * keys + j) * dim + d)]);
          x *= static_cast<T>(around.scale);
          if (around.softcap != 0) x = static_cast<T>(around.softcap) * std::tanh(x / static_cast<T>(around.softcap));
          if (around.bias) x += static_cast<T>(around.bias(b, h, i, j));
          x /= static_cast<T>(around.temperature);
          s[static_cast<std::size_t>(j)] = x;
          largest = std::max(largest, x);
          any = any || x != -infinity;
        }
        T sum = any && !around.sinks.empty()
                    ? std::exp(static_cast<T>(around.sinks[static_cast<std::size_t>(h)]) - largest)
                    : T(0);
        for (T& x : s) {
          x = any ? std::exp(x - largest) : T(0);
          sum += x;
        }
        std::vector<T> o(static_cast<std::size_t>(width), T(0));
        for (std::int64_t j = 0; j < keys; ++j) {
          const T w = any ? s[static_cast<std::size_t>(j)] / sum : T(0);
          result.weights.push_back(static_cast<double>(w));
          if (w == 0) continue;
          for (std::int64_t d = 0; d < width; ++d)
            o[static_cast<std::size_t>(d)] +=
                w * static_cast<T>(vs[static_cast<std::size_t>((gv * keys + j) * width + d)]);
        }
        for (const T x : o) result.output.push_back(static_cast<double>(x));
        result.logsumexp.push_back(any ? static_cast<double>(largest + std::log(sum))
                                       : -std::numeric_limits<double>::infinity());
      }
    }
  return result;
}

/// The error rule: at most twice the naive way's error, plus 4 eps of the largest value; `more`: what a result that is
/// rounded on its way may be off besides.
inline void expect_within(const Tensor& ours, const std::vector<double>& naive, const std::vector<double>& truth,
                          double eps, double more = 0) {
  const std::vector<double> values = ours.to_vector();
  ASSERT_EQ(values.size(), truth.size());
  double largest = 0, naive_error = 0;
  for (std::size_t n = 0; n < truth.size(); ++n) {
    if (!std::isfinite(truth[n])) continue;
    largest = std::max(largest, std::abs(truth[n]));
    naive_error = std::max(naive_error, std::abs(naive[n] - truth[n]));
  }
  for (std::size_t n = 0; n < truth.size(); ++n) {
    if (std::isfinite(truth[n]))
      ASSERT_LE(std::abs(values[n] - truth[n]), 2 * naive_error + 4 * eps * largest + more) << "element " << n;
    else ASSERT_EQ(values[n], truth[n]) << "element " << n;
  }
}

inline Tensor integers(const std::vector<std::int64_t>& values) { return tensor<std::int64_t>(values); }

}  // namespace attn::testing
