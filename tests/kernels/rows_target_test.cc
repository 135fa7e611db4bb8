// tests/kernels/rows_target_test.cc: rows and elementary functions of every instruction set have the bits of the
// specification.
#include "kernels/reference.h"
#include "kernels/rows/target.h"
#include "runtime/cpu.h"
#include "support/guarded.h"
#include "kernels/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace attn::kernels {
namespace {

template <typename T>
constexpr Element element_for = sizeof(T) == 8 ? Element::f64 : Element::f32;

template <typename T>
::testing::AssertionResult same_bytes(const std::vector<T>& ours, const std::vector<T>& specification,
                                      const std::vector<T>& given) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::memcmp(&ours[i], &specification[i], sizeof(T)) != 0)
      return ::testing::AssertionFailure()
             << "element " << i << " of " << ours.size() << " (" << std::hexfloat
             << given[std::min(i, given.size() - 1)] << "): " << ours[i] << " is not " << specification[i];
  return ::testing::AssertionSuccess();
}

class EveryRowTarget : public ::testing::TestWithParam<std::string> {
 protected:
  const RowTarget& target() const { return *row_target(GetParam().c_str()); }
};

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

TEST_P(EveryRowTarget, FunctionsHaveTheBitsOfTheSpecification) {
  std::mt19937 random(3);
  const auto single = telling_numbers<float>(random);
  compare_functions(target(), single);
  const auto twice = telling_numbers<double>(random);
  compare_functions(target(), twice);
  for (std::size_t n = 1; n < 40; ++n)
    compare_functions(target(),
                      std::vector<float>(single.begin() + 45, single.begin() + 45 + static_cast<std::ptrdiff_t>(n)));
}

TEST_P(EveryRowTarget, SlopesHaveTheBitsOfTheSpecification) {
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

TEST_P(EveryRowTarget, SumsAndProductsOfElements) {
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

template <typename T>
void compare_rows(const RowTarget& target, const std::vector<T>& x) {
  const auto n = static_cast<std::int64_t>(x.size());
  for (const RowOp op :
       {RowOp::sum, RowOp::sum_of_squares, RowOp::sum_of_absolutes, RowOp::max, RowOp::softmax, RowOp::log_softmax}) {
    std::vector<T> ours(x.size() + 1, T(5)), expected = ours;
    target.row(op, element_for<T>, x.data(), 1, ours.data(), 1, n);
    reference().row(op, element_for<T>, x.data(), 1, expected.data(), 1, n);
    EXPECT_TRUE(same_bytes(ours, expected, x.empty() ? ours : x)) << "operation " << static_cast<int>(op) << " n " << n;
    std::fill(ours.begin(), ours.end(), T(5));
    target.row_to_memory(op, element_for<T>, x.data(), 1, ours.data(), 1, n);
    EXPECT_TRUE(same_bytes(ours, expected, x.empty() ? ours : x))
        << "to memory: operation " << static_cast<int>(op) << " n " << n;
  }
  std::vector<T> ours(2), expected(2);
  target.moments_row(element_for<T>, x.data(), 1, n, &ours[0], &ours[1]);
  reference().moments_row(element_for<T>, x.data(), 1, n, &expected[0], &expected[1]);
  EXPECT_TRUE(same_bytes(ours, expected, expected)) << "moments, n " << n;
  for (const bool affine : {false, true}) {
    std::vector<T> y(x.size() + 1, T(5)), same = y, weight = x, bias = x;
    for (T& b : bias) b = T(1) - b;
    target.layer_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr, affine ? bias.data() : nullptr,
                          1e-5, y.data(), n);
    reference().layer_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr,
                               affine ? bias.data() : nullptr, 1e-5, same.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "layer norm, n " << n;
    std::fill(y.begin(), y.end(), T(5));
    target.layer_norm_row_to_memory(element_for<T>, x.data(), affine ? weight.data() : nullptr,
                                    affine ? bias.data() : nullptr, 1e-5, y.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "layer norm to memory, n " << n;
    const std::vector<T> dy(x.rbegin(), x.rend());
    for (const bool rms : {false, true}) {
      std::vector<T> dx(x.size() + 1, T(5)), dx_expected = dx, sums[2] = {dx, dx}, expected_sums[2] = {dx, dx};
      NormGradientRow row{.element = element_for<T>,
                          .rms = rms,
                          .n = n,
                          .eps = 1e-5,
                          .x = x.data(),
                          .dy = dy.data(),
                          .weight = affine ? weight.data() : nullptr,
                          .dx = dx.data()};
      if (affine) row.weight_sums = sums[0].data(), row.bias_sums = sums[1].data();
      target.norm_gradient_row(row);
      row.dx = dx_expected.data();
      if (affine) row.weight_sums = expected_sums[0].data(), row.bias_sums = expected_sums[1].data();
      reference().norm_gradient_row(row);
      EXPECT_TRUE(same_bytes(dx, dx_expected, x.empty() ? y : x)) << "gradient of a norm, rms " << rms << ", n " << n;
      for (int s = 0; s < 2; ++s)
        for (std::size_t i = 0; i < dx.size(); ++i) {  // any NaN
          const T ours = sums[s][i], expected = expected_sums[s][i];
          EXPECT_TRUE(ours == expected || (ours != ours && expected != expected)) << i;
        }
    }
    target.rms_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr, 1e-6, y.data(), n);
    reference().rms_norm_row(element_for<T>, x.data(), affine ? weight.data() : nullptr, 1e-6, same.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "rms norm, n " << n;
    std::fill(y.begin(), y.end(), T(5));
    target.rms_norm_row_to_memory(element_for<T>, x.data(), affine ? weight.data() : nullptr, 1e-6, y.data(), n);
    EXPECT_TRUE(same_bytes(y, same, x.empty() ? y : x)) << "rms norm to memory, n " << n;
  }
}

TEST_P(EveryRowTarget, RowsHaveTheBitsOfTheSpecification) {
  std::mt19937 random(4);
  std::normal_distribution<double> value(0, 5);
  for (const std::int64_t n : {0, 1, 2, 7, 8, 15, 16, 17, 31, 63, 64, 100, 768, 1000, 4095, 4096, 4097, 9001, 40000}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (float& v : x) v = static_cast<float>(value(random));
    compare_rows(target(), x);
    compare_rows(target(), std::vector<double>(x.begin(), x.end()));
  }
}

TEST_P(EveryRowTarget, RowsWithNanInfinityAndZeros) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& few : {std::vector<float>{nan},
                                        {inf},
                                        {-inf},
                                        {-inf, 1},
                                        {inf, -inf, 2},
                                        {-0.0f},
                                        {-0.0f, 0},
                                        {1e30f, -1e30f, 3},
                                        {inf, nan}})
    for (const std::size_t n : {few.size(), std::size_t{40}, std::size_t{5000}}) {
      std::vector<float> x(n);
      for (std::size_t i = 0; i < n; ++i) x[i] = few[i % few.size()];
      compare_rows(target(), x);
      compare_rows(target(), std::vector<double>(x.begin(), x.end()));
      std::vector<float> one(n, 0.5f);
      one[n / 2] = few[0];
      compare_rows(target(), one);
    }
}

