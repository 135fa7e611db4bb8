// tests/attention/score_expression_test.cc: score expressions by themselves: text, mistakes, derivatives.
#include "attention/random_scores.h"
#include "attention/truth.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

const auto s = ScoreExpression::score(), b = ScoreExpression::batch(), h = ScoreExpression::head(),
           i = ScoreExpression::row(), j = ScoreExpression::key();

using Tensors = std::vector<std::pair<std::string, Tensor>>;
const Tensors& tensors() {
  static const Tensors all{{"slope", ones({4})},
                           {"t2", ones({4, 9})},
                           {"bucket", zeros({9}, Dtype::i64)},
                           {"flag", zeros({9}, Dtype::boolean)},
                           {"c", ones({})}};
  return all;
}
std::string again(const std::string& text) { return ScoreExpression::parse(text, tensors()).to_string(); }

TEST(ScoreExpression, ReadsBackWhatItWrites) {
  for (const char* text : {"s",
                           "s - slope[h] * (i - j)",
                           "20.0 * tanh(s / 20.0)",
                           "where(i >= j, s, -inf)",
                           "where((i - j <= 4) & (j % 2 == 0) | ~flag[bucket[0]], s, 0.5 * s)",
                           "s + t2[h, min(max(i - j, 0), 8)]",
                           "-s",
                           "-(s + 1.5)",
                           "s - (1 - s)",
                           "s - 1 - s",
                           "s / (2 * s)",
                           "s / 2 * s",
                           "i // 4 % 3 * 1.5",
                           "i(bottom_right) - j + s",
                           "i(top_left) * 1e-07",
                           "c * s",
                           "abs(-s) + exp(s) - max(s, c)",
                           "s * (-2)",
                           "b + h + 0.0",
                           "~(s < 1.0)",
                           "((s < 1.0) | (s > 2.0)) & (s != 1.5)"}) {
    std::string condition = text;
    EXPECT_EQ(again(text), condition);
    EXPECT_EQ(again(again(text)), again(text));
  }
  EXPECT_EQ(again(" ( s )-slope [ h ]*( i-j ) "), "s - slope[h] * (i - j)");
  EXPECT_EQ(again("s--2"), "s - (-2)");
  EXPECT_EQ(again("--s"), "- -s");
  EXPECT_EQ(again("~~(i < j)"), "~~(i < j)");
  // as deep as a text may be: what is written can be read again
  const std::string signs = again(std::string(99, '-') + "s");
  EXPECT_EQ(again(signs), signs);
  EXPECT_EQ(again("1.50e0*s"), "1.5 * s");
  for (unsigned seed = 1; seed <= 100; ++seed) {  // the numbers it gives are those of what was written
    RandomScores<double> random(seed, 2, 3, true);
    const ScoreExpression x = random.tree(4).expression;
    Tensors named;  // one name a tensor
    const std::string text = x.to_string();
    if (text.find("table") != std::string::npos) continue;
    EXPECT_EQ(ScoreExpression::parse(text).to_string(), text);
    const Tensor scores = normal({2, 3, 5, 7}, seed, Dtype::f64);
    EXPECT_TRUE(bits_equal(ScoreExpression::parse(text).apply(scores), x.apply(scores))) << text;
  }
}

TEST(ScoreExpression, LambdasOperatorsAndTextMakeTheSame) {
  const ScoreTable slope(ones({4}), "slope");
  const ScoreExpression traced = [&](auto score, auto, auto head, auto row, auto key) {
    return score - slope(head) * (row - key);
  };
  EXPECT_EQ(traced.to_string(), "s - slope[h] * (i - j)");
  EXPECT_EQ((s - slope(h) * (i - j)).to_string(), traced.to_string());
  EXPECT_EQ(traced.aligned(Align::bottom_right).to_string(), "s - slope[h] * (i(bottom_right) - j)");
  EXPECT_TRUE(ScoreExpression().empty());
  EXPECT_EQ(ScoreExpression().to_string(), "s");
}

