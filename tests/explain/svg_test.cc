// tests/explain/svg_test.cc: the drawing has every step, sets matrices beside each other and cuts no label.
#include <attn/explain.h>

#include "runtime/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <regex>
#include <set>

namespace attn {
namespace {

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Every tag closed in order, attributes quoted, no bare & or <.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&') {
      const std::string entity = xml.substr(at, xml.find(';', at) + 1 - at);
      if (entity != "&amp;" && entity != "&lt;" && entity != "&gt;" && entity != "&quot;") return false;
    }
    if (xml[at] == '>') return false;
    if (xml[at] != '<') continue;
    std::size_t end = at;
    for (bool quote = false; end < xml.size() && (quote || xml[end] != '>'); ++end) {
      if (xml[end] == '"') quote = !quote;
      if (quote && xml[end] == '<') return false;
    }
    const std::string tag = xml.substr(at + 1, end - at - 1), name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || open.back() != tag.substr(1)) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
    at = end;
  }
  return open.empty();
}

TEST(Svg, IsWellFormedAndHasEveryStepInOrder) {
  ExplainOptions options;
  options.mask = Mask::causal();
  options.query = 1;
  const Explanation told = explain("a<b & \"c\" d\x01 我", options);
  const std::string svg = to_svg(told);
  EXPECT_TRUE(well_formed(svg));
  std::size_t at = 0;
  for (std::size_t i = 0; i < told.steps.size(); ++i) {
    at = svg.find(runtime::format("{}  {}<", i + 1, told.steps[i].title), at);
    ASSERT_NE(at, std::string::npos) << told.steps[i].name;
  }
  EXPECT_TRUE(contains(svg, "prefers-color-scheme: dark"));
  EXPECT_FALSE(contains(svg, "url("));
  EXPECT_TRUE(well_formed(to_svg(explain_batch({"我叫张三", "他是谁"}))));
  std::string words = std::string(200, 'a');
  for (int i = 0; i < 100; ++i) words += runtime::format(" word{}", i);
  EXPECT_TRUE(well_formed(to_svg(explain(words))));
}

/// Where each text of that content begins: x and y.
std::vector<std::pair<int, int>> places(const std::string& svg, const std::string& content) {
  std::vector<std::pair<int, int>> found;
  const std::regex text("<text x=\"(\\d+)\" y=\"(\\d+)\"[^>]*>([^<]*)<");
  for (auto at = std::sregex_iterator(svg.begin(), svg.end(), text); at != std::sregex_iterator(); ++at)
    if ((*at)[3] == content) found.emplace_back(std::stoi((*at)[1]), std::stoi((*at)[2]));
  return found;
}

TEST(Svg, MatricesOfTheSameRowsStandBesideEachOther) {
  ExplainOptions options;
  options.heads = 2;
  options.dv = 2;  // so that all six of q, k and v fit
  const std::string svg = to_svg(explain("Life is short", options));
  const auto q = places(svg, "q head 0"), k = places(svg, "k head 1"), v = places(svg, "v head 0");
  ASSERT_EQ(q.size() * k.size() * v.size(), 1U);
  EXPECT_TRUE(q[0].second == k[0].second && k[0].second == v[0].second);
  EXPECT_TRUE(q[0].first < k[0].first && k[0].first < v[0].first);
  const auto first = places(svg, "head 0"), second = places(svg, "head 1");  // scores, scaled, weights, context
  ASSERT_EQ(first.size(), 4U);
  for (std::size_t n = 0; n < 4; ++n) EXPECT_EQ(first[n].second, second[n].second) << n;
  // the rows' labels stand once for both heads: x, q k v and the four
  EXPECT_EQ(places(svg, "Life").size(), 1U + 1 + 1 + 4 + 1 + 2 * 3);  // tokens, x, q k v, joined; columns of 3 x 2
  // the matrices behind them stand above
  EXPECT_LT(places(svg, "W_q head 0")[0].second, q[0].second);
  options.to = "eat dessert";
  const std::string cross = to_svg(explain("Life is short", options));
  EXPECT_LT(places(cross, "q head 0")[0].second, places(cross, "k head 0")[0].second) << "k has rows of its own";
}

TEST(Svg, RulesBetweenStepsAreAsWideAsTheDrawing) {
  for (const int heads : {1, 4}) {
    ExplainOptions options;
    options.heads = heads;
    const std::string svg = to_svg(explain("Life is short, eat dessert first", options));
    std::smatch width;
    ASSERT_TRUE(std::regex_search(svg, width, std::regex(" width=\"(\\d+)\"")));
    const std::regex rule("class=\"rule\" d=\"M24 \\d+h(\\d+)\"");
    int rules = 0;
    for (std::sregex_iterator at(svg.begin(), svg.end(), rule), end; at != end; ++at, ++rules)
      EXPECT_EQ(std::stoi((*at)[1]), std::stoi(width[1]) - 48) << heads;
    EXPECT_GE(rules, 8);
  }
}

TEST(Svg, MaskedPairsAreBlankUnlessTheirReasonsDiffer) {
  ExplainOptions options;
  options.mask = Mask::causal();
  const std::string one = to_svg(explain("a b c", options));
  EXPECT_FALSE(contains(one, ">·<"));
  EXPECT_TRUE(contains(one, ">blank:  later than the query (causal)<"));
  options.mask = Mask::causal() & Mask::window(0, 0);
  const std::string two = to_svg(explain("a b c", options));
  EXPECT_TRUE(contains(two, ">·<") && contains(two, ">○<"));
  EXPECT_TRUE(contains(two, ">hidden:  · later than the query (causal)  ○ outside the window<"));
}

TEST(Svg, LongLabelsRise) {
  const std::string word = "extraordinarily-long-word";
  const std::string svg = to_svg(explain(word + " b"));
  EXPECT_TRUE(std::regex_search(svg, std::regex("transform=\"rotate\\(-45 [0-9 ]+\\)\">" + word + "<")));
  EXPECT_FALSE(contains(svg, "…"));
  for (const char* font : {"PingFang SC", "Microsoft YaHei", "Noto Sans CJK SC"})
    EXPECT_TRUE(contains(svg, font)) << font;
}

}  // namespace
}  // namespace attn
