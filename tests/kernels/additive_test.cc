// tests/kernels/additive_test.cc: the additive score against tanh in double, and its two forms against each other.
#define ATTN_REF_NAMESPACE ref_of_additive_test
#include "kernels/ref/additive.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace attn::kernels::ref_of_additive_test {
namespace {

/// Returns whether an element has |exponent| <= 63 (|x| up to about 22.0). Rows that have only such elements may use H
/// = high 2^exponent instead, with the same bits, because all scalings are exact.
bool is_narrow(const ExpSplit& x) { return abs(x.exponent) <= 63.0f; }
float narrow(const ExpSplit& x) { return x.high * power_of_two<float>(static_cast<int>(x.exponent)); }
float one_plus(float q, float k) {
  const float sum = fma(q, k, 1.0f);
  return sum > 0x1p60f ? 0x1p60f : sum;
}

/// Computes the score for any magnitude, from rows split by exp_split.
float additive_score(const ExpSplit* q, const ExpSplit* k, const float* w, float weight_sum, std::int64_t channels) {
  return additive_score_of(w, weight_sum, channels, [&](std::int64_t c) { return one_plus(q[c], k[c]); });
}
/// Computes the score of narrow rows, from H of each element.
float additive_score_narrow(const float* q, const float* k, const float* w, float weight_sum, std::int64_t channels) {
  return additive_score_of(w, weight_sum, channels, [&](std::int64_t c) { return one_plus(q[c], k[c]); });
}
/// Computes the score from the projected rows.
float additive_score(const float* q, const float* k, const float* w, float weight_sum, std::int64_t channels) {
  return additive_score_of(w, weight_sum, channels,
                           [&](std::int64_t c) { return one_plus(exp_split(q[c]), exp_split(k[c])); });
}

struct Rows {
  std::vector<float> q, k, w;
  Rows(std::int64_t channels, double size, unsigned seed, bool cancel) {
    std::mt19937_64 random(seed);
    const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-52 - 1; };
    for (std::int64_t c = 0; c < channels; ++c) {
      q.push_back(static_cast<float>(uniform() * size));
      k.push_back(static_cast<float>(cancel ? -q.back() + uniform() * 1e-3 * size : uniform() * size));
      w.push_back(static_cast<float>(uniform()));
    }
  }
  std::int64_t channels() const { return static_cast<std::int64_t>(w.size()); }
  float score() const {
    return additive_score(q.data(), k.data(), w.data(), additive_weight_sum(w.data(), channels()), channels());
  }
};

TEST(Additive, ScoreAgainstDouble) {
  for (const double size : {1e-6, 1e-3, 0.1, 1.0, 4.0, 20.0, 100.0, 1e4, 1e6})
    for (const bool cancel : {false, true})
      for (unsigned seed = 1; seed <= 200; ++seed) {
        const Rows r(1 + seed % 65, size, seed, cancel);
        double truth = 0, weight = 0;
        for (std::size_t c = 0; c < r.w.size(); ++c) {
          truth += static_cast<double>(r.w[c]) * std::tanh(static_cast<double>(r.q[c]) + r.k[c]);
          weight += std::abs(r.w[c]);
        }
        ASSERT_NEAR(r.score(), truth, 3e-7 * weight) << size << " " << cancel << " " << seed;
      }
}

TEST(Additive, NarrowAndWideFormsHaveTheSameBits) {
  for (const double size : {1e-3, 1.0, 10.0, 21.8})
    for (unsigned seed = 1; seed <= 300; ++seed) {
      const Rows r(seed % 34, size, seed, seed % 3 == 0);
      std::vector<ExpSplit> q, k;
      std::vector<float> q_narrow, k_narrow;
      for (std::size_t c = 0; c < r.w.size(); ++c) {
        q.push_back(exp_split(r.q[c]));
        k.push_back(exp_split(r.k[c]));
        ASSERT_TRUE(is_narrow(q.back()) && is_narrow(k.back()));
        q_narrow.push_back(narrow(q.back()));
        k_narrow.push_back(narrow(k.back()));
      }
      const float sum = additive_weight_sum(r.w.data(), r.channels());
      const float wide = additive_score(q.data(), k.data(), r.w.data(), sum, r.channels());
      EXPECT_EQ(additive_score_narrow(q_narrow.data(), k_narrow.data(), r.w.data(), sum, r.channels()), wide);
      EXPECT_EQ(r.score(), wide);
    }
}

TEST(Additive, TanhAndItsSlopeForGradientsKeepTheirDigits) {
  std::mt19937_64 random(3);
  const auto uniform = [&] { return static_cast<double>(random() >> 11) * 0x1p-52 - 1; };
  double worst = 0, slope = 0, steep = 0;
  for (int i = 0; i < 200000; ++i) {
    const double size = std::exp2(uniform() * 12 - 6);
    const float q = static_cast<float>(uniform() * size), k = static_cast<float>(uniform() * size);
    const double x = static_cast<double>(q) + k, truth = std::tanh(x), derivative = 1 / (std::cosh(x) * std::cosh(x));
    const AdditiveSlope<float> ours = additive_slope(exp_split(q), exp_split(k));
    slope = std::max(slope, std::abs(ours.slope - derivative));
    // beyond, the sum is cut
    if (x > 0 && x < 20) steep = std::max(steep, std::abs(ours.slope - derivative) / derivative);
    if (std::abs(truth) < 1e-7) continue;
    worst = std::max(worst, std::abs(ours.twice / 2 - truth) / std::abs(truth));
  }
  EXPECT_LT(worst, 5e-7);
  EXPECT_LT(slope, 3e-7);
  EXPECT_LT(steep, 5e-7);
}

TEST(Additive, EndsAndNaN) {
  const float one = 1, big = 1e6f, nan = std::numeric_limits<float>::quiet_NaN(),
              inf = std::numeric_limits<float>::infinity();
  const auto score = [&](float q, float k) { return additive_score(&q, &k, &one, 1.0f, 1); };
  EXPECT_EQ(score(big, big), 1);
  EXPECT_EQ(score(-big, -big), -1);
  EXPECT_EQ(score(inf, 0), 1);
  EXPECT_EQ(score(-inf, 0), -1);
  EXPECT_EQ(score(0, 0), 0);
  EXPECT_NEAR(score(1000, -999), std::tanh(1.0), 2e-7);
  EXPECT_TRUE(std::isnan(score(nan, 0)));
  EXPECT_TRUE(std::isnan(score(0, nan)));
  EXPECT_TRUE(std::isnan(additive_slope(exp_split(nan), exp_split(1.0f)).twice));
}

}  // namespace
}  // namespace attn::kernels::ref_of_additive_test
