// tests/cli/perplexity_command_test.cc: attn perplexity from the shell, beside log-probabilities of the training pass.
#include "cli/command.h"
#include "cli/terminal.h"
#include "model/lively.h"

#include <attn/autograd.h>
#include <attn/model.h>
#include <attn/ops.h>
#include <attn/tokenizer.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <string>

namespace attn::testing {
namespace {

using Json = nlohmann::json;
using Ids = std::vector<std::int64_t>;

/// A small random model of nine letters and the space, and a text of 50.
class PerplexityCommand : public ::testing::Test {
 protected:
  PerplexityCommand() {
    const Tokenizer tokenizer = Tokenizer::train("abcdefghi ", Tokenizer::Kind::characters);
    lively({.vocab_size = tokenizer.size(), .context = 16, .layers = 2, .heads = 2, .width = 16}).save(path());
    tokenizer.save(path());
    for (int n = 0; n < 50; ++n) text_ += "abcdefghi "[n * n * n % 41 % 10];
    file_ = folder_.write("text.txt", text_);
  }
  std::string path() const { return folder_.file("model"); }
  Said says(const std::string& rest) const { return attn_says("perplexity " + path() + " " + rest); }

  /// log p of the tokens ids[skip], ... of each window; `begin` takes the place of its first token.
  std::vector<double> expected(std::int64_t window, std::int64_t skip, std::optional<std::int64_t> begin = {}) const {
    const NoGrad no_grad;
    const LanguageModel model = LanguageModel::load(path());
    Ids ids = Tokenizer::load(path()).encode(text_);
    if (begin) ids.insert(ids.begin(), *begin);
    std::vector<double> result;
    for (std::int64_t from = 0; from + window <= std::ssize(ids); from += window) {
      Ids part(ids.begin() + from, ids.begin() + from + window);
      if (begin) part[0] = *begin;
      const Tensor row = tensor<std::int64_t>(part).unsqueeze(0);
      const auto all = model.log_probabilities(row.slice(1, 0, -1), row.slice(1, 1)).to_vector();
      result.insert(result.end(), all.begin() + skip - 1, all.end());
    }
    return result;
  }
  Folder folder_;
  std::string text_, file_;
};

double perplexity_of(const std::vector<double>& log_probabilities) {
  double sum = 0;
  for (const double x : log_probabilities) sum += x;
  return std::exp(-sum / static_cast<double>(log_probabilities.size()));
}

TEST_F(PerplexityCommand, CountsTheLogProbabilitiesOfTheTrainingPass) {
  struct Windows {
    const char* options;
    std::int64_t window, skip;
  };
  for (const auto& [options, window, skip] :
       {Windows{"", 16, 9}, Windows{"--window 10", 10, 6}, Windows{"--window 7 --skip 1", 7, 1},
        Windows{"--window 2", 2, 1}, Windows{"--skip 15", 16, 15}, Windows{"--window 3", 3, 2}}) {
    SCOPED_TRACE(options);
    const Said said = says(file_ + " --json --log-probabilities " + options);
    ASSERT_EQ(said.code, 0) << said.err;
    EXPECT_EQ(said.err, "");
    const Json json = Json::parse(said.out);
    const std::vector<double> numbers = expected(window, skip);
    EXPECT_EQ(json.at("log_probabilities").get<std::vector<double>>(), numbers);
    EXPECT_DOUBLE_EQ(json.at("perplexity").get<double>(), perplexity_of(numbers));
    EXPECT_DOUBLE_EQ(json.at("nats_per_token").get<double>(), std::log(perplexity_of(numbers)));
    EXPECT_EQ(json.at("tokens"), 50);
    EXPECT_EQ(json.at("counted"), numbers.size());
    EXPECT_EQ(json.at("ids").size(), numbers.size());
    EXPECT_EQ(json.at("windows"), 50 / window);
    EXPECT_EQ(json.at("window"), window);
    EXPECT_EQ(json.at("skip"), skip);
  }
}

TEST_F(PerplexityCommand, SaysItInTwoLines) {
  const std::vector<double> numbers = expected(16, 9);
  const Json json = Json::parse(says(file_ + " --json").out);
  EXPECT_FALSE(json.contains("log_probabilities"));
  double squares = 0;
  const double mean = std::log(perplexity_of(numbers));
  for (const double x : numbers) squares += (x + mean) * (x + mean);
  const double n = static_cast<double>(numbers.size()), error = std::exp(mean) * std::sqrt(squares / n / (n - 1));
  EXPECT_NEAR(json.at("error").get<double>(), error, 1e-9 * error);
  char line[200];
  std::snprintf(line, sizeof line,
                "perplexity %.4f +/- %.4f\n21 of 50 tokens counted: 3 windows of 16, without the first 9 of each\n",
                std::exp(mean), error);
  EXPECT_EQ(says(file_).out, line);
  EXPECT_EQ(says("- <'" + file_ + "'").out, line);
  EXPECT_EQ(attn_says("perplexity " + path() + " " + file_, "ATTN_NUM_THREADS=1").out, line);
  EXPECT_NE(says(file_ + " --dtype bf16").out, line);
}

// As llama.cpp measures: the begin token stands in place of a window's first.
TEST_F(PerplexityCommand, EachWindowBeginsWithTheBeginToken) {
  const std::int64_t begin = *Tokenizer::load(path()).find("b");
  Json file = Json::parse(Tokenizer::load(path()).to_json());
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", Json::array()},
      {"special_tokens", {{"b", {{"id", "b"}, {"ids", {begin}}, {"tokens", {"b"}}}}}}};
  Tokenizer::parse(file.dump()).save(path());
  const Json json = Json::parse(says(file_ + " --json --log-probabilities --window 12 --skip 1").out);
  EXPECT_EQ(json.at("tokens"), 51);
  EXPECT_EQ(json.at("log_probabilities").get<std::vector<double>>(), expected(12, 1, begin));
}

TEST_F(PerplexityCommand, AShortTextIsOneWindow) {
  const Json json = Json::parse(says(folder_.write("short.txt", "abc") + " --json").out);
  EXPECT_EQ(json.at("windows"), 1);
  EXPECT_EQ(json.at("window"), 3);
  EXPECT_EQ(json.at("counted"), 1);
  EXPECT_EQ(json.at("error"), 0);  // one number has none
}

TEST_F(PerplexityCommand, OnATerminalItShowsHowFarItIs) {
  const Shown shown = on_terminal({command_path(), "perplexity", path(), file_}, 80);
  EXPECT_EQ(shown.code, 0);
  EXPECT_NE(shown.bytes.find("\r1 of 3: "), std::string::npos) << shown.bytes;
  EXPECT_NE(shown.bytes.find("\r\x1b[Kperplexity "), std::string::npos) << shown.bytes;
}

TEST_F(PerplexityCommand, MistakesAreOneLine) {
  struct Mistake {
    std::string arguments;
    int code;
    std::string says;
  };
  const std::string known = path() + " " + file_;
  for (const auto& [arguments, code, says] : {
           Mistake{"", 2, "attn perplexity: a model and a text are needed, as in: attn perplexity model.gguf text.txt"},
           Mistake{path(), 2,
                   "attn perplexity: a model and a text are needed, as in: attn perplexity model.gguf text.txt"},
           Mistake{known + " more", 2, "attn perplexity: \"more\" is one argument too many (attn perplexity --help)"},
           Mistake{known + " --log-probabilities", 2, "attn perplexity: --log-probabilities needs --json"},
           Mistake{known + " --dtype f8", 2, "attn perplexity: --dtype has no \"f8\"; there are f32"},
           Mistake{known + " --window 17", 1,
                   "attn: perplexity: window is 17; it must be from 2 to 16, the tokens of the context"},
           Mistake{known + " --window 1", 1,
                   "attn: perplexity: window is 1; it must be from 2 to 16, the tokens of the context"},
           Mistake{known + " --skip 16", 1,
                   "attn: perplexity: skip is 16; it must be from 1 to 15, one less than the window"},
           Mistake{known + " --window 4 --skip 0", 1,
                   "attn: perplexity: skip is 0; it must be from 1 to 3, one less than the window"},
           Mistake{path() + " - --window 4 </dev/null", 1, "attn: perplexity: stdin has 0 tokens; 2 are needed"},
           Mistake{path() + " /nowhere", 1, "attn: /nowhere: cannot be read"},
           Mistake{"/nowhere " + file_, 1, "attn: Tokenizer::load: /nowhere"},
       }) {
    const Said said = attn_says("perplexity " + arguments);
    EXPECT_EQ(said.code, code) << arguments;
    EXPECT_TRUE(said.err.starts_with(says)) << said.err;
    EXPECT_EQ(said.err.find('\n'), said.err.size() - 1) << said.err;
    EXPECT_EQ(said.out, "");
  }
  EXPECT_EQ(attn_says("perplexity " + known + " --window 17", "LC_ALL=zh_CN.UTF-8").err,
            "attn: perplexity：window 是 17；必须在 2 到 16（上下文的词元数）之间\n");
}

}  // namespace
}  // namespace attn::testing
