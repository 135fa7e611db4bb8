// tests/cli/generate_command_test.cc: attn generate and attn explain --model from the shell.
#include "cli/command.h"
#include "model/lively.h"

#include <attn/generate.h>
#include <attn/ops.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace attn::testing {
namespace {

using Json = nlohmann::json;

/// A small random model of a few characters, in a folder of its own.
class GenerateCommand : public ::testing::Test {
 protected:
  GenerateCommand() {
    const Tokenizer tokenizer = Tokenizer::train("abcdefgh \n\xE6\x88\x91", Tokenizer::Kind::characters);
    lively({.vocab_size = tokenizer.size(), .context = 16, .layers = 2, .heads = 2, .width = 16}).save(path());
    tokenizer.save(path());
  }
  std::string path() const { return folder_.file("model"); }
  Said says(const std::string& rest) const { return attn_says("generate " + path() + " " + rest); }
  Folder folder_;
};

TEST_F(GenerateCommand, SaysWhatTheLibrarySays) {
  const LanguageModel model = LanguageModel::load(path());
  const auto expected =
      generate_text(model, Tokenizer::load(path()), {"abc"},
                    {.tokens = {.tokens = 40,
                                .sample = {.temperature = 0.8, .top_k = 5, .top_p = 0.9, .repetition_penalty = 1.2},
                                .seed = 9}});
  const std::string options =
      "--prompt abc --tokens 40 --temperature 0.8 --top-k 5 --top-p 0.9 --repetition-penalty 1.2 --seed 9";
  const Said said = says(options);
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "abc" + expected[0].text + "\n");
  EXPECT_EQ(says(options + " --stream").out, said.out);
  const Json json = Json::parse(says(options + " --json").out);
  EXPECT_EQ(json.at("texts").at(0).at("text"), expected[0].text);
  EXPECT_EQ(json.at("texts").at(0).at("tokens").get<std::vector<std::int64_t>>(), expected[0].tokens);
  EXPECT_EQ(json.at("texts").at(0).at("finish"), "length");
}

TEST_F(GenerateCommand, PromptsOfAFileSayWhatEachSaysAlone) {
  const std::string file = folder_.write("prompts.txt",
                                         "\xEF\xBB\xBF"
                                         "abc\nd\r\n\xE6\x88\x91 a");
  const Json together = Json::parse(says("--prompts " + file + " --tokens 20 --json").out);
  ASSERT_EQ(together.at("texts").size(), 3u);
  const char* const prompts[] = {"abc", "d", "\xE6\x88\x91 a"};
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(Json::parse(says(std::string("--prompt '") + prompts[i] + "' --tokens 20 --json").out).at("texts").at(0),
              together.at("texts").at(i));
}

// As transformers with Llama 3's <|begin_of_text|>; here "b" stands first.
TEST_F(GenerateCommand, PromptsHaveWhatThePostProcessorAdds) {
  const std::int64_t first = *Tokenizer::load(path()).find("b");
  const std::string plain = says("--prompt bac --tokens 12 --temperature 0").out;
  Json file = Json::parse(Tokenizer::load(path()).to_json());
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "b"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"pair", Json::array()},
      {"special_tokens", {{"b", {{"id", "b"}, {"ids", {first}}, {"tokens", {"b"}}}}}}};
  Tokenizer::parse(file.dump()).save(path());
  EXPECT_EQ("b" + says("--prompt ac --tokens 12 --temperature 0").out, plain);
  EXPECT_EQ(says("--prompt '' --tokens 3 --json").code, 0);
  const Json steps = Json::parse(attn_says("explain --model " + path() + " ac --json").out).at("steps");
  EXPECT_EQ(steps.at(1).at("values").at(0), first) << steps.at(1);
}

