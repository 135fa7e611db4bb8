// src/kernels/ref/math.h: computes the elementary functions in fixed steps, so that any target can reproduce their
// bits.
#pragma once
#include "kernels/math/polynomial_coefficients.h"

// Uses only +, -, *, /, fma (one rounding), sqrt and integer steps; libm only for fma without FMA instructions. This
// code is compiled twice, with and without them. So it has a namespace per build, and calls no inline function of a
// standard header: the linker would merge the two versions of such a function.
namespace attn::kernels::ATTN_REF_NAMESPACE {

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline float abs(float x) { return __builtin_fabsf(x); }
inline double abs(double x) { return __builtin_fabs(x); }
inline float copysign(float x, float sign) { return __builtin_copysignf(x, sign); }
inline double copysign(double x, double sign) { return __builtin_copysign(x, sign); }

template <typename T>
using Bits = typename Constants<T>::Bits;
template <typename T>
Bits<T> to_bits(T x) {
  return __builtin_bit_cast(Bits<T>, x);
}
template <typename T>
T from_bits(Bits<T> bits) {
  return __builtin_bit_cast(T, bits);
}
template <typename T>
T infinity() {
  return from_bits<T>(static_cast<Bits<T>>(2 * Constants<T>::bias + 1) << Constants<T>::mantissa_bits);
}
/// The canonical NaN, the only NaN that is ever stored.
template <typename T>
T quiet_nan() {
  return from_bits<T>(to_bits(infinity<T>()) | Bits<T>{1} << (Constants<T>::mantissa_bits - 1));
}
/// Returns x, with any NaN as the canonical one.
template <typename T>
T canonical(T x) {
  return x != x ? quiet_nan<T>() : x;
}
/// Computes 2^n; n must be the exponent of a normal number.
template <typename T>
T power_of_two(int n) {
  return from_bits<T>(static_cast<Bits<T>>(n + Constants<T>::bias) << Constants<T>::mantissa_bits);
}

/// Computes c[0] + x (c[1] + x (... )) from the highest coefficient down, one fma each.
template <typename T, int count>
T horner(const T (&c)[count], T x) {
  T p = c[count - 1];
  for (int i = count - 2; i >= 0; --i) p = fma(p, x, c[i]);
  return p;
}

/// Computes 2^x: rounds x to n, evaluates a polynomial of x - n, adds n to the exponent. Exactly 1 at 0; +0 below
/// 2^-126 (f64: 2^-1022).
template <typename T>
T exp2(T x) {
  using C = Constants<T>;
  if (x != x) return quiet_nan<T>();
  if (x < C::least_exponent) return T(0);
  if (x >= T(C::bias + 1)) return infinity<T>();
  const T shifted = x + C::rounder;  // its low bits are n
  const T n = shifted - C::rounder;
  const T p = horner(C::exp2, x - n);
  return from_bits<T>(to_bits(p) + (to_bits(shifted) << C::mantissa_bits));
}

/// Computes e^(s - m): the weight of score s, relative to the maximum m and not yet divided by the sum of the weights.
template <typename T>
T weight_of(T s, T m) {
  return exp2((s - m) * Constants<T>::log2e);
}

/// Computes e^x: rounds x log2(e) to n, takes r = x - n ln2 in two steps, evaluates a polynomial of r, and multiplies
/// by 2^n as two powers of two, so that results below the smallest normal number are rounded once.
template <typename T>
T exp(T x) {
  using C = Constants<T>;
  if (x != x) return quiet_nan<T>();
  if (x < C::exp_lowest) return T(0);
  if (x > C::exp_highest) return infinity<T>();
  const T n = fma(x, C::log2e, C::rounder) - C::rounder;
  const T r = fma(-n, C::ln2_low, fma(-n, C::ln2_high, x));
  const T p = horner(C::exp, r);
  const int whole = static_cast<int>(n), half = whole >> 1;
  return (p * power_of_two<T>(half)) * power_of_two<T>(whole - half);
}

/// x = 2^exponent (1 + f), 1 + f in [sqrt(1/2), sqrt(2)), and log(1 + f) = f - (half_square - rest).
struct LogParts {
  double exponent, f, half_square, rest;
};
inline LogParts log_parts(double x) {
  double offset = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    offset = 54;
  }
  const std::uint64_t bits = to_bits(x);
  const std::int64_t e = static_cast<std::int64_t>(bits - to_bits(Constants<double>::sqrt_half)) >> 52;
  const double f = from_bits<double>(bits - (static_cast<std::uint64_t>(e) << 52)) - 1.0;
  const double half_square = 0.5 * f * f, s = f / (2.0 + f), z = s * s;
  return {static_cast<double>(e) - offset, f, half_square, s * fma(z, horner(Constants<double>::log, z), half_square)};
}

