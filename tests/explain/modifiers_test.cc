// tests/explain/modifiers_test.cc: what stands around the softmax, the weights that the call returns, packed sentences
// and caches as steps.
#include <attn/explain.h>
#include <attn/ops.h>

#include "explain/utf8.h"

#include "runtime/format.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <sstream>

namespace attn {
namespace {

const std::string kText = "Life is short, eat dessert first";

/// f(previous value, head, query, key) of every pair, in double, against the step.
template <typename F>
void expect_step(const Explanation& told, const char* step, const char* previous, F&& f) {
  const std::vector<double> ours = told.step(step).values.to_vector(), before = told.step(previous).values.to_vector();
  const std::int64_t rows = told.step(step).values.size(-2), keys = told.step(step).values.size(-1);
  ASSERT_EQ(ours.size(), before.size());
  for (std::size_t n = 0; n < ours.size(); ++n) {
    const auto at = static_cast<std::int64_t>(n);
    const double expected = f(before[n], at / (rows * keys), at / keys % rows, at % keys);
    EXPECT_NEAR(ours[n], expected, 4 * 0x1p-23 * std::max(1.0, std::abs(expected))) << step << " " << n;
  }
}

/// Rows of weights, and what a sink takes, add up to 1; their mean of the values is the context.
void expect_whole(const Explanation& told, const char* weights) {
  const Tensor w = told.step(weights).values.to(Dtype::f64), v = told.step("v").values.to(Dtype::f64),
               context = told.step("context").values.to(Dtype::f64);
  const std::vector<double> difference = (matmul(w, v) - context).to_vector();
  for (const double x : difference) EXPECT_NEAR(x, 0, 1e-6);
}

TEST(Around, EveryStageIsItsFormulaOfTheOneBefore) {
  ExplainOptions options;
  options.heads = 2;
  options.mask = Mask::causal();
  options.softcap = 1.5;
  options.bias = ExplainBias::alibi;
  options.score_mod = ScoreExpression::parse("where(j == 0, s + 0.5, s)");
  options.temperature = 0.5;
  options.sink = 0.25;
  const Explanation told = explain(kText, options);
  expect_step(told, "capped", "scaled", [](double s, auto, auto, auto) { return 1.5 * std::tanh(s / 1.5); });
  expect_step(told, "bias", "scaled", [](double, auto h, auto i, auto j) {
    return std::exp2(-4.0 * static_cast<double>(h + 1)) * static_cast<double>(j - i);
  });
  const std::vector<double> bias = told.step("bias").values.to_vector();
  expect_step(told, "biased", "capped", [&](double s, auto h, auto i, auto j) {
    return s + bias[static_cast<std::size_t>((h * 6 + i) * 6 + j)];
  });
  expect_step(told, "modified", "biased", [](double s, auto, auto, auto j) { return j == 0 ? s + 0.5 : s; });
  expect_step(told, "tempered", "modified", [](double s, auto, auto, auto) { return s / 0.5; });
  const std::vector<double> sums = told.step("weights").values.to(Dtype::f64).sum({-1}).to_vector(),
                            sink = told.step("sink").values.to_vector();
  for (std::size_t n = 0; n < sums.size(); ++n) EXPECT_NEAR(sums[n] + sink[n], 1, 1e-6);
  expect_whole(told, "weights");
  // softmax of the last stage, by hand
  const std::vector<double> last = told.step("tempered").values.to_vector(),
                            weights = told.step("weights").values.to_vector();
  for (std::size_t row = 0; row < 12; ++row) {
    double total = std::exp(0.25);
    for (std::size_t j = 0; j <= row % 6; ++j) total += std::exp(last[row * 6 + j]);
    for (std::size_t j = 0; j < 6; ++j)
      EXPECT_NEAR(weights[row * 6 + j], j <= row % 6 ? std::exp(last[row * 6 + j]) / total : 0, 1e-6);
  }
}

/// The slopes are those of the paper for any number of heads, and the formula says them.
TEST(Around, AlibiSaysItsSlopes) {
  ExplainOptions options;
  options.heads = 3;
  options.bias = ExplainBias::alibi;
  const Explanation ahead = explain(kText, options);
  EXPECT_EQ(ahead.step("bias").formula,
            "slope (key - query), slope = 2^(-8 (h + 1) / 2) for h < 2, else 2^(-8 (2 h - 3) / 4)");
  const auto slope = [](auto h) { return h == 0 ? 0.0625 : h == 1 ? 0.00390625 : 0.25; };
  expect_step(ahead, "bias", "scaled",
              [&](double, auto h, auto i, auto j) { return slope(h) * static_cast<double>(j - i); });
  EXPECT_TRUE(ahead.step("bias").note.ends_with("without a causal mask, the farther ahead, the more is added"))
      << ahead.step("bias").note;
  options.mask = Mask::prefix(2);  // token 0 sees token 1, which comes after it
  EXPECT_TRUE(explain(kText, options).step("bias").note.ends_with("the farther ahead, the more is added"));
  options.mask = Mask::window(3, 0);
  EXPECT_EQ(explain(kText, options).step("bias").note, "ALiBi: the farther back, the more is taken off");
  options.mask = {};
  options.bias = ExplainBias::alibi_symmetric;
  const Explanation both = explain(kText, options);
  EXPECT_EQ(both.step("bias").formula,
            "slope (-|key - query|), slope = 2^(-8 (h + 1) / 2) for h < 2, else 2^(-8 (2 h - 3) / 4)");
  expect_step(both, "bias", "scaled",
              [&](double, auto h, auto i, auto j) { return -slope(h) * static_cast<double>(i > j ? i - j : j - i); });
}

TEST(Around, AQueryByHandGoesThroughTheStages) {
  ExplainOptions options;
  options.softcap = 1.5;
  options.bias = ExplainBias::relative;
  options.temperature = 2;
  options.sink = 3;
  options.query = 2;
  const Explanation told = explain(kText, options);
  const ExplainStep& stages = told.step("query_scores");
  const std::vector<std::string> names = stages.columns[0];
  for (const char* name : {"cap", "+ bias", "/ 2", "− max", "e^", "/ total"})
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  const std::vector<double> values = stages.values.to_vector(), weights = told.step("weights").values.to_vector();
  double total = std::exp(3 - 3);  // the sink is the largest
  const std::size_t n = names.size();
  for (std::size_t j = 0; j < 6; ++j) total += values[j * n + n - 2];
  for (std::size_t j = 0; j < 6; ++j) {
    EXPECT_NEAR(values[j * n + n - 2] / total, weights[2 * 6 + j], 1e-6);
    EXPECT_EQ(values[j * n + n - 1], weights[2 * 6 + j]);
  }
}

TEST(Around, AnExpressionThatHidesSaysSo) {
  ExplainOptions options;
  options.score_mod = ScoreExpression::parse("where((i - j) % 2 == 0, s, -inf)");
  const Explanation told = explain(kText, options);
  for (std::size_t n = 0; n < 36; ++n)
    EXPECT_EQ(told.step("weights").hidden[n], (n / 6 + n % 6) % 2 == 0 ? Hidden::visible : Hidden::score);
  EXPECT_NE(to_text(told).find("its score is -inf"), std::string::npos);
  EXPECT_NE(to_json(told).find("\"score\""), std::string::npos);
}

TEST(Around, DropoutShowsTheWeightsBeforeAndAfter) {
  ExplainOptions options;
  options.dropout_p = 0.4;
  const Explanation told = explain(kText, options);
  const std::vector<double> before = told.step("weights").values.to_vector(),
                            after = told.step("dropped").values.to_vector();
  int kept = 0;
  for (std::size_t n = 0; n < before.size(); ++n)
    if (after[n] != 0) {
      EXPECT_NEAR(after[n], before[n] / 0.6, 1e-6);
      ++kept;
    }
  EXPECT_TRUE(kept > 8 && kept < 34) << kept;
  expect_whole(told, "dropped");
  EXPECT_EQ(told.step("dropped").source, "Philox, seed 123");
}

TEST(Around, TheWeightsAskedForAreShownAndNoOthers) {
  ExplainOptions options;
  options.heads = 2;
  options.mask = Mask::causal();
  options.weights = Weights::column_sums;
  const std::vector<double> weights = explain(kText, options).step("weights").values.to_vector(),
                            columns = explain(kText, options).step("column_sums").values.to_vector();
  for (std::size_t c = 0; c < 12; ++c) {
    double sum = 0;
    for (std::size_t i = 0; i < 6; ++i) sum += weights[(c / 6 * 6 + i) * 6 + c % 6];
    EXPECT_NEAR(columns[c], sum, 1e-6);
  }
  options.weights = Weights::head_average;
  const std::vector<double> average = explain(kText, options).step("head_average").values.to_vector();
  for (std::size_t n = 0; n < 36; ++n) EXPECT_NEAR(average[n], (weights[n] + weights[36 + n]) / 2, 1e-6);
  options.weights = Weights::top_k(2);
  const Explanation top = explain(kText, options);
  const ExplainStep& largest = top.step("top_k");
  const std::vector<double> some = largest.values.to_vector();
  for (std::size_t row = 0; row < 12; ++row) {
    double least_shown = 2, most_left = 0;
    int shown = 0;
    for (std::size_t n = row * 6; n < row * 6 + 6; ++n)
      if (largest.hidden[n] == Hidden::visible) {
        EXPECT_EQ(some[n], weights[n]);
        least_shown = std::min(least_shown, weights[n]);
        ++shown;
      } else {
        most_left = std::max(most_left, weights[n]);
      }
    EXPECT_EQ(shown, row % 6 == 0 ? 1 : 2);
    EXPECT_GE(least_shown, most_left);
  }
  options.weights = Weights::rows(tensor<std::int64_t>({4, 1}));
  const ExplainStep rows = explain(kText, options).step("rows");
  for (std::size_t n = 0; n < 72; ++n)
    if (n / 6 % 6 == 4 || n / 6 % 6 == 1) {
      EXPECT_EQ(rows.hidden[n], n % 6 > n / 6 % 6 ? Hidden::causal : Hidden::visible);
    } else {
      EXPECT_EQ(rows.hidden[n], Hidden::not_returned);
    }
}

TEST(Around, PackedAndCachedSentencesKeepTheirBits) {
  for (const bool cross : {false, true}) {
    ExplainOptions options;
    options.heads = 2;
    options.mask = Mask::causal(cross ? Align::top_left : Align::unset);
    options.bias = ExplainBias::alibi;
    options.dropout_p = 0.2;
    options.packed = true;
    options.cache = KvStorage::same;
    if (cross)
      options.to =
          "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen";
    const Explanation told = cross ? explain(kText, options) : explain_batch({kText, "so what", "eat first"}, options);
    for (const char* name : {"packed", "cached"})
      for (const std::int64_t same : told.step(name).values.to_int_vector()) EXPECT_EQ(same, 1) << name;
    if (!cross) { EXPECT_EQ(told.step("packed").formula, "cu_seqlens 0 6 8 10"); }
    EXPECT_NE(to_text(told).find("✓ the same bits"), std::string::npos);
  }
}

TEST(Around, EightBitsShowWhatTheyCost) {
  ExplainOptions options;
  options.cache = KvStorage::int8;
  const Explanation told = explain(kText, options);
  for (const auto& [name, stored] : {std::pair{"k", "k_int8"}, {"v", "v_int8"}}) {
    const std::vector<double> x = told.step(name).values.to_vector(), y = told.step(stored).values.to_vector();
    const auto width = static_cast<std::size_t>(told.step(name).values.size(-1));
    for (std::size_t n = 0; n < x.size(); ++n) {
      double most = 0;
      for (std::size_t d = n / width * width; d < (n / width + 1) * width; ++d) most = std::max(most, std::abs(x[d]));
      EXPECT_LE(std::abs(x[n] - y[n]), most / 127 * 0.5001) << name;
    }
  }
  const std::vector<double> exact = told.step("context").values.to_vector(),
                            rounded = told.step("context_int8").values.to_vector();
  double most = 0, difference = 0;
  for (std::size_t n = 0; n < exact.size(); ++n)
    most = std::max(most, std::abs(exact[n])), difference = std::max(difference, std::abs(exact[n] - rounded[n]));
  EXPECT_LT(difference, 0.02 * most);
  EXPECT_GT(difference, 0);
}

TEST(Around, EveryDrawingHoldsEveryStep) {
  ExplainOptions options;
  options.heads = 2;
  options.softcap = 5;
  options.bias = ExplainBias::relative;
  options.score_mod = ScoreExpression::parse("s - 0.1 * j");
  options.temperature = 2;
  options.sink = 0;
  options.dropout_p = 0.1;
  options.weights = Weights::top_k(3);
  options.packed = true;
  options.cache = KvStorage::int8;
  options.query = 1;
  for (const Language language : {Language::en, Language::zh}) {
    options.language = language;
    const Explanation told = explain(kText, options);
    EXPECT_EQ(nlohmann::json::parse(to_json(told)).at("steps").size(), told.steps.size());
    const std::string svg = to_svg(told);
    for (const ExplainStep& step : told.steps) {
      EXPECT_FALSE(step.title.empty()) << step.name;
      EXPECT_NE(svg.find(step.title), std::string::npos) << step.name;
    }
    for (const int width : {60, 100}) {
      TextOptions draw;
      draw.width = width;
      const std::string text = to_text(told, draw);
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) EXPECT_LE(explain_detail::display_width(line), width) << line;
    }
  }
}

}  // namespace
}  // namespace attn