TEST_F(GenerateCommand, EndsBeforeAStopText) {
  const std::string all = Json::parse(says("--prompt abc --tokens 30 --json").out).at("texts").at(0).at("text");
  const std::string stop = "e";
  ASSERT_NE(all.find(stop), std::string::npos) << all;
  const Json ended = Json::parse(says("--prompt abc --tokens 30 --stop nowhere --stop e --json").out).at("texts").at(0);
  EXPECT_EQ(ended.at("text"), all.substr(0, all.find(stop)));
  EXPECT_EQ(ended.at("finish"), "stop");
}

TEST_F(GenerateCommand, ADraftChangesNoToken) {
  const std::string options = "--prompt abcabcab --tokens 12 --seed 3 --json --log-probabilities";
  const Json plain = Json::parse(says(options).out);
  EXPECT_FALSE(plain.contains("draft"));
  EXPECT_GE(plain.at("seconds").get<double>(), 0);
  EXPECT_GE(plain.at("tokens_per_second").get<double>(), 0);
  for (const std::string& draft : {std::string("ngram"), path(), std::string("ngram --draft-tokens 2")}) {
    const Said said = says(options + " --draft " + draft);
    ASSERT_EQ(said.code, 0) << said.err;
    const Json json = Json::parse(said.out);
    EXPECT_EQ(json.at("texts"), plain.at("texts"));
    const Json& facts = json.at("draft");
    EXPECT_GT(facts.at("guessed"), 0);
    if (draft == path()) { EXPECT_EQ(facts.at("acceptance"), 1); }  // the model itself
  }
  const Json& text = plain.at("texts").at(0);
  EXPECT_EQ(text.at("log_probabilities").size(), text.at("tokens").size());
  const Generated said = generate(LanguageModel::load(path()), {Tokenizer::load(path()).encode("abcabcab")},
                                  {.tokens = 12, .seed = 3, .log_probabilities = true})[0];
  EXPECT_EQ(text.at("log_probabilities").get<std::vector<double>>(), said.log_probabilities);
  Tokenizer::train("hgfedcba \n\xE6\x88\x91 other", Tokenizer::Kind::characters).save(folder_.file("other"));
  LanguageModel::load(path()).save(folder_.file("other"));
  const std::string other = says("--prompt a --draft " + folder_.file("other")).err;
  EXPECT_NE(other.find("has other tokens: "), std::string::npos) << other;
}

TEST_F(GenerateCommand, SamplesCachesAndMinP) {
  const Json samples = Json::parse(says("--prompt abc --tokens 12 --samples 3 --seed 4 --json").out).at("texts");
  ASSERT_EQ(samples.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i)
    EXPECT_EQ(
        samples.at(i),
        Json::parse(says("--prompt abc --tokens 12 --json --seed " + std::to_string(4 + i)).out).at("texts").at(0));
  const std::string shown = says("--prompt abc --tokens 3 --samples 2").out;
  EXPECT_NE(shown.find("\n---\nabc"), std::string::npos) << shown;
  EXPECT_EQ(says("--prompt abc --tokens 20 --min-p 1").out, says("--prompt abc --tokens 20 --temperature 0").out);
  const std::string plain = says("--prompt abc --tokens 12").out;
  EXPECT_EQ(says("--prompt abc --tokens 12 --window 16 --sinks 0").out, plain);  // the whole context
  EXPECT_NE(says("--prompt abc --tokens 12 --window 2").out, plain);
  EXPECT_EQ(says("--prompt abc --tokens 12 --cache int8").code, 0);
  EXPECT_EQ(says("--prompt abc --samples 0").err, "attn: generate: samples is 0; it must be at least 1\n");
  EXPECT_EQ(says("--prompt abc --samples 2 --stream").err, "attn generate: --stream is for one text\n");
  EXPECT_EQ(says("--prompt abc --log-probabilities").err, "attn generate: --log-probabilities needs --json\n");
  EXPECT_EQ(says("--prompt abc --window -1").err, "attn: ModelCache: window is -1; it must be 0 (all) or more\n");
  EXPECT_EQ(says("--prompt abc --top-p 2 --lang zh").err, "attn: generate：top_p 是 2；必须大于 0 且不超过 1\n");
}