inline double log(double x) {
  using C = Constants<double>;
  if (x != x || x < 0) return quiet_nan<double>();
  if (x == 0) return -infinity<double>();
  if (x == infinity<double>()) return x;
  const LogParts p = log_parts(x);
  const double low = fma(p.exponent, C::ln2_low, p.rest);
  return fma(p.exponent, C::ln2_high, p.f - (p.half_square - low));
}

/// Computes log(1 + f) in two doubles times log2(e) in two doubles, and adds the exponent.
inline double log2(double x) {
  using C = Constants<double>;
  if (x != x || x < 0) return quiet_nan<double>();
  if (x == 0) return -infinity<double>();
  if (x == infinity<double>()) return x;
  const LogParts p = log_parts(x);
  const double high = p.f - p.half_square, low = ((p.f - high) - p.half_square) + p.rest;
  const double product = high * C::log2e;
  const double remainder = fma(high, C::log2e, -product) + fma(low, C::log2e, high * C::log2e_low);
  const double sum = p.exponent + product;
  return sum + (((p.exponent - sum) + product) + remainder);
}

/// f32 is computed in f64 and rounded once.
inline float log(float x) { return canonical(static_cast<float>(log(static_cast<double>(x)))); }
inline float log2(float x) { return canonical(static_cast<float>(log2(static_cast<double>(x)))); }

/// Computes x + x^3 P(x^2) for |x| below 5/8, else 1 - 2 / (e^2x + 1).
template <typename T>
T tanh(T x) {
  if (x != x) return quiet_nan<T>();
  const T a = abs(x), z = a * a;
  const T t = a < T(0.625) ? fma(a * z, horner(Constants<T>::tanh, z), a) : T(1) - T(2) / (exp(a + a) + T(1));
  return copysign(t, x);
}

/// Computes 1 / (1 + e^-x) from e^-|x|, so that both tails keep their digits; the result is corrected by the rounding
/// error of 1 + e.
template <typename T>
T sigmoid(T x) {
  const T e = exp(-abs(x)), sum = T(1) + e, lost = (T(1) - sum) + e;
  const T y = (x < 0 ? e : T(1)) / sum;
  return canonical(fma(-y, lost, y));
}

/// Computes erf(z) for z in [0, 1].
template <typename T>
T erf_near(T z) {
  return fma(z, horner(Constants<T>::erf, z * z), z);
}
/// Computes erfc(z) for z >= 1; the square of z is given as square + rest.
template <typename T>
T erfc_far(T z, T square, T rest) {
  const T e = exp(-square);
  return fma(-rest, e, e) * horner(Constants<T>::erfc, (z - T(3)) / (z + T(3)));
}

template <typename T>
T erf(T x) {
  if (x != x) return quiet_nan<T>();
  const T z = abs(x), square = z * z;
  if (z < T(1)) return copysign(erf_near(z), x);
  if (z >= Constants<T>::erf_one) return copysign(T(1), x);
  return copysign(T(1) - erfc_far(z, square, fma(z, z, -square)), x);
}

/// Computes x / (1 + e^-x); -0 at -inf.
template <typename T>
T silu(T x) {
  if (x < T(-1000)) return T(-0.0);
  return canonical(x * sigmoid(x));
}

/// Computes x/2 (1 + erf(x / sqrt 2)). For x far below 0 this is x/2 erfc(-x / sqrt 2), computed with x^2 / 2 exactly
/// in two parts.
template <typename T>
T gelu_none(T x) {
  using C = Constants<T>;
  if (x != x) return quiet_nan<T>();
  if (x < C::gelu_lowest) return T(-0.0);
  const T half = T(0.5) * x, z = abs(x) * C::sqrt_half;
  if (z < T(1)) return half * (T(1) + copysign(erf_near(z), x));
  if (z > -C::gelu_lowest) return x;
  const T square = half * x, tail = erfc_far(z, square, fma(half, x, -square));
  return x < 0 ? half * tail : half * (T(2) - tail);
}

/// Computes x/2 (1 + tanh u) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
template <typename T>
T gelu_tanh(T x) {
  using C = Constants<T>;
  if (x < C::gelu_lowest) return T(-0.0);
  const T cubic = fma(T(0.044715) * (x * x), x, x);
  return canonical(x * sigmoid((C::sqrt_two_over_pi * cubic) * T(2)));
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
