// tests/explain/chinese_test.cc: a Chinese explanation has no English words left, whatever the options.
#include "explain/formula_words.h"

#include <attn/explain.h>

#include <gtest/gtest.h>

#include <cctype>
#include <set>

namespace attn {
namespace {

// Functions, names of methods and of options, and the notation of masks and expressions.
const std::set<std::string> kNames{
    "softmax",      "W_q",        "W_k",     "W_v",    "W_O",     "S_q",      "S_k",          "d_k",
    "tanh",         "sin",        "cos",     "max",    "rand",    "randn",    "logsumexp",    "Embedding",
    "Philox",       "ALiBi",      "Dropout", "PAD",    "token",   "sink",     "softcap",      "score_mod",
    "packed",       "cu_seqlens", "causal",  "window", "general", "general",  "additive",     "attention",
    "bottom_right", "top_left",   "w_query", "w_key",  "w_value", "w_output", "query_vector", "embedding"};

/// Adds the words of three or more Latin letters that are none of the names above.
void add_english(const std::string& text, std::set<std::string>& found) {
  std::string word;
  for (const char c : text + " ") {
    if (std::isalpha(static_cast<unsigned char>(c)) || c == '_') {
      word += c;
      continue;
    }
    if (word.size() > 2 && !kNames.contains(word)) found.insert(word);
    word.clear();
  }
}

TEST(Chinese, HasNoEnglishWords) {
  std::set<std::string> english;
  int steps = 0;
  for (int score = 0; score < 4; ++score)
    for (int positions = 0; positions < 3; ++positions)
      for (int n = 0; n < 8; ++n) {
        ExplainOptions o;
        o.language = Language::zh;
        o.score = static_cast<Score::Kind>(score);
        o.positions = static_cast<Positions>(positions);
        o.dim = 4;
        o.query = 0;
        o.gradients = true;
        o.heads = n % 2 == 0 ? 1 : 3;
        o.output_projection = n % 4 < 2;
        o.learned_query = n == 4;
        o.bias = static_cast<ExplainBias>(n % 4);
        if (n > 0) o.softcap = 1.5;
        if (n > 1) o.temperature = 0.5;
        if (n > 2) o.score_mod = ScoreExpression::parse(n > 4 ? "s - 0.5 * (i - j)" : "s - 1");
        if (n % 3 == 1) o.sink = 0.5;
        if (n % 3 == 2) o.dropout_p = 0.25;
        if (n % 4 == 1) o.mask = Mask::causal(Align::top_left) & Mask::window(2, 0, Align::top_left);
        if (n == 2) o.to = "他 是";
        o.weights = n == 0   ? Weights(Weights::head_average)
                    : n == 1 ? Weights(Weights::column_sums)
                    : n == 2 ? Weights::top_k(1)
                             : Weights(Weights::none);
        o.cache = n % 2 == 0 ? KvStorage::int8 : KvStorage::same;
        o.packed = n % 4 != 1;
        const std::vector<std::string> texts{"我叫 张三", "李四"};
        const Explanation told = n == 5 || n == 6 ? explain_batch(texts, o) : explain(texts[0], o);
        for (const ExplainStep& step : told.steps) {
          ++steps;
          for (const std::string* text : {&step.title, &step.note, &step.source}) add_english(*text, english);
          if (step.name != "modified" && step.name != "mask") add_english(step.formula, english);
          if (step.kind == ExplainStep::Kind::keys)
            for (const std::string& column : step.columns[0]) add_english(column, english);
        }
        // without what the caller wrote: text, mask and expression
        o.score_mod = {};
        o.mask = {};
        add_english(to_text(explain(texts[0], o)), english);
        add_english(to_text(explain_batch(texts, o), {.width = 60}), english);
      }
  std::string all;
  for (const std::string& word : english) all += word + " ";
  EXPECT_EQ(all, "");
  EXPECT_GT(steps, 1000);
}

TEST(Chinese, FormulasAreSaidInWords) {
  using explain_detail::in_words;
  EXPECT_EQ(in_words(Language::zh, "softmax(masked, sink 0.5)"), "softmax(掩码后，注意力汇 0.5)");
  EXPECT_EQ(in_words(Language::zh, "weightsᵀ dO"), "权重ᵀ dO");
  EXPECT_EQ(in_words(Language::zh, "rotated q · rotated k"), "旋转后的 q · 旋转后的 k");
  EXPECT_EQ(in_words(Language::zh, "scoresheet keys mode"), "scoresheet keys mode");
  EXPECT_EQ(in_words(Language::en, "scores / √2"), "scores / √2");
}

}  // namespace
}  // namespace attn