TEST_F(GenerateCommand, MistakesAreOneLine) {
  EXPECT_EQ(
      attn_says("generate").err,
      "attn generate: a model is missing: a GGUF file, or a folder of attn train or of Hugging Face's GPT-2, Llama, "
      "Mistral, Qwen, Gemma, Phi or SmolLM\n");
  EXPECT_NE(says("--prompts " + folder_.write("gap.txt", "abc\n\nd\n"))
                .err.find("gap.txt: line 2 is empty; each line is a prompt"),
            std::string::npos);
  EXPECT_EQ(says("--prompts " + folder_.file("gap.txt")).code, 1);
  EXPECT_NE(says("--prompts " + folder_.write("strange.txt", "abc\nxyz\n"))
                .err.find("strange.txt: line 2: encode: \"x\" is not among"),
            std::string::npos);
  EXPECT_EQ(shell(": | " + attn_command + " generate " + path() + " --prompts -").err,
            "attn: stdin holds no line; each line is a prompt\n");
  EXPECT_EQ(says("--prompt a --temperature 1e999").err,
            "attn: generate: temperature is inf; it must be 0 or more, and finite\n");
  EXPECT_EQ(says("--prompt a --temperature 1e-999 --tokens 9").out, says("--prompt a --temperature 0 --tokens 9").out);
  EXPECT_EQ(says("--prompt a --prompts b").err, "attn generate: --prompt and --prompts do not go together\n");
  EXPECT_EQ(says("--top-p 2").err, "attn: generate: top_p is 2; it must be above 0, at most 1\n");
  EXPECT_EQ(says("--top-p 2").code, 1);
  EXPECT_EQ(says("--stream --json").code, 2);
  for (const char* wrong : {"--prompt xyz", "--prompt a --top-p 2", "--prompt a --tokens -1", "--prompt ''"}) {
    EXPECT_EQ(says(std::string("--stream ") + wrong).out, "") << wrong;
    EXPECT_EQ(says(std::string("--stream ") + wrong).code, 1) << wrong;
  }
  EXPECT_EQ(attn_says("generate " + folder_.file("nowhere")).code, 1);
  Tokenizer::train("abcdefgh xy", Tokenizer::Kind::characters).save(path());  // of a text of one line
  EXPECT_EQ(says("").err,
            "attn generate: --prompt is missing: the line's end that stands for it is no token of this model\n");
  EXPECT_EQ(says("").code, 2);
  EXPECT_EQ(says("--prompt x --tokens 3").code, 0);
}

TEST_F(GenerateCommand, ExplainShowsAsManyTokensOfAModelAsOfAText) {
  const Tokenizer tokenizer = Tokenizer::load(path());
  const LanguageModel model({.vocab_size = tokenizer.size(),
                             .context = 1 << 20,
                             .layers = 1,
                             .heads = 1,
                             .width = 2,
                             .positions = ModelConfig::Positions::rotary});
  model.save(folder_.file("long"));
  tokenizer.save(folder_.file("long"));
  const std::string file = folder_.write("text", std::string(2049, 'a'));
  EXPECT_EQ(attn_says("explain --model " + folder_.file("long") + " - <" + file).err,
            "attn: explain: the text has 2049 tokens; at most 2048 can be shown\n");
}

