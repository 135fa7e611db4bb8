// tests/explain/drawing_test.cc: the terminal, JSON and SVG forms hold the same steps and fit where they must.
#include <attn/explain.h>
#include <attn/ops.h>

#include "explain/utf8.h"
#include "support/golden.h"

#include "runtime/format.h"
#include <gtest/gtest.h>

#include <sstream>

namespace attn {
namespace {

using explain_detail::display_width;

const std::string kSentence = "Life is short, eat dessert first";

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

std::string words(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += runtime::format("word{} ", i);
  return text;
}

TEST(Text, ShowsTheTutorialsNumbersWithFourDecimals) {
  const std::string text = to_text(explain(kSentence));
  for (const auto& step : testing::golden("000.json").at("steps")) {
    const std::string name = step.at("name");
    if (name != "embedded_sentence" && name != "queries" && name != "keys" && name != "values" &&
        name != "attention_scores")
      continue;
    for (const auto& row : step.at("values"))
      for (const auto& value : row)
        EXPECT_TRUE(contains(text, runtime::format("{:.4f}", value.get<double>()))) << name << " " << value;
  }
  EXPECT_TRUE(contains(text, "██ 0.6870"));
  EXPECT_FALSE(contains(text, "\x1b"));
}

TEST(Text, FitsTheWidth) {
  for (const int width : {40, 60, 80, 100, 160}) {
    for (const std::string& sentence : {kSentence, words(40), std::string("我们今天去公园散步然后回家吃饭再看一会儿书"),
                                        "a " + std::string(300, 'w') + " b"}) {
      ExplainOptions options;
      options.mask = Mask::causal();
      options.heads = 3;
      options.language = Language::zh;
      options.query = 1;
      TextOptions draw;
      draw.width = width;
      for (const std::string& line : lines_of(to_text(explain(sentence, options), draw)))
        EXPECT_LE(display_width(line), width) << line;
    }
  }
}

TEST(Text, AQueryByHandShowsItsStagesWhateverTheWidth) {
  ExplainOptions options;
  options.query = 1;
  TextOptions draw;
  draw.width = 50;
  const std::string narrow = to_text(explain(kSentence, options), draw);
  for (const char* part : {"0.5667·k0", "1.8269·k1", "sum", "/ √2", "− max", "e^", "/ total", "0.6870"})
    EXPECT_TRUE(contains(narrow, part)) << part;
  const std::string batch = to_text(explain_batch({"a b", "b"}, options));  // the second sentence has no query 1
  EXPECT_TRUE(contains(batch, "maximum 0.2274 | –  total 1.7159 | –")) << batch;
  EXPECT_FALSE(contains(batch, "nan"));
}

TEST(Text, ColumnsOfChineseHeadsStandAboveTheirNumbers) {
  const std::vector<std::string> lines = lines_of(to_text(explain("我叫张三")));
  for (std::size_t i = 1; i < lines.size(); ++i)
    if (contains(lines[i - 1], " 我") && contains(lines[i - 1], " 三") && contains(lines[i], "  我  ")) {
      EXPECT_EQ(display_width(lines[i - 1]), display_width(lines[i])) << lines[i - 1] << "\n" << lines[i];
      return;
    }
  FAIL() << "no table with Chinese heads";
}

TEST(Text, ColourIsOnlyInkOnTheSameTable) {
  TextOptions draw;
  draw.colour = TextOptions::Colour::rgb;
  const std::string text = to_text(explain(kSentence), draw);
  EXPECT_TRUE(contains(text, "48;2;"));
  std::string bare;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (text[i] != 'm') ++i;
      continue;
    }
    bare += text[i];
  }
  for (const char* number : {"0.6870", "-0.1564", "3.4707"}) EXPECT_TRUE(contains(bare, number));
  for (const std::string& line : lines_of(bare)) EXPECT_LE(display_width(line), draw.width);
  draw.colour = TextOptions::Colour::palette;
  EXPECT_TRUE(contains(to_text(explain(kSentence), draw), "48;5;"));
}

TEST(Text, LongSentencesSayWhatWasLeftOut) {
  const std::string strongest = to_text(explain(words(60)));
  EXPECT_TRUE(contains(strongest, "the strongest"));
  EXPECT_TRUE(contains(strongest, "of 60 shown"));
  ExplainOptions options;
  options.mask = Mask::causal();
  EXPECT_TRUE(contains(to_text(explain(words(60), options)), "around the diagonal"));
  options.query = 50;
  EXPECT_TRUE(contains(to_text(explain(words(60), options)), "word50"));
}

TEST(Text, HiddenPairsHaveSignsAndALegend) {
  ExplainOptions options;
  options.mask = Mask::causal() & Mask::window(1, 0);
  const std::string text = to_text(explain_batch({"a b c d", "e f"}, options));
  for (const char* sign : {"·", "○", "×", "hidden:", "PAD"}) EXPECT_TRUE(contains(text, sign)) << sign;
}

TEST(Text, SpeaksChinese) {
  ExplainOptions options;
  options.language = Language::zh;
  const std::string text = to_text(explain("我叫张三", options));
  for (const char* term : {"词元", "编号", "词嵌入", "查询", "键", "值", "打分", "缩放", "注意力权重", "上下文向量"})
    EXPECT_TRUE(contains(text, term)) << term;
}

