// tests/explain/terminal_width_test.cc: no line of an explanation is wider than `width`, whatever the text, the options
// and the language; 40 explanations drawn at random (ATTN_TEST_FULL=1: 150).
#include <attn/explain.h>
#include <attn/text.h>

#include "explain/terminal_block.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <sstream>
#include <string>

namespace attn::testing {
namespace {

/// Columns of a line; codes of colour take none.
int columns_of(const std::string& line) {
  std::string plain;
  for (std::size_t at = 0; at < line.size(); ++at) {
    if (line[at] == '\x1b') at = line.find('m', at);
    else plain += line[at];
  }
  return text::display_width(plain);
}

TEST(TerminalWidth, NoLineIsWider) {
  std::mt19937_64 random(20261125);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const char* words[] = {
      "Life",     "is",     "short",     "eat",        "dessert",    "first",
      "我叫张三", "注意力", "한국어",    "👍🏽",       "e\u0301",    "Donaudampfschifffahrtsgesellschaft",
      "a",        "。",     "x\x1b[31m", "ありがとう", "1234567890", "ﷺ"};
  const int explanations = std::getenv("ATTN_TEST_FULL") != nullptr ? 150 : 40;
  for (int n = 0; n < explanations; ++n) {
    std::vector<std::string> texts(static_cast<std::size_t>(below(3) + 1));
    for (std::string& text : texts) {
      text = "word";
      for (int count = below(below(4) == 0 ? 60 : 8); count > 0; --count) text += std::string(" ") + words[below(18)];
    }
    ExplainOptions options{.score = static_cast<Score::Kind>(below(4)),
                           .heads = below(3) + 1,
                           .dim = 2 * (below(6) + 1),
                           .dk = 2 * (below(5) + 1),
                           .dv = below(6) + 1,
                           .positions = static_cast<Positions>(below(3)),
                           .softcap = below(3) == 0 ? 2.0 : 0.0,
                           .temperature = below(3) == 0 ? 0.5 : 1.0,
                           .bias = static_cast<ExplainBias>(below(3)),
                           .dropout_p = below(3) == 0 ? 0.3 : 0.0};
    if (below(2) == 0) options.mask = Mask::causal();
    if (below(3) == 0) options.mask = options.mask & Mask::window(2, 2);
    if (below(3) == 0) options.query = 0;
    if (below(3) == 0) options.sink = 0.5;
    if (below(3) == 0) options.cache = static_cast<KvStorage>(below(2));
    if (below(3) == 0) options.score_mod = ScoreExpression::parse("s - 0.5 * abs(i - j)");
    options.gradients = below(3) == 0;
    options.packed = below(4) == 0;
    options.language = static_cast<Language>(below(2));
    options.output_projection = below(3) == 0;
    options.learned_query = below(4) == 0;
    Explanation explanation;
    try {
      explanation = texts.size() == 1 ? explain(texts[0], options) : explain_batch(texts, options);
    } catch (const Error&) {  // options that do not go together
      continue;
    }
    for (const int width : {-1, 0, 40, 41, 47, 60, 79, 80, 100, 131, 250, below(200), 1 << 30})
      for (const auto colour : {TextOptions::Colour::none, TextOptions::Colour::palette, TextOptions::Colour::rgb}) {
        std::istringstream lines(to_text(explanation, {.width = width, .colour = colour}));
        for (std::string line; std::getline(lines, line);)
          ASSERT_LE(columns_of(line), std::max(40, width)) << n << ": " << line;
      }
  }
}

TEST(TerminalWidth, TheEndOfALineIsCutWithItsColour) {
  using explain_detail::fitted;
  EXPECT_EQ(fitted("abc", 3), "abc");
  EXPECT_EQ(fitted("abcd", 3), "ab…");
  EXPECT_EQ(fitted("我我我", 5), "我我…");
  EXPECT_EQ(fitted("我我我", 4), "我…");
  EXPECT_EQ(fitted("\x1b[1mabc\x1b[0m", 3), "\x1b[1mabc\x1b[0m");
  EXPECT_EQ(fitted("\x1b[1mabcd\x1b[0m", 3), "\x1b[1mab\x1b[0m…");
}

}  // namespace
}  // namespace attn::testing