TEST_P(EveryRowTarget, SumsOfColumnsAreSumsOfRows) {
  std::mt19937 random(6);
  std::normal_distribution<float> value(0, 5);
  for (const std::int64_t n : {0, 1, 15, 16, 33, 4096, 4100, 13000})
    for (const std::int64_t columns : {1, 16, 37, 64, 150}) {
      std::vector<float> x(static_cast<std::size_t>(n * (columns + 3)));
      for (float& v : x) v = value(random);
      std::vector<float> ours(static_cast<std::size_t>(columns)), expected = ours;
      target().sum_columns(Element::f32, x.data(), columns + 3, n, ours.data(), columns);
      for (std::int64_t c = 0; c < columns; ++c)
        reference().row(RowOp::sum, Element::f32, x.data() + c, columns + 3, &expected[static_cast<std::size_t>(c)], 1,
                        n);
      EXPECT_TRUE(same_bytes(ours, expected, expected)) << n << " rows, " << columns << " columns";
      std::vector<std::uint16_t> halves(x.size());
      target().narrow(Element::bf16, x.data(), halves.data(), static_cast<std::int64_t>(x.size()));
      target().widen(Element::bf16, halves.data(), x.data(), static_cast<std::int64_t>(x.size()));
      target().sum_columns(Element::bf16, halves.data(), columns + 3, n, ours.data(), columns);
      target().sum_columns(Element::f32, x.data(), columns + 3, n, expected.data(), columns);
      EXPECT_TRUE(same_bytes(ours, expected, expected)) << "bf16: " << n << " rows, " << columns << " columns";
    }
}