TEST(ScoreExpression, TheLeastIntegerHasAnOpposite) {
  const std::int64_t least = std::numeric_limits<std::int64_t>::min(), most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ((-ScoreExpression(least)).to_string(), "-(-9223372036854775808)");
  EXPECT_EQ((-ScoreExpression(most)).to_string(), "-9223372036854775807");
  EXPECT_EQ((-ScoreExpression(-most)).to_string(), "9223372036854775807");
  const ScoreExpression one = 1, two = 2;
  const Tensor x = ones({1, 1, 2, 4});
  // every operation of integers is within 2^53 or refused
  for (const ScoreExpression& whole :
       {-ScoreExpression(least), abs(ScoreExpression(least)), least - one, most + one, most * two, least % two,
        floor_divide(least, ScoreExpression(-1)), min(least, one), max(most, one)})
    EXPECT_NE(error_of<ValueError>([&] {
                attention(x, x, x, {.score_mod = ScoreExpression::score() + whole});
              }).find("whole numbers must stay within 2^53"),
              std::string::npos)
        << whole;
}

TEST(ScoreExpression, TextThatIsNotUnderstoodIsShown) {
  const auto text = [](const std::string& given) {
    return error_of<ValueError>([&] { ScoreExpression::parse(given, tensors()); });
  };
  EXPECT_EQ(text("s - q"),
            "ScoreExpression::parse: \"s - q\": column 5, at \"q\": one of s, b, h, i, j, a number, exp, tanh, abs, "
            "min, max, where, slope, t2, bucket, flag, c was expected");
  EXPECT_EQ(text("s - q[h]"),
            "ScoreExpression::parse: \"s - q[h]\": column 5, at \"q[h]\": there is no tensor q; there are slope, t2, "
            "bucket, flag, c");
  EXPECT_EQ(text("s +"),
            "ScoreExpression::parse: \"s +\": column 4, at the end: one of s, b, h, i, j, a number, exp, tanh, abs, "
            "min, max, where, slope, t2, bucket, flag, c was expected");
  EXPECT_EQ(text("s s"), "ScoreExpression::parse: \"s s\": column 3, at \"s\": an operator was expected");
  EXPECT_EQ(text("(s"), "ScoreExpression::parse: \"(s\": column 3, at the end: a closing ) was expected");
  EXPECT_EQ(text("slope[h"), "ScoreExpression::parse: \"slope[h\": column 8, at the end: a closing ] was expected");
  EXPECT_EQ(text("s + slope"),
            "ScoreExpression::parse: \"s + slope\": column 5, at \"slope\": slope [4] is looked up with 0 indices; it "
            "needs 1");
  EXPECT_EQ(
      text("t2[h]"),
      "ScoreExpression::parse: \"t2[h]\": column 1, at \"t2[h]\": t2 [4, 9] is looked up with 1 index; it needs 2");
  EXPECT_EQ(text("slope[s]"),
            "ScoreExpression::parse: \"slope[s]\": column 1, at \"slope[s]\": a lookup takes whole numbers; \"s\" is a "
            "number");
  EXPECT_EQ(text("max(s)"), "ScoreExpression::parse: \"max(s)\": column 1, at \"max(s)\": max takes 2 operands, not 1");
  EXPECT_EQ(text("exp s"), "ScoreExpression::parse: \"exp s\": column 5, at \"s\": exp(...) was expected");
  EXPECT_EQ(text("i(left)"),
            "ScoreExpression::parse: \"i(left)\": column 3, at \"left)\": top_left or bottom_right was expected");
  EXPECT_EQ(text("i < j < 3"), "ScoreExpression::parse: \"i < j < 3\": column 7, at \"< 3\": an operator was expected");
  EXPECT_EQ(text(std::string("s * 2\0 + h", 10)),
            "ScoreExpression::parse: \"s * 2\": column 6 is a NUL byte; the text must have none");
  EXPECT_EQ(text("1e999"),
            "ScoreExpression::parse: \"1e999\": column 1, at \"1e999\": a number within the range of f64 was expected");
  EXPECT_NE(text(std::string(100000, '(')).find("it is nested more than 100 deep"), std::string::npos);
  EXPECT_NE(text(std::string(100000, '-')).find("it is nested more than 100 deep"), std::string::npos);
  std::string sum = "s";
  for (int n = 0; n < 2000; ++n) sum += "+s";
  EXPECT_NE(text(sum).find("more than 1000 levels deep"), std::string::npos);
}