TEST(Text, ALearnedQueryLeavesEveryTokenItsKeyAndValue) {
  for (const int heads : {1, 2}) {
    for (const bool batch : {false, true}) {
      ExplainOptions options;
      options.learned_query = true;
      options.heads = heads;
      const Explanation explanation =
          batch ? explain_batch({kSentence, "eat dessert"}, options) : explain(kSentence, options);
      TextOptions draw;
      draw.width = 120;
      const std::string text = to_text(explanation, draw);
      for (const char* const name : {"k", "v"}) {
        const ExplainStep& step = explanation.step(name);
        for (const double value : step.values.to_vector())
          EXPECT_TRUE(contains(text, runtime::format("{:.4f}", value))) << name << " " << value << "\n" << text;
      }
    }
  }
}

/// The names of the methods in a textbook stand on the steps that make them.
TEST(Text, NamesTheMethods) {
  const auto note = [](const char* step, Language language, auto change) {
    ExplainOptions options;
    options.language = language;
    change(options);
    return explain("a b", options).step(step).note;
  };
  struct Method {
    const char *step, *english, *chinese;
    void (*change)(ExplainOptions&);
  };
  for (const Method& m :
       {Method{"scores", "self-attention: dot-product score", "自注意力：点积打分", [](ExplainOptions&) {}},
        Method{"scaled", "scaled dot-product attention", "缩放点积注意力", [](ExplainOptions&) {}},
        Method{"scaled", "variance", "方差", [](ExplainOptions&) {}},
        Method{"scores", "additive score", "加性打分", [](ExplainOptions& o) { o.score = Score::Kind::additive; }},
        Method{"scores", "bilinear", "双线性", [](ExplainOptions& o) { o.score = Score::Kind::general; }},
        Method{"scores", "cross-attention", "交叉注意力", [](ExplainOptions& o) { o.to = "c"; }},
        Method{"scores", "one learned query", "可学习的查询", [](ExplainOptions& o) { o.learned_query = true; }},
        Method{"joined", "multi-head attention", "多头注意力", [](ExplainOptions& o) { o.heads = 2; }},
        Method{"mask", "causal attention", "因果注意力", [](ExplainOptions& o) { o.mask = Mask::causal(); }},
        Method{"mask", "counts as -inf", "记为 −∞", [](ExplainOptions& o) { o.mask = Mask::causal(); }},
        Method{"mask", "mask:", "掩码：", [](ExplainOptions& o) { o.mask = Mask::prefix(1); }}}) {
    EXPECT_TRUE(contains(note(m.step, Language::en, m.change), m.english)) << m.english;
    EXPECT_TRUE(contains(note(m.step, Language::zh, m.change), m.chinese)) << m.chinese;
  }
}

TEST(Text, MatricesStandBeforeWhatTheyMake) {
  ExplainOptions options;
  options.score = Score::Kind::additive;
  options.output_projection = true;
  const std::string text = to_text(explain("a b", options)), svg = to_svg(explain("a b", options));
  for (const auto& [matrices, step] :
       {std::pair{"W_q, W_k, W_v  the", " 4  q "}, {"S_q, S_k, w  the", " 7  scores "}, {"W_O  the", "10  output "}}) {
    EXPECT_LT(text.find(matrices), text.find(step)) << text;
    EXPECT_NE(text.find(step), std::string::npos) << text;
  }
  EXPECT_LT(svg.find(">W_q<"), svg.find(">4  q<"));
}

TEST(Json, NumbersReadBackToTheSameBits) {
  ExplainOptions options;
  options.heads = 2;
  const Explanation told = explain(kSentence, options);
  const nlohmann::json document = nlohmann::json::parse(to_json(told));
  EXPECT_EQ(document.at("attn_explain"), 1);
  EXPECT_EQ(document.at("text"), kSentence);
  ASSERT_EQ(document.at("steps").size(), told.steps.size());
  for (std::size_t i = 0; i < told.steps.size(); ++i) {
    const auto& step = document.at("steps")[i];
    EXPECT_EQ(step.at("name"), told.steps[i].name);
    for (const char* key : {"title", "formula", "shape", "values"}) EXPECT_TRUE(step.contains(key)) << key;
    if (told.steps[i].values.defined())
      EXPECT_TRUE(testing::bits_equal(testing::golden_tensor(step), told.steps[i].values)) << told.steps[i].name;
    else EXPECT_EQ(step.at("values").get<std::vector<std::string>>(), told.steps[i].rows[0]);
  }
}

TEST(Json, AnyTextIsAString) {
  const std::string text = "a \"b\" \\ \n\x01 我";
  EXPECT_EQ(nlohmann::json::parse(to_json(explain(text))).at("text"), text);
}

TEST(Json, AHiddenPairIsNullWithItsReason) {
  ExplainOptions options;
  options.mask = Mask::causal();
  const nlohmann::json document = nlohmann::json::parse(to_json(explain("a \"b\" \\c", options)));
  for (const auto& step : document.at("steps"))
    if (step.at("name") == "weights") {
      EXPECT_TRUE(step.at("values")[0][1].is_null());
      EXPECT_EQ(step.at("hidden")[0][1], "causal");
      EXPECT_EQ(step.at("values")[0][0], 1.0);
      return;
    }
  FAIL();
}

}  // namespace
}  // namespace attn
