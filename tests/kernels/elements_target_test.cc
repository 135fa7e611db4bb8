// tests/kernels/elements_target_test.cc: functions, slopes, sums and products of elements have the bits of the
// specification on every instruction set.
#include "kernels/reference.h"
#include "kernels/row_targets.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

namespace attn::kernels {
namespace {

class EveryElementTarget : public RowTargetTest {};

constexpr Unary functions[] = {Unary::exp,     Unary::exp2, Unary::log,       Unary::log2,
                               Unary::tanh,    Unary::erf,  Unary::sin,       Unary::cos,
                               Unary::sigmoid, Unary::silu, Unary::gelu_none, Unary::gelu_tanh};

template <typename T>
void compare_functions(const RowTarget& target, const std::vector<T>& x) {
  for (const Unary op : functions) {
    std::vector<T> ours(x.size()), expected(x.size());
    target.unary(op, element_for<T>, x.data(), ours.data(), static_cast<std::int64_t>(x.size()));
    reference().unary(op, element_for<T>, x.data(), expected.data(), static_cast<std::int64_t>(x.size()));
    EXPECT_TRUE(same_bytes(ours, expected, x)) << "function " << static_cast<int>(op);
  }
}

template <typename T>
void compare_slopes(const RowTarget& target, const std::vector<T>& x) {
  const std::vector<T> dy(x.rbegin(), x.rend());
  for (const Slope op : {Slope::tanh, Slope::sigmoid, Slope::silu, Slope::gelu_none, Slope::gelu_tanh}) {
    std::vector<T> ours = dy, expected(x.size());
    // in place
    target.slope(op, element_for<T>, ours.data(), x.data(), ours.data(), static_cast<std::int64_t>(x.size()));
    reference().slope(op, element_for<T>, dy.data(), x.data(), expected.data(), static_cast<std::int64_t>(x.size()));
    EXPECT_TRUE(same_bytes(ours, expected, x)) << "slope " << static_cast<int>(op);
  }
}

template <typename T>
std::vector<T> telling_numbers(std::mt19937& random) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(),
          least = std::numeric_limits<T>::denorm_min();
  std::vector<T> x = {0,
                      T(-0.0),
                      inf,
                      -inf,
                      nan,
                      -nan,
                      least,
                      -least,
                      std::numeric_limits<T>::min(),
                      std::numeric_limits<T>::max(),
                      1,
                      -1,
                      T(0.625),
                      88,
                      89,
                      90,
                      -87,
                      -103,
                      -104,
                      -105,
                      127,
                      128,
                      -126,
                      -127,
                      709,
                      710,
                      711,
                      -745,
                      -746,
                      1023,
                      1024,
                      -1022,
                      -1023,
                      16,
                      -16,
                      -40,
                      -41,
                      6,
                      4,
                      -1000,
                      -1001,
                      T(0x1p20),
                      T(-0x1p20),
                      T(0x1.fffffep19)};
  x.push_back(std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(nan) | 0x155)));  // a NaN with a payload
  std::uniform_real_distribution<T> near(-2, 2), middle(-20, 20), far(-800, 800);
  for (int i = 0; i < 3000; ++i)
    for (auto* values : {&near, &middle, &far}) x.push_back((*values)(random));
  for (int i = 0; i < 20000; ++i) {
    const Bits bits = sizeof(T) == 8 ? static_cast<Bits>(static_cast<std::uint64_t>(random()) << 32 | random())
                                     : static_cast<Bits>(random());
    x.push_back(std::bit_cast<T>(bits));
  }
  return x;
}

TEST_P(EveryElementTarget, FunctionsHaveTheBitsOfTheSpecification) {
  std::mt19937 random(3);
  const auto single = telling_numbers<float>(random);
  compare_functions(target(), single);
  const auto twice = telling_numbers<double>(random);
  compare_functions(target(), twice);
  for (std::size_t n = 1; n < 40; ++n)
    compare_functions(target(),
                      std::vector<float>(single.begin() + 45, single.begin() + 45 + static_cast<std::ptrdiff_t>(n)));
}

TEST_P(EveryElementTarget, SlopesHaveTheBitsOfTheSpecification) {
  std::mt19937 random(8);
  const auto single = telling_numbers<float>(random);
  compare_slopes(target(), single);
  compare_slopes(target(), telling_numbers<double>(random));
  for (std::size_t n = 0; n < 40; ++n)
    compare_slopes(target(),
                   std::vector<float>(single.begin() + 45, single.begin() + 45 + static_cast<std::ptrdiff_t>(n)));
}