TEST(ScoreExpression, KindsThatDoNotFitSaySo) {
  EXPECT_EQ(error_of<ValueError>([] { (void)(s + (i < j)); }),
            "ScoreExpression: + takes numbers; \"i < j\" is a condition: where(condition, 1.0, 0.0) is a number");
  EXPECT_EQ(error_of<ValueError>([] { (void)where(s, s, s); }),
            "ScoreExpression: where takes a condition first; \"s\" is a number");
  EXPECT_EQ(error_of<ValueError>([] { (void)(s % 2); }), "ScoreExpression: % takes whole numbers; \"s\" is a number");
  EXPECT_EQ(error_of<ValueError>([] { (void)floor_divide(i, 2.0); }),
            "ScoreExpression: // takes whole numbers; \"2.0\" is a number");
  EXPECT_EQ(error_of<ValueError>([] { (void)((i < j) & i); }),
            "ScoreExpression: & takes conditions; \"i\" is a whole number");
  EXPECT_EQ(error_of<ValueError>([] { (void)(s + ScoreExpression()); }), "ScoreExpression: an operand of + is empty");
  EXPECT_EQ(error_of<ValueError>([] { ScoreTable(Tensor(), "slope"); }), "ScoreTable: slope is undefined");
  EXPECT_EQ(error_of<ShapeError>([] { ScoreTable(ones({1, 1, 1, 1, 1}), "t"); }),
            "ScoreTable: t has shape [1, 1, 1, 1, 1]; its rank must be at most 4");
  EXPECT_EQ(error_of<ValueError>([] { (void)s.tensor(); }), "ScoreExpression: \"s\" is not a lookup");
  EXPECT_EQ(error_of<ValueError>([] { (void)derivative(s, i); }),
            "derivative: by \"i\"; it must be s or the lookup of a number");
  EXPECT_EQ(error_of<ValueError>([] { (void)derivative(s < 1, s); }),
            "derivative: \"s < 1\" is a condition; it must be a number");
}

template <typename E>
std::string of_call(const ScoreExpression& e, std::int64_t rows = 5, std::int64_t keys = 5,
                    AttentionOptions options = {}) {
  options.score_mod = e;
  return error_of<E>([&] { attention(ones({2, 4, rows, 8}), ones({2, 4, keys, 8}), ones({2, 4, keys, 8}), options); });
}