TEST_P(EveryRowTarget, SoftmaxOfColumnsIsSoftmaxOfRows) {
  std::mt19937 random(7);
  std::normal_distribution<float> value(0, 5);
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto compare = [&]<typename T>(T) {
    for (const std::int64_t n : {1, 2, 15, 16, 33, 200, 4100})
      for (const std::int64_t columns : {1, 7, 16, 37})
        for (const RowOp op : {RowOp::softmax, RowOp::log_softmax}) {
          const std::int64_t x_stride = columns + 3, y_stride = columns + 1;
          std::vector<T> x(static_cast<std::size_t>(n * x_stride));
          for (T& v : x) v = value(random);
          for (const auto& [column, special] : {std::pair{0, nan}, {1, inf}, {3, -inf}, {4, -0.0f}})
            if (column < columns) x[static_cast<std::size_t>(n / 2 * x_stride + column)] = special;
          for (std::int64_t i = 0; columns > 5 && i < n; ++i) x[static_cast<std::size_t>(i * x_stride + 5)] = -inf;
          std::vector<T> ours(static_cast<std::size_t>(n * y_stride), T(9)), expected = ours, in_place = x, apart = x;
          target().softmax_columns(op, element_for<T>, x.data(), x_stride, ours.data(), y_stride, n, columns);
          target().softmax_columns(op, element_for<T>, in_place.data(), x_stride, in_place.data(), x_stride, n,
                                   columns);
          for (std::int64_t c = 0; c < columns; ++c) {
            reference().row(op, element_for<T>, x.data() + c, x_stride, expected.data() + c, y_stride, n);
            reference().row(op, element_for<T>, x.data() + c, x_stride, apart.data() + c, x_stride, n);
          }
          EXPECT_TRUE(same_bytes(ours, expected, x)) << n << " rows, " << columns << " columns";
          EXPECT_TRUE(same_bytes(in_place, apart, x)) << "in place: " << n << " rows, " << columns << " columns";
        }
  };
  compare(float{});
  compare(double{});
}

TEST_P(EveryRowTarget, StreamsEveryByteAndNoOther) {
  std::vector<unsigned char> from(5000), to(5200);
  for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<unsigned char>(i * 7 + i / 256);
  for (const std::size_t at : {0, 1, 4, 63, 64, 100})
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 200, 4096, 4999}) {
      std::fill(to.begin(), to.end(), static_cast<unsigned char>(0xEE));
      target().stream(from.data() + 1, to.data() + at, static_cast<std::int64_t>(bytes));
      for (std::size_t i = 0; i < to.size(); ++i)
        ASSERT_EQ(to[i], i >= at && i < at + bytes ? from[i - at + 1] : 0xEE) << at << " " << bytes << " " << i;
    }
}

/// Every f32 that lies on the way between two halves, its neighbours, and bits drawn at random.
std::vector<std::uint32_t> words_to_round(Element half) {
  std::vector<std::uint32_t> words;
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const auto word =
        std::bit_cast<std::uint32_t>(half == Element::bf16 ? half::from_bf16(bits) : half::from_f16(bits));
    for (const std::uint32_t half_way : {0x8000u, 0x1000u})
      for (const std::uint32_t beside : {0u, 1u, ~0u})
        words.insert(words.end(), {word + beside, word + half_way + beside});
  }
  for (std::uint32_t word = 0x33000000u; word < 0x38800010u; word += 97) words.push_back(word);  // denormal f16
  std::mt19937 random(9);
  for (int i = 0; i < 100000; ++i) words.push_back(static_cast<std::uint32_t>(random()));
  return words;
}

TEST_P(EveryRowTarget, HalvesAreWidenedAndNarrowedAsByHand) {
  std::vector<std::uint16_t> patterns(0x10000);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  for (const Element half : {Element::bf16, Element::f16}) {
    std::vector<std::uint32_t> wide(patterns.size());
    target().widen(half, patterns.data(), wide.data(), static_cast<std::int64_t>(patterns.size()));
    for (const std::uint16_t bits : patterns)
      ASSERT_EQ(wide[bits],
                std::bit_cast<std::uint32_t>(half == Element::bf16 ? half::from_bf16(bits) : half::from_f16(bits)))
          << bits;
    const std::vector<std::uint32_t> words = words_to_round(half);
    std::vector<std::uint16_t> narrow(words.size());
    target().narrow(half, words.data(), narrow.data(), static_cast<std::int64_t>(words.size()));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto x = std::bit_cast<float>(words[i]);
      ASSERT_EQ(narrow[i], half == Element::bf16 ? half::to_bf16(x) : half::to_f16(x)) << std::hex << words[i];
    }
  }
}

TEST_P(EveryRowTarget, HalvesAtTheEndOfMemory) {
  for (std::int64_t n = 0; n < 40; ++n) {
    const auto count = static_cast<std::size_t>(n);
    const testing::Guarded halves(2 * count), words(4 * count);
    std::memset(halves.data(), 0x3c, 2 * count);
    for (const Element half : {Element::bf16, Element::f16}) {
      target().widen(half, halves.data(), words.data(), n);
      std::memset(halves.data(), 0, 2 * count);
      target().narrow(half, words.data(), halves.data(), n);
      for (std::size_t i = 0; i < 2 * count; ++i) ASSERT_EQ(static_cast<const char*>(halves.data())[i], 0x3c) << n;
    }
  }
}

std::vector<std::string> vector_targets() {
  std::vector<std::string> names = runtime::targets();
  names.pop_back();  // scalar: the specification itself
  return names;
}
INSTANTIATE_TEST_SUITE_P(Targets, EveryRowTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryRowTarget);

}  // namespace
}  // namespace attn::kernels
