// web/tests/programs/fmaf.cc: prints hashes of products and sums that are hard to round; the same natively (by the
// processor's instruction) and as WebAssembly.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>

namespace {

std::uint64_t state = 88172645463325252u;
std::uint64_t draw() {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

/// Few bits of a significand and a wide exponent: half ways, cancellation and results below the normal numbers are
/// common.
template <typename T>
T draw_number(int bits, int exponents) {
  const std::uint64_t word = draw();
  const T significand =
      T(1) + static_cast<T>(word % (std::uint64_t{1} << bits)) / static_cast<T>(std::uint64_t{1} << bits);
  const int exponent = static_cast<int>((word >> 56) % static_cast<unsigned>(2 * exponents)) - exponents;
  return std::ldexp(((word >> 55) & 1) != 0 ? -significand : significand, exponent);
}

template <typename T, typename Word>
void add(std::uint64_t& hash, T value) {
  const Word bits = value != value ? Word(1) : std::bit_cast<Word>(value);  // a NaN's bits are not laid down
  hash = (hash ^ bits) * 1099511628211u;
}

template <typename T, typename Word>
std::uint64_t random_cases(int count, int bits, int exponents) {
  std::uint64_t hash = 1469598103934665603u;
  for (int i = 0; i < count; ++i) {
    const T a = draw_number<T>(i % bits, exponents), b = draw_number<T>(i / 3 % bits, exponents);
    T c = draw_number<T>(i / 7 % bits, 2 * exponents);
    if (i % 3 == 0) c = std::ldexp(a * b, -static_cast<int>(draw() % static_cast<unsigned>(3 * bits)));
    if (i % 3 == 1) c = -std::ldexp(a * b, static_cast<int>(draw() % 3u) - 1);
    add<T, Word>(hash, std::fma(a, b, c));
  }
  return hash;
}

/// The case that wasi-libc rounds wrongly, its neighbours and its image below the normal numbers.
template <typename T, typename Word>
void half_ways(const char* name, int bits) {
  const T one_and_a_bit = T(1) + std::ldexp(T(1), -bits / 2);
  std::uint64_t hash = 1469598103934665603u;
  for (int scale = 0; scale > -2 * std::numeric_limits<T>::max_exponent; --scale)
    for (int far = 1; far < 4 * bits; ++far)
      for (const T sign : {T(1), T(-1)})
        for (const T side : {T(1), T(0), T(-1)}) {
          const T a = std::ldexp(one_and_a_bit, scale / 2), b = std::ldexp(one_and_a_bit, scale - scale / 2) * sign;
          add<T, Word>(hash, std::fma(a, b, side * std::ldexp(T(1), scale - far)));
        }
  std::printf("half ways of %s %016llx\n", name, static_cast<unsigned long long>(hash));
}

void edges() {
  std::uint64_t hash = 1469598103934665603u;
  using Limits = std::numeric_limits<float>;
  const float edge[] = {0.0f,
                        -0.0f,
                        Limits::denorm_min(),
                        -Limits::denorm_min(),
                        Limits::min(),
                        Limits::max(),
                        -Limits::max(),
                        Limits::infinity(),
                        -Limits::infinity(),
                        Limits::quiet_NaN(),
                        1.0f,
                        -1.0f,
                        1.0f + Limits::epsilon(),
                        0.5f,
                        0x1.fffffep-127f};
  for (const float a : edge)
    for (const float b : edge)
      for (const float c : edge) add<float, std::uint32_t>(hash, std::fma(a, b, c));
  std::printf("edges %016llx\n", static_cast<unsigned long long>(hash));
}

}  // namespace

int main() {
  const volatile float x = 1 + 0x1p-12f, above = 0x1p-80f, below = -0x1p-80f;
  std::printf("(1 + 2^-12)^2 + 2^-80 = %a, - 2^-80 = %a\n", static_cast<double>(std::fma(x, x, above)),
              static_cast<double>(std::fma(x, x, below)));
  half_ways<float, std::uint32_t>("f32", 24);
  half_ways<double, std::uint64_t>("f64", 53);
  edges();
  std::printf("f32 %016llx\n", static_cast<unsigned long long>(random_cases<float, std::uint32_t>(2'000'000, 24, 60)));
  std::printf("f64 %016llx\n", static_cast<unsigned long long>(random_cases<double, std::uint64_t>(300'000, 53, 480)));
}
