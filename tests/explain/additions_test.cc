// tests/explain/additions_test.cc: the steps of relative products, other normalizers and functions of the weight: their
// numbers are the library's, and follow from each other by the formulas that they show; how they are drawn and refused.
#include <attn/explain_mechanisms.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/folder.h"
#include "support/golden.h"
#include "support/places.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace attn::testing {
namespace {

const std::string text = "Life is short , eat dessert first";
const std::vector<std::string> texts{"Life is short", text, "eat dessert"};

/// A step's values as [B, H, rows, columns].
Tensor of(const Explanation& e, const std::string& name) {
  const ExplainStep& step = e.step(name);
  const std::int64_t rows = step.shape[step.shape.size() - 2];
  return step.values.reshape({step.batch, step.heads, rows, step.shape.back()});
}
/// A parameter as [heads, rows, columns]; undefined if there is none.
Tensor parameter(const Explanation& e, const std::string& name) {
  for (const ExplainStep& step : e.parameters)
    if (step.name == name) return step.values.dim() == 2 ? step.values.unsqueeze(0) : step.values;
  return {};
}
bool has_step(const Explanation& e, const std::string& name) {
  return std::any_of(e.steps.begin(), e.steps.end(), [&](const ExplainStep& step) { return step.name == name; });
}

/// Products and sums in another order: a few units in the last place of the largest number. Masked pairs are left out.
void expect_near(const Explanation& e, const std::string& name, const Tensor& expected) {
  const Tensor given = of(e, name);
  ASSERT_EQ(to_string(given.sizes()), to_string(expected.sizes())) << name;
  const std::vector<double> x = given.to_vector(), y = expected.to_vector();
  const std::vector<Hidden>& hidden = e.step(name).hidden;
  double largest = 0;
  for (const double value : y)
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  for (std::size_t n = 0; n < x.size(); ++n)
    if (hidden.empty() || hidden[n] == Hidden::visible) {
      EXPECT_NEAR(x[n], y[n], 16 * 0x1p-23 * largest) << name << " " << n;
    }
}

/// The bias of the products, from the tables and vectors that the explanation shows.
Bias bias_of(const Explanation& e, const std::vector<ExplainRelative>& products, const std::string& q,
             const std::string& k) {
  Bias bias;
  for (std::size_t n = 0; n < products.size(); ++n) {
    const std::string end = n == 0 ? "" : "_" + std::to_string(n + 1);
    RelativeProductOptions as{.of_keys = products[n].of_keys, .scale = products[n].scale};
    if (products[n].operand)
      as.operand = of(e, products[n].of_keys ? k : q) + parameter(e, "relative_bias" + end).unsqueeze(0);
    bias = bias + Bias::relative_product(parameter(e, "relative_table" + end), products[n].index, as);
  }
  return bias;
}

TEST(ExplainRelative, ScoresAndContextAreTheLibrarysAndFollowFromTheSteps) {
  const char* const specs[] = {"distance(2, 2)",
                               "distance(5, 0).reversed() operand",
                               "log_buckets(4, 8) of_keys",
                               "distance(3, 1) of_keys operand scale=0.5",
                               "picture_rows(2, 3) scale=1 + picture_columns(3) scale=1",
                               "log_buckets(4, 8) + log_buckets(4, 8).reversed() of_keys"};
  for (const char* spec : specs)
    for (int form = 0; form < 4; ++form) {
      SCOPED_TRACE(::testing::Message() << spec << " form " << form);
      const std::vector<ExplainRelative> products = ExplainRelative::parse(spec);
      ExplainOptions options{.heads = form == 0 ? 1 : 2, .dk = 4, .query = 1};
      AttentionOptions call;
      if (form % 2 == 1) options.mask = call.mask = Mask::causal();
      if (form >= 2) {
        options.positions = Positions::rotary;
        options.softcap = call.softcap = 1.5;
        options.temperature = call.temperature = 0.7;
        options.score_mod = call.score_mod = ScoreExpression::parse("s - 0.25 * (i - j)");
      }
      if (form == 3) {
        options.bias = ExplainBias::alibi;
        options.sink = 0.5;
        call.sinks = full({2}, 0.5);
        call.bias = Bias::alibi(Bias::alibi_slopes(2));
      }
      const Explanation e = explain_attention(text, {.relative = products}, options);
      const bool rotary = options.positions == Positions::rotary;
      const std::string q = rotary ? "q_rotated" : "q", k = rotary ? "k_rotated" : "k";
      call.bias = call.bias + bias_of(e, products, q, k);
      call.weights = Weights::full;
      const AttentionResult result = attention(of(e, q), of(e, k), of(e, "v"), call);
      EXPECT_TRUE(bits_equal(of(e, "weights"), result.weights));
      EXPECT_TRUE(bits_equal(of(e, "context"), result.output));
      std::string before = form == 3 ? "biased" : form == 2 ? "capped" : "scaled";
      for (std::size_t n = 0; n < products.size(); ++n) {
        const std::string end = n == 0 ? "" : "_" + std::to_string(n + 1);
        const ExplainStep::Operation& read = e.step("relative" + end).operation;
        EXPECT_EQ(read.operand, products[n].scale.value_or(0.5));
        const Tensor table = parameter(e, "relative_table" + end), rows = of(e, "relative_rows" + end);
        const std::string factor = products[n].operand ? "relative_operand" + end : products[n].of_keys ? k : q;
        if (products[n].operand)
          expect_near(e, factor, of(e, products[n].of_keys ? k : q) + parameter(e, "relative_bias" + end).unsqueeze(0));
        expect_near(e, "relative_products" + end, matmul(of(e, factor), table.unsqueeze(0).transpose(2, 3)));
        const std::vector<double> all = of(e, "relative_products" + end).to_vector();
        const std::int64_t tokens = rows.size(2), columns = products[n].index.rows(), heads = options.heads;
        std::vector<double> expected;
        for (std::int64_t h = 0; h < heads; ++h)
          for (std::int64_t i = 0; i < tokens; ++i)
            for (std::int64_t j = 0; j < tokens; ++j) {
              const std::int64_t row = rows.data<std::int64_t>()[i * tokens + j];
              ASSERT_TRUE(row >= 0 && row < columns);
              const std::int64_t from = products[n].of_keys ? j : i;
              expected.push_back(*read.operand * all[static_cast<std::size_t>((h * tokens + from) * columns + row)]);
            }
        expect_near(e, "relative" + end, tensor<double>(expected, {1, heads, tokens, tokens}));
        EXPECT_TRUE(bits_equal(of(e, "relative_added" + end), of(e, before) + of(e, "relative" + end)));
        before = "relative_added" + end;
      }
      const ExplainStep& row = e.step("query_scores");
      EXPECT_NE(std::find(row.columns[0].begin(), row.columns[0].end(), "+ r"), row.columns[0].end());
      EXPECT_NE(to_text(e).find(e.step("relative").title), std::string::npos);
      EXPECT_NE(to_svg(e).find(e.step("relative_rows").title), std::string::npos);
    }
}

TEST(ExplainRelative, ReadsTheRowsThatTheirFormulasGive) {
  const auto rows = [](const char* spec) {
    const Explanation e = explain_attention("a b c d e f", {.relative = ExplainRelative::parse(spec)});
    return std::pair(e.step("relative_rows").formula, of(e, "relative_rows").to_int_vector());
  };
  const auto expect = [&](const char* spec, const char* formula, std::int64_t (*row)(std::int64_t, std::int64_t)) {
    const auto [said, given] = rows(spec);
    EXPECT_EQ(said, formula);
    for (std::int64_t i = 0; i < 6; ++i)
      for (std::int64_t j = 0; j < 6; ++j) EXPECT_EQ(given[static_cast<std::size_t>(i * 6 + j)], row(i, j)) << spec;
  };
  expect("distance(2, 1)", "n = clip(j − i, −2, 1) + 2",
         [](std::int64_t i, std::int64_t j) { return std::clamp<std::int64_t>(j - i, -2, 1) + 2; });
  expect("distance(2, 1).reversed()", "n = 3 − (clip(j − i, −2, 1) + 2)",
         [](std::int64_t i, std::int64_t j) { return 3 - (std::clamp<std::int64_t>(j - i, -2, 1) + 2); });
  expect("picture_rows(2, 3)", "n = ⌊i / 3⌋ − ⌊j / 3⌋ + 1",
         [](std::int64_t i, std::int64_t j) { return i / 3 - j / 3 + 1; });
  expect("picture_columns(3)", "n = i mod 3 − j mod 3 + 2",
         [](std::int64_t i, std::int64_t j) { return i % 3 - j % 3 + 2; });
  EXPECT_EQ(rows("log_buckets(4, 8)").first, "n = bucket(i − j) + 4");
}

TEST(ExplainNormalizer, WeightsAndContextAreTheLibrarysAndFollowFromTheSteps) {
  using Kind = Normalizer::Kind;
  for (const char* name : {"softmax1", "sigmoid", "sigmoid(-2.5)", "sparsemax", "entmax15", "relu_squared",
                           "relu_squared(0.1)", "softmax"})
    for (const bool batch : {false, true})
      for (const bool mods : {false, true}) {
        SCOPED_TRACE(::testing::Message() << name << (batch ? " batch" : "") << (mods ? " weight_mod" : ""));
        const Normalizer normalizer = Normalizer::parse(name);
        if (normalizer.kind == Kind::softmax && !mods) continue;
        ExplainAdditions additions{.normalizer = normalizer};
        if (mods) additions.weight_mod = ScoreExpression::parse("s * exp(-0.5 * abs(i - j))");
        ExplainOptions options{.mask = Mask::causal(), .heads = 2, .temperature = 0.1, .query = -1};
        const Explanation e =
            batch ? explain_attention_batch(texts, additions, options) : explain_attention(text, additions, options);
        AttentionOptions call{
            .mask = Mask::causal(), .normalizer = normalizer, .temperature = 0.1, .weights = Weights::full};
        const Tensor lengths = tensor<std::int64_t>({3, 6, 2});
        if (batch) call.query_lengths = call.key_lengths = lengths;
        const AttentionResult plain = attention(of(e, "q"), of(e, "k"), of(e, "v"), call);
        EXPECT_TRUE(bits_equal(of(e, "weights"), plain.weights));
        call.weight_mod = additions.weight_mod;
        const AttentionResult result = attention(of(e, "q"), of(e, "k"), of(e, "v"), call);
        EXPECT_TRUE(bits_equal(of(e, "context"), result.output));
        EXPECT_EQ(has_step(e, "weights_modified"), mods);
        if (mods) { EXPECT_TRUE(bits_equal(of(e, "weights_modified"), result.weights)); }
        if (batch) { EXPECT_EQ(e.step("alone").values.to_int_vector(), (std::vector<std::int64_t>{1, 1, 1})); }
        // by hand
        const Tensor s = of(e, "tempered"), w = of(e, "weights");
        const std::vector<double> scores = s.to_vector(), weights = w.to_vector();
        const std::vector<Hidden>& hidden = e.step("weights").hidden;
        const auto keys = static_cast<std::size_t>(s.size(3)), rows = scores.size() / keys;
        std::vector<double> expected(scores.size(), 0.0), sums, counts, left;
        const std::vector<double> t =
            has_step(e, "threshold") ? of(e, "threshold").to_vector() : std::vector<double>(rows, 0.0);
        for (std::size_t row = 0; row < rows; ++row) {
          const std::size_t item = row / static_cast<std::size_t>(2 * s.size(2));
          const double n = static_cast<double>(batch ? lengths.to_int_vector()[item] : 6);
          double total = 0, sum = 0, count = 0;
          bool sees = false;
          for (std::size_t j = row * keys; j < (row + 1) * keys; ++j)
            if (hidden[j] == Hidden::visible) total += std::exp(scores[j]), sees = true;
          for (std::size_t j = row * keys; j < (row + 1) * keys; ++j) {
            if (hidden[j] != Hidden::visible) continue;
            const double x = scores[j], up = std::max(x, 0.0);
            switch (normalizer.kind) {
              case Kind::softmax: expected[j] = std::exp(x) / total; break;
              case Kind::softmax1: expected[j] = std::exp(x) / (1 + total); break;
              case Kind::sigmoid:
                expected[j] = 1 / (1 + std::exp(-x - normalizer.number.value_or(-std::log(n))));
                break;
              case Kind::sparsemax: expected[j] = std::max(x - t[row], 0.0); break;
              case Kind::entmax15: expected[j] = std::pow(std::max(x / 2 - t[row], 0.0), 2); break;
              case Kind::relu_squared: expected[j] = up * up * normalizer.number.value_or(1 / n);
            }
            sum += weights[j];
            count += weights[j] > 0;
          }
          sums.push_back(sum);
          counts.push_back(count);
          left.push_back(sees ? 1 / (1 + total) : 0);
          if (sees && has_step(e, "threshold")) { EXPECT_NEAR(sum, 1, 1e-6); }
        }
        double largest = 1;  // of the scores: each is rounded to f32 before it
        for (const double x : scores) largest = std::max(largest, std::abs(x));
        for (std::size_t n = 0; n < scores.size(); ++n)
          if (hidden[n] == Hidden::visible) { EXPECT_NEAR(weights[n], expected[n], 16 * 0x1p-24 * largest * largest); }
        const Dims column{s.size(0), s.size(1), s.size(2), 1};
        if (has_step(e, "row_sums")) expect_near(e, "row_sums", tensor<double>(sums, column));
        if (has_step(e, "support")) { EXPECT_EQ(of(e, "support").to_vector(), counts); }
        if (has_step(e, "no_key")) expect_near(e, "no_key", tensor<double>(left, column));
        EXPECT_EQ(has_step(e, "threshold"), normalizer.kind == Kind::sparsemax || normalizer.kind == Kind::entmax15);
        EXPECT_EQ(has_step(e, "no_key"), normalizer.kind == Kind::softmax1);
        // the worked row ends in the weight
        const Tensor row = of(e, "query_scores");
        const std::int64_t last = row.size(3) - 1, at = s.size(2) - 1;
        EXPECT_TRUE(bits_equal(row.slice(3, last, last + 1).squeeze(3).to(Dtype::f32).contiguous(),
                               (mods ? of(e, "weights_modified") : w).slice(2, at, at + 1).squeeze(2).contiguous()));
      }
}

TEST(ExplainNormalizer, DrawsExactZerosAsZeros) {
  const Explanation e =
      explain_attention("a b c d", {.normalizer = Normalizer::sparsemax()}, {.temperature = 0.05, .only = {"weights"}});
  const std::vector<double> weights = of(e, "weights").to_vector();
  const auto zeros = std::count(weights.begin(), weights.end(), 0.0);
  EXPECT_GT(zeros, 0);
  const auto count = [](const std::string& drawn, const std::string& part) {
    std::int64_t found = 0;
    for (std::size_t at = drawn.find(part); at != std::string::npos; at = drawn.find(part, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count(to_svg(e), ">0</text>"), zeros);
  EXPECT_EQ(count(to_text(e), "0.0000"), 0);
}

TEST(ExplainAdditions, CombineAndAgreeWithPackedSequencesAndCaches) {
  const ExplainAdditions additions{.relative = ExplainRelative::parse("distance(2, 2) + distance(1, 3)"),
                                   .normalizer = Normalizer::entmax15(),
                                   .weight_mod = ScoreExpression::parse("s * 0.5 + 0.25 * s * s")};
  const Explanation e = explain_attention_batch(texts, additions,
                                                {.mask = Mask::causal(),
                                                 .heads = 2,
                                                 .output_projection = true,
                                                 .dropout_p = 0.3,
                                                 .weights = Weights::top_k(2),
                                                 .packed = true,
                                                 .cache = KvStorage::same,
                                                 .query = 1});
  for (const char* checks : {"packed", "cached"})
    EXPECT_EQ(e.step(checks).values.to_int_vector(), (std::vector<std::int64_t>{1, 1, 1})) << checks;
  const Explanation cross =
      explain_attention("a b c", additions, {.to = "d e f g h", .score_mod = ScoreExpression::parse("s - 0.5 * j")});
  AttentionOptions call{.normalizer = Normalizer::entmax15(), .weight_mod = additions.weight_mod};
  call.score_mod = ScoreExpression::parse("s - 0.5 * j");
  for (std::size_t n = 0; n < 2; ++n)
    call.bias = call.bias + Bias::relative_product(parameter(cross, n == 0 ? "relative_table" : "relative_table_2"),
                                                   additions.relative[n].index, {.align = Align::top_left});
  EXPECT_TRUE(bits_equal(of(cross, "context"), attention(of(cross, "q"), of(cross, "k"), of(cross, "v"), call).output));
}

TEST(ExplainAdditions, NameOperationsThatTheDocumentHas) {
  const std::string table = content_of(golden_path("../../docs/explain_json.md"));
  for (const char* name : {"softmax1", "sigmoid", "sparsemax", "entmax15", "relu_squared"})
    for (const char* spec : {"distance(2, 2) operand", "distance(2, 2) of_keys"}) {
      const Explanation e = explain_attention(text, {.relative = ExplainRelative::parse(spec),
                                                     .normalizer = Normalizer::parse(name),
                                                     .weight_mod = ScoreExpression::parse("s * 0.5")});
      std::vector<std::string> known;
      for (const ExplainStep& parameter : e.parameters) known.push_back(parameter.name);
      for (const ExplainStep& step : e.steps) {
        EXPECT_NE(table.find("`" + step.operation.name + "`"), std::string::npos) << step.name;
        for (const std::string& input : step.operation.inputs)
          EXPECT_NE(std::find(known.begin(), known.end(), input), known.end()) << step.name << " " << input;
        known.push_back(step.name);
      }
    }
}

TEST(ExplainAdditions, SpeakChinese) {
  const auto has_chinese = [](const std::string& x) {
    return std::any_of(x.begin(), x.end(), [](char c) { return static_cast<unsigned char>(c) >= 0xe4; });
  };
  for (const char* name : {"softmax1", "sigmoid", "sparsemax", "entmax15", "relu_squared"}) {
    const Explanation e = explain_attention(text,
                                            {.relative = ExplainRelative::parse("distance(2, 2) operand"),
                                             .normalizer = Normalizer::parse(name),
                                             .weight_mod = ScoreExpression::parse("s * 0.5")},
                                            {.query = 1, .language = Language::zh});
    for (const ExplainStep& step : e.steps) {
      EXPECT_TRUE(has_chinese(step.title)) << step.name << ": " << step.title;
      EXPECT_TRUE(step.note.empty() || has_chinese(step.note)) << step.name << ": " << step.note;
    }
  }
}

TEST(ExplainAdditions, RefuseByName) {
  const std::vector<ExplainRelative> operand = ExplainRelative::parse("distance(2, 2) operand"),
                                     keys = ExplainRelative::parse("distance(2, 2) of_keys");
  EXPECT_EQ(error_of<ValueError>(
                [] { explain_attention(text, {.normalizer = Normalizer::sparsemax()}, {.gradients = true}); }),
            "explain: another normalizer has no option gradients; leave it out");
  EXPECT_EQ(error_of<ValueError>([&] { explain_attention(text, {.relative = operand}, {.packed = true}); }),
            "explain: a relative product of an operand has no option packed; leave it out");
  EXPECT_EQ(
      error_of<ValueError>([&] { explain_attention(text, {.relative = keys}, {.score = Score::Kind::additive}); }),
      "explain: a relative product of k needs the (scaled) dot product as score, or an operand");
  EXPECT_EQ(error_of<ValueError>([] { explain_attention(text, {.normalizer = Normalizer::sparsemax()}, {.sink = 1}); }),
            "explain: sinks are given with the normalizer sparsemax; they are logits in the sum of softmax");
  for (const auto& [spec, wrong] :
       {std::pair{"distanc(2, 2)",
                  "column 1, at \"distanc(2, 2)\": distance(BEFORE, AFTER), log_buckets(BUCKETS, MAX), "
                  "picture_rows(HEIGHT, WIDTH) or picture_columns(WIDTH) was expected"},
        std::pair{"distance(2)", "column 11, at \")\": two numbers were expected"},
        std::pair{"distance(2, x)", "column 13, at \"x)\": a whole number was expected"},
        std::pair{"distance(2, 2) scale=", "column 22, at the end: a number was expected"},
        std::pair{"distance(2, 2) of_key",
                  "column 16, at \"of_key\": of_keys, operand, scale=X, + or the end was expected"},
        std::pair{"distance(2, 2) +",
                  "column 17, at the end: distance(BEFORE, AFTER), log_buckets(BUCKETS, MAX), "
                  "picture_rows(HEIGHT, WIDTH) or picture_columns(WIDTH) was expected"}})
    EXPECT_EQ(error_of<ValueError>([&] { ExplainRelative::parse(spec); }),
              "ExplainRelative::parse: \"" + std::string(spec) + "\": " + wrong);
  EXPECT_EQ(error_of<ValueError>([] { ExplainRelative::parse("distance(-1, 2)"); }),
            "RelativeIndex::distance: before is -1; it must be from 0 to 1073741824");
}

}  // namespace
}  // namespace attn::testing
