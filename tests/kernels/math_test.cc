// tests/kernels/math_test.cc: the elementary functions against long double, and the two builds of the specification
// against each other.
#include "kernels/reference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace attn::kernels {
namespace {

template <typename T>
constexpr Element element_of = sizeof(T) == 4 ? Element::f32 : Element::f64;

template <typename T>
std::vector<T> run(Unary op, const std::vector<T>& x, const Reference& table = reference()) {
  std::vector<T> y(x.size());
  table.unary(op, element_of<T>, x.data(), y.data(), static_cast<std::int64_t>(x.size()));
  return y;
}
template <typename T>
T one(Unary op, T x) {
  return run<T>(op, {x})[0];
}

/// |ours - truth| in units of the last place of the truth.
template <typename T>
double ulps(T ours, long double truth) {
  if (std::isnan(truth)) return std::isnan(ours) ? 0 : 1e30;
  if (std::abs(truth) > static_cast<long double>(std::numeric_limits<T>::max())) {
    return std::abs(ours) >= std::numeric_limits<T>::max() && std::signbit(ours) == std::signbit(truth) ? 0 : 1e30;
  }
  int exponent = 0;
  std::frexp(truth, &exponent);
  const int last = std::max(exponent - std::numeric_limits<T>::digits,
                            std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::abs(static_cast<long double>(ours) - truth) / std::ldexp(1.0L, last));
}

/// Values spread evenly over [low, high].
template <typename T>
std::vector<T> sweep(double low, double high, int count = 200001) {
  std::vector<T> x;
  for (int i = 0; i < count; ++i) x.push_back(static_cast<T>(low + (high - low) * i / (count - 1)));
  return x;
}
/// Magnitudes of every binade from 2^low to 2^high, both signs unless `positive`.
template <typename T>
std::vector<T> binades(int low, int high, bool positive = false, int each = 400) {
  std::mt19937_64 random(7);
  std::vector<T> x;
  for (int e = low; e < high; ++e)
    for (int i = 0; i < each; ++i) {
      const T value = static_cast<T>(std::ldexp(1.0L + static_cast<long double>(random() >> 1) * 0x1p-63L, e));
      x.push_back(!positive && (random() & 1) != 0 ? -value : value);
    }
  return x;
}

long double truth(Unary op, long double x) {
  switch (op) {
    case Unary::exp: return std::exp(x);
    case Unary::exp2: return std::exp2(x);
    case Unary::log: return std::log(x);
    case Unary::log2: return std::log2(x);
    case Unary::tanh: return std::tanh(x);
    case Unary::erf: return std::erf(x);
    case Unary::sin: return std::sin(x);
    case Unary::cos: return std::cos(x);
    case Unary::sigmoid: return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x));
    case Unary::silu: return x >= 0 ? x / (1 + std::exp(-x)) : x * std::exp(x) / (1 + std::exp(x));
    case Unary::gelu_none: return 0.5L * x * std::erfc(-x * std::sqrt(0.5L));
    case Unary::gelu_tanh: {
      const long double u = std::sqrt(2 / std::acos(-1.0L)) * (x + 0.044715L * x * x * x);
      return x / (1 + std::exp(-2 * u));
    }
  }
  return 0;
}

template <typename T>
double worst(Unary op, const std::vector<T>& x) {
  const std::vector<T> y = run(op, x);
  double result = 0;
  T at = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], truth(op, x[i]));
    if (error > result) {
      result = error;
      at = x[i];
    }
  }
  ::testing::Test::RecordProperty("ulps_of_op_" + std::to_string(static_cast<int>(op)),
                                  std::to_string(result) + " at " + std::to_string(at));
  return result;
}

template <typename T>
class Accuracy : public ::testing::Test {};
using Floats = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Accuracy, Floats);