TEST(ScoreExpression, WhatDoesNotFitTheCallSaysSo) {
  const ScoreTable eight(ones({8}), "slope"), nine(ones({9}), "t"), f64(ones({4}, Dtype::f64), "t"),
      far(full({2}, std::int64_t{1} << 40, Dtype::i64), "n");
  EXPECT_EQ(of_call<ShapeError>(s + eight(h)),
            "attention: score_mod looks up slope [8] by h in dim 0; that dim must be 4, one for each query head");
  EXPECT_EQ(of_call<ShapeError>(s + eight(b)),
            "attention: score_mod looks up slope [8] by b in dim 0; that dim must be 2, one for each batch item");
  EXPECT_EQ(of_call<ValueError>(s + nine(i - j)),
            "attention: score_mod: the index \"i - j\" of t [9] goes from -4 to 4; it must stay from 0 to 8 (min and "
            "max hold it there)");
  EXPECT_EQ(of_call<ValueError>(s + nine(i + j + 1)),
            "attention: score_mod: the index \"i + j + 1\" of t [9] goes from 1 to 9; it must stay from 0 to 8 (min "
            "and max hold it there)");
  EXPECT_EQ(
      of_call<DtypeError>(s * f64(h)),
      "attention: score_mod looks up t, which is f64; scores are computed in f32, so it must be f32, bf16 or f16");
  EXPECT_EQ(of_call<ValueError>(s * floor_divide(i, j)),
            "attention: score_mod: the divisor of \"i // j\" goes from 0 to 4; it must not be 0");
  EXPECT_EQ(of_call<ValueError>(s + far(0) * far(1)),
            "attention: score_mod: \"n[0] * n[1]\" can reach 1.21e+24; whole numbers must stay within 2^53");
  EXPECT_EQ(of_call<ValueError>(i < j),
            "attention: score_mod \"i < j\" is a condition; it must be a number (where(condition, s, -inf) hides)");
  EXPECT_EQ(of_call<ShapeError>(s + i - j, 2, 3),
            "attention: score_mod's i does not say how 2 rows stand against 3 keys; it needs an alignment, top_left or "
            "bottom_right\n"
            "  top_left    bottom_right\n  ■ · ·       ■ ■ ·\n  ■ ■ ·       ■ ■ ■");
  // positions, not indices, and lengths that exist
  const AttentionOptions short_keys{.key_lengths = integers({3, 2})};
  EXPECT_EQ(of_call<ValueError>(s + nine(j + 7), 5, 5, short_keys),
            "attention: score_mod: the index \"j + 7\" of t [9] goes from 7 to 9; it must stay from 0 to 8 (min and "
            "max hold it there)");
  EXPECT_NO_THROW(attention(ones({2, 4, 5, 8}), ones({2, 4, 5, 8}), ones({2, 4, 5, 8}),
                            {.score_mod = s + nine(j + 6), .key_lengths = integers({3, 2})}));
  EXPECT_NO_THROW(
      attention(ones({2, 4, 0, 8}), ones({2, 4, 0, 8}), ones({2, 4, 0, 8}), {.score_mod = s + nine(i - j)}));
  ScoreExpression many = s;
  const Tensor numbers = normal({4, 700}, 1);
  for (std::int64_t n = 0; n < 450; ++n) many = many + ScoreTable(numbers, "t")(h, n) * exp(0.5 * (j % (n + 2)));
  EXPECT_EQ(of_call<ValueError>(many), "attention: score_mod needs more than 1024 values at once");
}

TEST(ScoreExpression, SharedPartsAreOneValueHoweverOften) {
  ScoreExpression x = s;
  for (int n = 0; n < 100; ++n) x = 0.5 * (x + x);  // 2^100 leaves, 100 sums
  const Tensor scores = normal({1, 1, 4, 4}, 1);
  EXPECT_TRUE(bits_equal(x.apply(scores), scores));
  EXPECT_LT(x.to_string().size(), 20000u);
  EXPECT_TRUE(bits_equal(derivative(x, s).apply(scores), ones({1, 1, 4, 4})));
}

TEST(ScoreExpression, LookupsAreNamedOnce) {
  const ScoreTable slope(ones({4}), "slope"), bucket(zeros({9}, Dtype::i64), "bucket");
  const ScoreExpression e = s * slope(h) - slope(h) * slope(bucket(j));
  const std::vector<ScoreExpression> lookups = e.lookups();
  ASSERT_EQ(lookups.size(), 2u);
  EXPECT_EQ(lookups[0].to_string(), "slope[h]");
  EXPECT_EQ(lookups[1].to_string(), "slope[bucket[j]]");
  EXPECT_EQ(lookups[1].index()[0].to_string(), "bucket[j]");
  EXPECT_EQ(lookups[1].tensor().sizes(), Dims{4});
}

