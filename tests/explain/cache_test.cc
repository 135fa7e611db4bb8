// tests/explain/cache_test.cc: a cache gives the context of the same run: under every mask, bias and position.
#include <attn/explain.h>

#include "runtime/format.h"
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

struct Rows {  // the tokens of the two sides
  std::vector<std::string> texts;
  std::optional<std::string> to;
  bool learned;
  std::vector<std::int64_t> rows, keys;  // of each text
};

const std::string kLong = "a b c d e f g h i j k l m n o p q r s";  // 19 keys: two pages
const Rows kRows[] = {
    {{"a b c"}, {}, false, {3}, {3}},
    {{"a b c"}, "d e", false, {3}, {2}},
    {{"a b c"}, kLong, false, {3}, {19}},
    {{"a b c"}, {}, true, {1}, {3}},
    {{"a b c", "a", kLong}, {}, false, {3, 1, 19}, {3, 1, 19}},
    {{"a b c", "a", "a b c d"}, "d e f", false, {3, 1, 4}, {3, 3, 3}},
    {{"a b c", "a", kLong}, {}, true, {1, 1, 1}, {3, 1, 19}},
};

const char* const kMasks[] = {"all",
                              "prefix(2)",
                              "causal",
                              "window(1, 0)",
                              "causal(top_left)",
                              "causal(bottom_right)",
                              "window(1, 0, top_left)",
                              "window(1, 1, bottom_right)",
                              "~causal(bottom_right)",
                              "prefix(1) | causal(bottom_right)",
                              "causal(bottom_right) & window(2, -1, bottom_right)",
                              "causal(bottom_right) | window(0, 1, top_left)"};

/// An expression, and what it makes of a score whose row has either position.
struct Change {
  const char* text;
  double (*of)(double s, double top_left, double bottom_right, double key);
};
const Change kChanges[] = {
    {"s - 0.125 * i", [](double s, double i, double, double) { return s - 0.125 * i; }},
    {"where(i(top_left) == j, 2, s)", [](double s, double i, double, double j) { return i == j ? 2 : s; }},
    {"s - 0.25 * abs(i(bottom_right) - j)",
     [](double s, double, double i, double j) { return s - std::abs(i - j) / 4; }},
    {"where(i(bottom_right) % 2 == 0, s + 0.5 * i(top_left), s)",
     [](double s, double top, double i, double) { return static_cast<int>(i) % 2 == 0 ? s + 0.5 * top : s; }},
};

/// The context of one row over the keys and values that the cache gave, in double: docs/explain_json.md, `attention`.
std::vector<double> context(const Explanation& told, const Rows& sides, const Change* change, std::int64_t b,
                            std::int64_t h, std::int64_t i) {
  const ExplainOptions defaults;
  const std::int64_t dk = defaults.dk, dv = defaults.dv, keys = *std::max_element(sides.keys.begin(), sides.keys.end()),
                     rows = *std::max_element(sides.rows.begin(), sides.rows.end()), head = b * 2 + h;
  const bool rotated = told.options.find("\"positions\": \"rotary\"") != std::string::npos;
  const std::vector<double> q = told.step(rotated ? "q_rotated" : "q").values.to_vector(),
                            k = told.step("k_int8").values.to_vector(), v = told.step("v_int8").values.to_vector();
  const std::vector<Hidden>& hidden = told.step("weights").hidden;
  const bool biased = told.options.find("\"bias\": \"none\"") == std::string::npos;
  const std::vector<double> bias = biased ? told.step("bias").values.to_vector() : std::vector<double>{};
  std::vector<double> result(static_cast<std::size_t>(dv));
  double total = 0;
  for (std::int64_t j = 0; j < keys; ++j) {
    const auto pair = static_cast<std::size_t>((head * rows + i) * keys + j);
    if (!hidden.empty() && hidden[pair] != Hidden::visible) continue;
    double s = 0;
    for (std::int64_t d = 0; d < dk; ++d)
      s += q[static_cast<std::size_t>((head * rows + i) * dk + d)] *
           k[static_cast<std::size_t>((head * keys + j) * dk + d)];
    s = s / std::sqrt(static_cast<double>(dk)) + (biased ? bias[pair] : 0);
    const auto item = static_cast<std::size_t>(b);
    if (change != nullptr)
      s = change->of(s, static_cast<double>(i), static_cast<double>(i + sides.keys[item] - sides.rows[item]),
                     static_cast<double>(j));
    total += std::exp(s);
    for (std::int64_t d = 0; d < dv; ++d)
      result[static_cast<std::size_t>(d)] += std::exp(s) * v[static_cast<std::size_t>((head * keys + j) * dv + d)];
  }
  for (double& x : result) x = total == 0 ? 0 : x / total;
  return result;
}

