// src/kernels/ref/normal.cc: transforms uniform numbers to normal ones by Box-Muller, in blocks of 16, with the
// roundings of torch's AVX2 kernel.
#include "kernels/normal.h"

#include <cmath>
#include <cstring>

namespace attn::kernels::ATTN_REF_NAMESPACE {

extern const RandomTransforms random_transforms;

namespace {

struct SinCos {
  float sin, cos;
};

/// Computes the natural logarithm of x in (0, 1]: the Cephes polynomial, with fma wherever torch's vector code has it.
inline float log_f32(float x) {
  x = x < 0x1p-126f ? 0x1p-126f : x;
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  float e = static_cast<float>(static_cast<std::int32_t>(bits >> 23) - 126);
  bits = (bits & 0x007fffffu) | 0x3f000000u;  // x in [0.5, 1)
  std::memcpy(&x, &bits, sizeof bits);
  const bool below = x < 0.707106781186547524f;
  e = below ? e - 1.0f : e;
  x = below ? (x - 1.0f) + x : x - 1.0f;
  const float z = x * x;
  float y = 7.0376836292e-2f;
  y = std::fma(y, x, -1.1514610310e-1f);
  y = std::fma(y, x, 1.1676998740e-1f);
  y = std::fma(y, x, -1.2420140846e-1f);
  y = std::fma(y, x, 1.4249322787e-1f);
  y = std::fma(y, x, -1.6668057665e-1f);
  y = std::fma(y, x, 2.0000714765e-1f);
  y = std::fma(y, x, -2.4999993993e-1f);
  y = std::fma(y, x, 3.3333331174e-1f);
  y = y * x;
  y = std::fma(y, z, e * -2.12194440e-4f);
  y = std::fma(z, -0.5f, y);
  x = x + y;
  return std::fma(e, 0.693359375f, x);
}

/// Computes sine and cosine of t >= 0: subtracts multiples of pi/4 in three parts, then evaluates one polynomial for
/// each.
inline SinCos sincos_f32(float t) {
  const std::int32_t j = (static_cast<std::int32_t>(t * 1.27323954473516f) + 1) & ~1;
  const float y = static_cast<float>(j);
  float x = std::fma(y, -0.78515625f, t);
  x = std::fma(y, -2.4187564849853515625e-4f, x);
  x = std::fma(y, -3.77489497744594108e-8f, x);
  const float z = x * x;
  float a = std::fma(2.443315711809948e-5f, z, -1.388731625493765e-3f);
  a = std::fma(a, z, 4.166664568298827e-2f);
  a = a * z;
  a = std::fma(a, z, -(z * 0.5f));
  a = a + 1.0f;
  float b = std::fma(-1.9515295891e-4f, z, 8.3321608736e-3f);
  b = std::fma(b, z, -1.6666654611e-1f);
  b = b * z;
  b = std::fma(b, x, x);
  const bool swap = (j & 2) == 0;
  const float sin = swap ? b : a, cos = swap ? a : b;
  return {(j & 4) ? -sin : sin, (~(j - 2) & 4) ? -cos : cos};
}

void normal_f32(float* x, std::int64_t n, float mean, float std) noexcept {
  for (float* d = x; d < x + n; d += 16) {
    for (int j = 0; j < 8; ++j) {
      const float radius = std::sqrt(-2.0f * log_f32(1.0f - d[j]));
      const SinCos angle = sincos_f32(6.2831855f * d[j + 8]);
      d[j] = std::fma(radius * angle.cos, std, mean);
      d[j + 8] = std::fma(radius * angle.sin, std, mean);
    }
  }
}

void normal_f64(double* x, std::int64_t n, double mean, double std) noexcept {
  constexpr double two_pi = 2.0 * 3.14159265358979323846;
  for (double* d = x; d < x + n; d += 16) {
    for (int j = 0; j < 8; ++j) {
      const double radius = std::sqrt(-2.0 * std::log(1.0 - d[j]));
      const double angle = two_pi * d[j + 8];
      d[j] = std::fma(radius * std::cos(angle), std, mean);
      d[j + 8] = std::fma(radius * std::sin(angle), std, mean);
    }
  }
}

void affine_f32(float* x, std::int64_t n, float range, float low) noexcept {
  for (std::int64_t i = 0; i < n; ++i) x[i] = std::fma(x[i], range, low);
}

void affine_f64(double* x, std::int64_t n, double range, double low) noexcept {
  for (std::int64_t i = 0; i < n; ++i) x[i] = std::fma(x[i], range, low);
}

}  // namespace

const RandomTransforms random_transforms = {normal_f32, normal_f64, affine_f32, affine_f64};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