TEST(ScoreExpression, DerivativesReadAsByHand) {
  const ScoreTable slope(ones({4}), "slope"), c(ones({}), "c");
  EXPECT_EQ(derivative(s - slope(h) * (i - j), s).to_string(), "1.0");
  EXPECT_EQ(derivative(s - slope(h) * (i - j), slope(h)).to_string(), "-(i - j)");
  EXPECT_EQ(derivative(c() * s, c()).to_string(), "s");
  EXPECT_EQ(derivative(where(i >= j, s * s, 0.0), s).to_string(),
            "where(i >= j, 1.0, 0.0) * s + where(i >= j, 1.0, 0.0) * s");
  EXPECT_EQ(derivative(i - j, s).to_string(), "0.0");
  EXPECT_EQ(derivative(s, slope(h)).to_string(), "0.0");
  EXPECT_EQ(derivative(ScoreExpression(), s).to_string(), "1.0");
  const Tensor at{tensor<double>({-1, 0, 1, 2}, {1, 1, 1, 4})};
  EXPECT_EQ(derivative(max(s, 0), s).apply(at).to_vector(), (std::vector<double>{0, 0.5, 1, 1}));
  EXPECT_EQ(derivative(min(s, 1), s).apply(at).to_vector(), (std::vector<double>{1, 1, 0.5, 0}));
  EXPECT_EQ(derivative(abs(s), s).apply(at).to_vector(), (std::vector<double>{-1, 0, 1, 1}));
  EXPECT_EQ(derivative(max(s, s), s).apply(at).to_vector(), (std::vector<double>{1, 1, 1, 1}));
}

/// Central differences in f64, wherever both sides agree that the function is smooth there.
void expect_slope(const Tensor& analytic, const Tensor& above, const Tensor& below, const Tensor& middle, double step) {
  const auto d = analytic.to_vector(), up = above.to_vector(), down = below.to_vector(), at = middle.to_vector();
  std::size_t smooth = 0;
  for (std::size_t n = 0; n < d.size(); ++n) {
    const double right = (up[n] - at[n]) / step, left = (at[n] - down[n]) / step, both = (up[n] - down[n]) / (2 * step);
    const double size = 1 + std::abs(both) + std::abs(at[n]);
    if (std::abs(right - left) > 1e-3 * size) continue;  // a corner between
    ++smooth;
    // second differences bound what the central difference itself misses; rounding: eps |f| / step
    ASSERT_LE(std::abs(d[n] - both), 2 * std::abs(right - left) + 1e-6 * size) << "element " << n;
  }
  EXPECT_GT(smooth * 10, d.size() * 6);
}

TEST(ScoreExpression, DerivativesAreTheSlopesOfFiniteDifferences) {
  const double step = 1e-5;
  int by_tensor = 0;
  for (unsigned seed = 1; seed <= 150; ++seed) {
    RandomScores<double> random(seed, 2, 3, true);
    const ScoreExpression x = random.tree(static_cast<int>(seed % 5) + 1).expression;
    SCOPED_TRACE(::testing::Message() << seed << ": " << x.to_string());
    const Tensor scores = normal({2, 3, 6, 11}, seed, Dtype::f64), middle = x.apply(scores);
    expect_slope(derivative(x, s).apply(scores), x.apply(add(scores, step)), x.apply(add(scores, -step)), middle, step);
    // every number of a tensor moved by the same step: the sum of the derivatives by its lookups
    for (const ScoreExpression& of : x.lookups()) {
      Tensor total;
      for (const ScoreExpression& by : x.lookups()) {
        if (by.tensor().impl() != of.tensor().impl()) continue;
        const Tensor one = derivative(x, by).apply(scores);
        total = total.defined() ? total + one : one;
      }
      const Tensor values = of.tensor();
      values.add_(full({}, step, Dtype::f64));
      const Tensor above = x.apply(scores);
      values.add_(full({}, -2 * step, Dtype::f64));
      const Tensor below = x.apply(scores);
      values.add_(full({}, step, Dtype::f64));
      expect_slope(total, above, below, middle, step);
      ++by_tensor;
    }
  }
  EXPECT_GT(by_tensor, 100);
}

}  // namespace
}  // namespace attn::testing