/// The bits of x, any NaN as one number.
std::uint32_t bits_of(float x) { return x != x ? 0x7fc00000u : std::bit_cast<std::uint32_t>(x); }
/// To the nearest bf16 in f64, where both neighbours are exact: not the kernel's way.
std::uint16_t nearest_bf16(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  if (x != x) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  const auto lower = static_cast<std::uint16_t>(bits >> 16);
  const auto value = [](std::uint32_t half) {  // an infinity stands for the number that would come next
    const double number = std::bit_cast<float>(half << 16);
    return std::isinf(number) ? std::copysign(0x1p128, number) : number;
  };
  if (std::isinf(x)) return lower;
  const double below = std::abs(static_cast<double>(x) - value(lower)),
               above = std::abs(value(lower + 1u) - static_cast<double>(x));
  return below < above || (below == above && lower % 2 == 0) ? lower : static_cast<std::uint16_t>(lower + 1);
}

TEST_P(EveryElementTarget, SumsAndProductsOfElements) {
  std::mt19937 random(10);
  const std::vector<float> from = telling_numbers<float>(random);
  const auto expected_of = [](Binary op, float a, float b) {
    return op == Binary::add ? a + b : op == Binary::sub ? a - b : op == Binary::mul ? a * b : a / b;
  };
  for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{15}, std::size_t{16}, std::size_t{17},
                              std::size_t{40}, from.size()})
    for (const Binary op : {Binary::add, Binary::sub, Binary::mul, Binary::div})
      for (const bool one : {false, true}) {
        const auto count = static_cast<std::int64_t>(n);
        const std::vector<float> a(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(n)),
            b(from.rbegin(), from.rbegin() + static_cast<std::ptrdiff_t>(n));
        std::vector<float> y(n + 1, 5.0f);
        target().binary(op, Element::f32, a.data(), one ? nullptr : b.data(), 0.3f, y.data(), count);
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(bits_of(y[i]), bits_of(expected_of(op, a[i], one ? 0.3f : b[i])))
              << std::hexfloat << a[i] << " " << b[i];
        EXPECT_EQ(y[n], 5.0f);
        const std::vector<double> wide_a(a.begin(), a.end()), wide_b(b.begin(), b.end());
        std::vector<double> wide_y(n + 1, 5.0);
        target().binary(op, Element::f64, wide_a.data(), one ? nullptr : wide_b.data(), 0.3, wide_y.data(), count);
        for (std::size_t i = 0; i < n; ++i) {
          const double u = wide_a[i], v = one ? 0.3 : wide_b[i],
                       expected = op == Binary::add   ? u + v
                                  : op == Binary::sub ? u - v
                                  : op == Binary::mul ? u * v
                                                      : u / v;
          if (expected != expected) ASSERT_TRUE(wide_y[i] != wide_y[i]);
          else
            ASSERT_EQ(std::bit_cast<std::uint64_t>(wide_y[i]), std::bit_cast<std::uint64_t>(expected))
                << std::hexfloat << u << " " << v;
        }
        EXPECT_EQ(wide_y[n], 5.0);
        std::vector<std::uint16_t> p(n), q(n), r(n + 1, 7);
        target().narrow(Element::bf16, a.data(), p.data(), count);
        target().narrow(Element::bf16, b.data(), q.data(), count);
        target().binary(op, Element::bf16, p.data(), one ? nullptr : q.data(), 0.3f, r.data(), count);
        const auto wide = [](std::uint16_t half) {
          return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16);
        };
        for (std::size_t i = 0; i < n; ++i) {
          const float expected = expected_of(op, wide(p[i]), one ? 0.3f : wide(q[i]));
          if (expected != expected) ASSERT_TRUE(wide(r[i]) != wide(r[i]));
          else ASSERT_EQ(r[i], nearest_bf16(expected)) << std::hexfloat << expected;
        }
        EXPECT_EQ(r[n], 7);
        if (one) continue;
        std::vector<float> in_place = a;
        target().binary(op, Element::f32, in_place.data(), b.data(), 0, in_place.data(), count);
        for (std::size_t i = 0; i < n; ++i)
          ASSERT_EQ(std::bit_cast<std::uint32_t>(in_place[i]), std::bit_cast<std::uint32_t>(y[i])) << i;
      }
}
INSTANTIATE_TEST_SUITE_P(Targets, EveryElementTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryElementTarget);

}  // namespace
}  // namespace attn::kernels
