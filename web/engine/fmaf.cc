// web/engine/fmaf.cc: replaces wasi-libc's fmaf, which rounds half ways up whatever lies behind them:
// (1 + 2^-12)^2 - 2^-80 came out one step too large.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

/// Returns x * y + z, rounded once. The product is exact in f64. The sum is rounded to odd: if it is not exact, its
/// last bit is set, so that rounding it again to f32 (29 bits fewer) sees on which side of a half way it lies.
extern "C" float fmaf(float x, float y, float z) {
  const double product = static_cast<double>(x) * static_cast<double>(y), addend = static_cast<double>(z);
  const double sum = product + addend;
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  // Most sums are neither half way between two floats nor below the normal ones, where half ways lie elsewhere.
  constexpr std::uint64_t low_bits = (std::uint64_t{1} << 29) - 1, half_way = std::uint64_t{1} << 28;
  if ((bits & low_bits) != half_way && std::fabs(sum) >= static_cast<double>(std::numeric_limits<float>::min()))
    return static_cast<float>(sum);
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double part = sum - product;
  const double rest = (product - (sum - part)) + (addend - part);  // what the sum lacks, exactly
  if (rest == 0 || (bits & 1) != 0) return static_cast<float>(sum);
  const bool away_from_zero = (rest > 0) == (sum > 0);
  return static_cast<float>(std::bit_cast<double>(away_from_zero ? bits + 1 : bits - 1));
}