void check(const ExplainOptions& given, const Rows& sides, const Change* change) {
  ExplainOptions options = given;
  const auto run = [&] {
    return sides.texts.size() > 1 ? explain_batch(sides.texts, options) : explain(sides.texts[0], options);
  };
  options.cache = KvStorage::same;
  options.packed = true;
  const Explanation same = run();
  for (const char* name : {"cached", "packed"})
    for (const std::int64_t each : same.step(name).values.to_int_vector()) EXPECT_EQ(each, 1) << name;
  options.cache = KvStorage::int8;
  const Explanation told = run();
  const std::vector<double> ours = told.step("context_int8").values.to_vector();
  const auto rows = *std::max_element(sides.rows.begin(), sides.rows.end());
  for (std::size_t b = 0; b < sides.rows.size(); ++b)
    for (std::int64_t h = 0; h < 2; ++h)
      for (std::int64_t i = 0; i < sides.rows[b]; ++i) {
        const auto item = static_cast<std::int64_t>(b);
        const std::vector<double> expected = context(told, sides, change, item, h, i);
        for (std::size_t d = 0; d < expected.size(); ++d)
          EXPECT_NEAR(ours[static_cast<std::size_t>((item * 2 + h) * rows + i) * expected.size() + d], expected[d],
                      16 * 0x1p-23 * std::max(1.0, std::abs(expected[d])))
              << "row " << i << " of head " << h << " of text " << b;
      }
}

TEST(ExplainCache, GivesTheContextOfEveryMaskBiasAndPosition) {
  int runs = 0;
  for (const Rows& sides : kRows)
    for (const std::string mask : kMasks)
      for (const ExplainBias bias :
           {ExplainBias::none, ExplainBias::alibi, ExplainBias::relative, ExplainBias::alibi_symmetric})
        for (std::size_t n = 0; n <= std::size(kChanges); ++n) {
          const Change* change = n == 0 ? nullptr : &kChanges[n - 1];
          const bool uneven = sides.to || sides.learned;
          if (uneven && (mask == "causal" || mask == "window(1, 0)")) continue;  // these need an alignment
          if (sides.learned && (bias != ExplainBias::none || n == 1)) continue;  // and so do these
          ExplainOptions options;
          options.heads = 2;
          options.mask = Mask::parse(mask);
          options.bias = bias;
          options.to = sides.to;
          options.learned_query = sides.learned;
          options.positions = static_cast<Positions>(runs % 3);
          if (change != nullptr) options.score_mod = ScoreExpression::parse(change->text);
          SCOPED_TRACE(runtime::format("{} \"{}\" --to \"{}\" --mask \"{}\" --bias {} --score-mod \"{}\" learned {}",
                                       sides.texts.size(), sides.texts[0], sides.to.value_or(""), mask,
                                       static_cast<int>(bias), change == nullptr ? "" : change->text, sides.learned));
          check(options, sides, change);
          ++runs;
          if (HasFailure()) return;
        }
  EXPECT_GT(runs, 800);
}

}  // namespace
}  // namespace attn
