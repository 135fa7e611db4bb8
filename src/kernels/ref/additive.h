// src/kernels/ref/additive.h: computes the additive (Bahdanau) score, w . tanh(q + k), from exponentials that are
// computed once per row element.
#pragma once
#include "kernels/ref/math.h"

// e^2(q+k) = e^2q e^2k, so with E = e^2q e^2k: tanh = 1 - 2 / (1 + E), and
//   score = sum w - 2 sum over c of w_c / (1 + E_c),   two neighbouring channels sharing one division.
// docs/numerics.md section 3.9.
namespace attn::kernels::ATTN_REF_NAMESPACE {

/// e^2x = (high + low) 2^exponent: high in about [0.707, 1.414], low its rounding error, exponent an integer.
struct ExpSplit {
  float high, low, exponent;
};

/// Splits e^2x. This is computed in f64, so that for large q and -k the product of e^2q and e^2k keeps its digits. |x|
/// is clamped to 2^22, where the exponent is still an integer.
inline ExpSplit exp_split(float x) {
  using C = Constants<double>;
  if (x != x) return {quiet_nan<float>(), quiet_nan<float>(), 0};
  constexpr double limit = 0x1p22;
  // the products of ln2_high with n are exact
  constexpr double ln2_high = 0x1.62e43p-1, ln2_low = -0x1.05c610ca86c39p-29;
  const double cut = x > limit ? limit : x < -limit ? -limit : static_cast<double>(x), y = cut + cut;
  const double n = fma(y, C::log2e, C::rounder) - C::rounder;
  const double r = fma(-n, ln2_low, fma(-n, ln2_high, y));
  const double e = horner(C::exp, r);
  const float high = static_cast<float>(e);
  return {high, static_cast<float>(e - static_cast<double>(high)), static_cast<float>(n)};
}

/// Computes 2^n, where n is the sum of both exponents, clamped to +-100: beyond that 1 + E is 1 or exceeds its limit of
/// 2^60.
inline float pair_scale(float q_exponent, float k_exponent) {
  const float n = q_exponent + k_exponent;
  return power_of_two<float>(static_cast<int>(n > 100.0f ? 100.0f : n < -100.0f ? -100.0f : n));
}

/// Computes min(1 + E, 2^60); NaN stays NaN.
inline float one_plus(const ExpSplit& q, const ExpSplit& k) {
  const float sum = fma(q.high * pair_scale(q.exponent, k.exponent), k.high, 1.0f);
  return sum > 0x1p60f ? 0x1p60f : sum;
}

/// Computes the sum of w: a chain over c from 0 in f64, rounded once.
inline float additive_weight_sum(const float* w, std::int64_t channels) {
  double sum = 0;
  for (std::int64_t c = 0; c < channels; ++c) sum += static_cast<double>(w[c]);
  return static_cast<float>(sum);
}

/// Computes the score from 1 + E of each channel, `denominator(c)`: pairs (2c, 2c + 1) in ascending order; an odd last
/// channel is divided alone.
template <typename Denominator>
float additive_score_of(const float* w, float weight_sum, std::int64_t channels, Denominator denominator) {
  float sum = 0;
  std::int64_t c = 0;
  for (; c + 1 < channels; c += 2) {
    const float first = denominator(c), second = denominator(c + 1);
    sum += fma(w[c + 1], first, w[c] * second) / (first * second);
  }
  if (c < channels) sum += w[c] / denominator(c);
  return fma(-2.0f, sum, weight_sum);
}

/// f64: computes tanh of each sum, in one chain over c from 0.
inline double additive_score(const double* q, const double* k, const double* w, std::int64_t channels) {
  double sum = 0;
  for (std::int64_t c = 0; c < channels; ++c) sum = fma(w[c], tanh(q[c] + k[c]), sum);
  return sum;
}

/// What gradients need of t = tanh(q + k): 2 t, with relative accuracy, and 1 - t^2.
template <typename T>
struct AdditiveSlope {
  T twice, slope;
};
/// Computes the slopes from E - 1, which is computed from high and low parts. With h = 2 / (E + 1): tanh = (E - 1) h /
/// 2, 1 - tanh^2 = h^2 E.
inline AdditiveSlope<float> additive_slope(const ExpSplit& q, const ExpSplit& k) {
  const float scale = pair_scale(q.exponent, k.exponent), q_high = q.high * scale, q_low = q.low * scale;
  float difference = fma(q_high, k.high, -1.0f);
  difference = fma(q_high, k.low, difference);
  difference = fma(q_low, k.high, difference);
  if (difference > 0x1p60f) difference = 0x1p60f;
  const float h = 2.0f / (difference + 2.0f);
  return {difference * h, (h * h) * (difference + 1.0f)};
}
inline AdditiveSlope<double> additive_slope(double q, double k) {
  const double t = tanh(q + k);
  return {t + t, fma(-t, t, 1.0)};
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
