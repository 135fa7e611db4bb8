// tests/attention/printing_test.cc: masks, biases, expressions and plans on a stream.
#include <attn/attention.h>
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <sstream>

namespace attn::testing {
namespace {

template <typename T>
std::string printed(const T& value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

TEST(Printing, Masks) {
  EXPECT_EQ(printed(Mask()), "all");
  EXPECT_EQ(printed(Mask::causal(Align::top_left) | Mask::prefix(2)), "causal(top_left) | prefix(2)");
}

TEST(Printing, Biases) {
  EXPECT_EQ(printed(Bias()), "");
  const Bias sum = Bias::alibi(ones({8}), Align::bottom_right) + Bias::dense(ones({5, 9}, Dtype::f64)) +
                   Bias::relative(ones({32, 8}), false);
  EXPECT_EQ(printed(sum),
            "alibi(f32 [8], bottom_right) + dense(f64 [5, 9]) + relative(f32 [32, 8], max_distance 128, one way)");
  EXPECT_EQ(printed(Bias::alibi(ones({8}), Align::top_left, true)), "alibi(f32 [8], top_left, symmetric)");
  EXPECT_EQ(printed(Bias::relative(ones({32, 8}), true, 64, Align::top_left)),
            "relative(f32 [32, 8], top_left, max_distance 64)");
}

TEST(Printing, Expressions) {
  const ScoreExpression decay = [](auto s, auto, auto, auto i, auto j) { return s - (i - j); };
  EXPECT_EQ(printed(decay), "s - (i - j)");
}

// An error escapes bytes that are not UTF-8; whole characters are shown as they are.
TEST(Printing, ErrorsCutANotationBetweenCharacters) {
  for (int before = 0; before < 3; ++before) {
    std::string text(static_cast<std::size_t>(before), ' ');
    for (int i = 0; i < 100; ++i) text += "字";
    for (const bool mask : {true, false}) {
      try {
        mask ? void(Mask::parse(text)) : void(ScoreExpression::parse(text));
        ADD_FAILURE() << "parsed";
      } catch (const Error& error) {
        const std::string what = error.what();
        EXPECT_EQ(what.find("\\x"), std::string::npos) << what;
        EXPECT_NE(what.find("字"), std::string::npos) << what;
      }
    }
  }
}

TEST(Printing, PlansAreTheirSteps) {
  EXPECT_EQ(printed(Plan()), "no kernel");
  const Tensor x = ones({1, 1, 2, 4});
  const Plan plan = attention(x, x, x).plan;
  std::string expected;
  for (const PlanStep& step : plan.steps())
    expected += (expected.empty() ? "" : "; ") + step.kernel + ": " + step.reason;
  EXPECT_EQ(printed(plan), expected);
}

}  // namespace
}  // namespace attn::testing