TYPED_TEST(Accuracy, Exponentials) {
  using T = TypeParam;
  const double normal = sizeof(T) == 4 ? 126 : 1022, lowest = sizeof(T) == 4 ? -103.9 : -745;
  EXPECT_LE(worst(Unary::exp2, sweep<T>(-normal, normal + 1.99)), 2);
  EXPECT_LE(worst(Unary::exp2, sweep<T>(-1, 1)), 2);
  EXPECT_LE(worst(Unary::exp, sweep<T>(lowest, sizeof(T) == 4 ? 88.7 : 709.7)), 1);
  EXPECT_LE(worst(Unary::exp, sweep<T>(-1, 1)), 1);
  EXPECT_LE(worst(Unary::exp, binades<T>(-80, 0)), 1);
  EXPECT_LE(worst(Unary::sigmoid, sweep<T>(lowest, 100)), 2);
  EXPECT_LE(worst(Unary::sigmoid, sweep<T>(-4, 4)), 2);
}

TYPED_TEST(Accuracy, Logarithms) {
  using T = TypeParam;
  const int low = std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits,
            high = std::numeric_limits<T>::max_exponent;
  for (const Unary op : {Unary::log, Unary::log2}) {
    EXPECT_LE(worst(op, binades<T>(low, high - 1, true)), 1);
    EXPECT_LE(worst(op, sweep<T>(0.5, 2)), 1);
    EXPECT_LE(worst(op, sweep<T>(0.999, 1.001)), 1);
  }
  EXPECT_EQ(one<T>(Unary::log, 1), 0);
  for (int e = low; e < high; ++e) EXPECT_EQ(one(Unary::log2, std::ldexp(T(1), e)), T(e));
}

TYPED_TEST(Accuracy, Bells) {
  using T = TypeParam;
  for (const Unary op : {Unary::tanh, Unary::erf}) {
    EXPECT_LE(worst(op, sweep<T>(-7, 7)), 2);
    EXPECT_LE(worst(op, sweep<T>(-1.1, 1.1)), 2);
    EXPECT_LE(worst(op, binades<T>(std::numeric_limits<T>::min_exponent - std::numeric_limits<T>::digits, 10)), 2);
  }
}

TYPED_TEST(Accuracy, SineAndCosineOfAnyArgument) {
  using T = TypeParam;
  for (const Unary op : {Unary::sin, Unary::cos}) {
    EXPECT_LE(worst(op, sweep<T>(-10, 10)), 1);
    EXPECT_LE(worst(op, sweep<T>(-1048577, 1048577)), 1);
    EXPECT_LE(worst(op, binades<T>(std::numeric_limits<T>::min_exponent - 1, std::numeric_limits<T>::max_exponent - 1)),
              1);
    std::vector<T> quarters;  // nearest to multiples of pi/2, where the reduction cancels most
    for (int i = 1; i < 200000; ++i) quarters.push_back(static_cast<T>(i * 3.14159265358979323846L / 2));
    EXPECT_LE(worst(op, quarters), 1);
  }
}

TEST(Accuracy64, SineOfTheHardestDouble) {
  // 6381956970095103 2^797 is the double nearest to a multiple of pi/2 (Kahan); cos there is -4.687165924254623e-19.
  EXPECT_DOUBLE_EQ(one(Unary::cos, std::ldexp(6381956970095103.0, 797)), -4.687165924254624e-19);
}

TYPED_TEST(Accuracy, Activations) {
  using T = TypeParam;
  for (const Unary op : {Unary::silu, Unary::gelu_none, Unary::gelu_tanh}) {
    const std::vector<T> x = sweep<T>(-9, 9), y = run(op, x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double expected = truth(op, x[i]);
      ASSERT_LE(std::abs(static_cast<long double>(y[i]) - expected),
                4 * std::numeric_limits<T>::epsilon() * std::max(0.5L, std::abs(expected)))
          << x[i];
    }
  }
  // the tail keeps its digits where 1 + erf would cancel
  EXPECT_NEAR(one<T>(Unary::gelu_none, -5) / static_cast<T>(truth(Unary::gelu_none, -5)), 1,
              40 * std::numeric_limits<T>::epsilon());
}