TEST_F(GenerateCommand, ExplainShowsTheWindowOfAModel) {
  const Tokenizer tokenizer = Tokenizer::load(path());
  const LanguageModel model({.vocab_size = tokenizer.size(),
                             .context = 16,
                             .layers = 1,
                             .heads = 1,
                             .width = 8,
                             .qk_norm = true,
                             .sliding_window = 3});
  model.save(folder_.file("windows"));
  tokenizer.save(folder_.file("windows"));
  const Json explained =
      Json::parse(attn_says("explain --model " + folder_.file("windows") + " abcdefgh --gradients --json").out);
  EXPECT_EQ(explained.at("mask"), "causal & window(2, 0)");
  const LanguageModel::Heads heads = model.heads(tensor<std::int64_t>(tokenizer.encode("abcdefgh")).unsqueeze(0), 0);
  const Tensor weights =
      attention(heads.q, heads.k, heads.v, {.mask = Mask::causal() & Mask::window(2, 0), .weights = Weights::full})
          .weights[0][0];
  for (const Json& step : explained.at("steps")) {
    const std::string name = step.at("name");
    const std::map<std::string, std::string> formulas{
        {"q", "norm(norm(x) W)"}, {"k", "norm(norm(x) W)"}, {"v", "norm(x) W"}, {"mask", "causal & window(2, 0)"}};
    const auto formula = formulas.find(name);
    EXPECT_EQ(step.value("formula", ""), formula == formulas.end() ? step.value("formula", "") : formula->second);
    if (name != "weights") continue;
    for (std::int64_t i = 0; i < 8; ++i)
      for (std::int64_t j = 0; j < 8; ++j) {
        const Json& shown = step.at("values").at(static_cast<std::size_t>(i)).at(static_cast<std::size_t>(j));
        EXPECT_EQ(shown.is_null(), j > i || j < i - 2) << i << ", " << j;
        EXPECT_EQ(shown.is_null() ? 0 : static_cast<float>(shown.get<double>()), weights[i][j].item());
      }
  }
}

TEST_F(GenerateCommand, ExplainShowsATrainedHead) {
  const Said said = attn_says("explain --model " + path() + " 'ab \xE6\x88\x91' --layer 1 --head 1 --json");
  ASSERT_EQ(said.code, 0) << said.err;
  const Json steps = Json::parse(said.out).at("steps");
  const auto step = [&](const std::string& name) {
    for (const Json& one : steps)
      if (one.at("name") == name) return one;
    ADD_FAILURE() << name;
    return Json();
  };
  const LanguageModel model = LanguageModel::load(path());
  const LanguageModel::Heads heads =
      model.heads(tensor<std::int64_t>(Tokenizer::load(path()).encode("ab \xE6\x88\x91")).unsqueeze(0), 1);
  const Tensor context = attention(heads.q, heads.k, heads.v, {.mask = Mask::causal()}).output[0][1];
  std::vector<double> shown;
  const Json rows = step("context").at("values");
  for (const Json& row : rows)
    for (const Json& value : row) shown.push_back(static_cast<float>(value.get<double>()));
  EXPECT_EQ(shown, context.to_vector());
  EXPECT_TRUE(step("weights").at("values").at(0).at(1).is_null());
  EXPECT_NE(attn_says("explain --model " + path() + " ab").out.find("layer 0, head 0"), std::string::npos);
  const std::string two = attn_says("explain --model " + path() + " ab --only weights,context --lang zh").out;
  EXPECT_TRUE(two.starts_with(" 9  注意力权重") && two.find("打分  ") == std::string::npos) << two;
  EXPECT_NE(attn_says("explain --model " + path() + " ab --only q --lang zh").out.find("第 0 层，第 0 头"),
            std::string::npos);
  EXPECT_EQ(
      attn_says("explain --model " + path() + " ab --only joined").err,
      "attn: explain: there is no step \"joined\"; there are tokens, ids, q, k, v, scores, scaled, mask, weights, "
      "context\n");
  EXPECT_EQ(attn_says("explain --model " + path() + " ab --head 2").err,
            "attn: explain: head is 2; it must be from 0 to 1\n");
  EXPECT_EQ(attn_says("explain --model " + path() + " ab --layer -1").code, 1);
  EXPECT_EQ(attn_says("explain --model " + path() + " abcdefghabcdefgha").err,
            "attn: explain: the text has 17 tokens; the model's context holds 16\n");
  EXPECT_EQ(attn_says("explain --model " + path() + " ''").err,
            "attn: explain: the text has no token; give at least one word\n");
  EXPECT_EQ(attn_says("explain --model " + path() + " ab --dim 4").err,
            "attn explain: --dim and --model do not go together: the model says it\n");
  EXPECT_EQ(attn_says("explain ab --layer 1").err, "attn explain: --layer needs --model\n");
}

}  // namespace
}  // namespace attn::testing