TYPED_TEST(Accuracy, Ends) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN(),
          normal = std::numeric_limits<T>::min();
  EXPECT_EQ(one<T>(Unary::exp2, 0), 1);
  EXPECT_EQ(one<T>(Unary::exp2, T(-0.0)), 1);
  EXPECT_EQ(one<T>(Unary::exp, 0), 1);
  const T least = std::log2(normal);
  EXPECT_EQ(one(Unary::exp2, least), normal);
  EXPECT_EQ(one(Unary::exp2, std::nextafter(least, -inf)), 0);
  EXPECT_FALSE(std::signbit(one(Unary::exp2, -inf)));
  EXPECT_EQ(one(Unary::exp2, T(std::numeric_limits<T>::max_exponent)), inf);
  EXPECT_EQ(one(Unary::exp, inf), inf);
  EXPECT_EQ(one(Unary::exp, -inf), 0);
  EXPECT_EQ(one<T>(Unary::log, 0), -inf);
  EXPECT_EQ(one(Unary::log2, inf), inf);
  EXPECT_TRUE(std::isnan(one<T>(Unary::log, -1)));
  EXPECT_TRUE(std::isnan(one(Unary::sin, inf)));
  EXPECT_TRUE(std::isnan(one(Unary::cos, -inf)));
  EXPECT_EQ(one(Unary::tanh, inf), 1);
  EXPECT_EQ(one(Unary::tanh, -inf), -1);
  EXPECT_EQ(one(Unary::erf, -inf), -1);
  EXPECT_EQ(one(Unary::sigmoid, -inf), 0);
  EXPECT_EQ(one(Unary::sigmoid, inf), 1);
  for (const Unary op : {Unary::silu, Unary::gelu_none, Unary::gelu_tanh}) {
    EXPECT_EQ(one(op, inf), inf);
    EXPECT_EQ(one(op, -inf), 0);
    EXPECT_TRUE(std::signbit(one(op, -inf)));
  }
  for (const Unary op : {Unary::sin, Unary::tanh, Unary::erf, Unary::silu, Unary::gelu_none, Unary::gelu_tanh})
    EXPECT_TRUE(std::signbit(one(op, T(-0.0)))) << static_cast<int>(op);
  for (int op = 0; op <= static_cast<int>(Unary::gelu_tanh); ++op)
    for (const T given : {nan, -nan, std::numeric_limits<T>::signaling_NaN()}) {
      const T result = one(static_cast<Unary>(op), given);
      EXPECT_EQ(std::memcmp(&result, &nan, sizeof(T)), 0) << op;
    }
}

/// Bit patterns of every kind: random, small integers, near the ends.
template <typename T>
std::vector<T> patterns(int count) {
  std::mt19937_64 random(11);
  std::vector<T> x;
  for (int i = 0; i < count; ++i) {
    if constexpr (sizeof(T) == 4) {
      x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(random())));
    } else {
      x.push_back(std::bit_cast<double>(random()));
    }
    x.push_back(static_cast<T>(static_cast<double>(random() >> 11) * 0x1p-53 * 40 - 20));
  }
  return x;
}

TYPED_TEST(Accuracy, BothBuildsGiveTheSameBits) {
  using T = TypeParam;
  if (reference_fma() == nullptr) GTEST_SKIP() << "one build only";
  const std::vector<T> x = patterns<T>(300000);
  for (int op = 0; op <= static_cast<int>(Unary::gelu_tanh); ++op) {
    const auto a = run(static_cast<Unary>(op), x, *reference_generic()),
               b = run(static_cast<Unary>(op), x, *reference_fma());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << op;
  }
}

TEST(Reference, NamesItsBuilds) {
  EXPECT_STREQ(reference_generic()->build, "generic");
  EXPECT_STREQ(reference().build, reference_fma() != nullptr ? "fma" : "generic");
}

}  // namespace
}  // namespace attn::kernels
