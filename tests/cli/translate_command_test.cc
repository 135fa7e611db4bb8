// tests/cli/translate_command_test.cc: attn generate and attn explain with an encoder-decoder: lines, beams, samples,
// the alignment of two texts; mistakes.
#include "cli/command.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attn::testing {
namespace {

using nlohmann::json;

std::string numbers() { return golden_path("model/numbers"); }

TEST(TranslateCommand, SaysALineForEachLine) {
  const Folder folder;
  folder.write("lines.txt", "forty-two\r\nnine thousand and one\nsix");
  const Said said = attn_says("generate " + numbers() + " --prompts " + (folder / "lines.txt"));
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "四十二\n九千零一\n六\n");
  EXPECT_EQ(said.err, "");
  EXPECT_EQ(attn_says("generate " + numbers() + " --prompts - < " + (folder / "lines.txt")).out, said.out);
  EXPECT_EQ(attn_says("generate " + numbers() + " --prompt six --beams 1").out, "六\n");
  const auto best = json::parse(
      attn_says("generate " + numbers() + " --prompt 'three hundred and five' --beams 4 --samples 3 --json").out);
  ASSERT_EQ(best.at("texts").size(), 3u);
  EXPECT_EQ(best["texts"][0]["text"], "三百零五");
  EXPECT_EQ(best["texts"][0]["finish"], "end");
  EXPECT_GE(best["texts"][0]["score"].get<double>(), best["texts"][1]["score"].get<double>());
  const std::string drawn = numbers() + " --prompt six --temperature 3 --samples 3 --seed 2";
  const Said samples = attn_says("generate " + drawn);
  EXPECT_EQ(samples.code, 0) << samples.err;
  EXPECT_EQ(samples.out, attn_says("generate " + drawn, "ATTN_NUM_THREADS=1").out);
  EXPECT_EQ(attn_says("generate " + numbers() + " --prompt six --tokens 1").out, "\n");  // forced_eos_token_id
}

TEST(TranslateCommand, ShowsWhoLooksAtWhom) {
  const std::string call = "explain --model " + numbers() + " 'seven thousand' --layer 1";
  const auto average = json::parse(attn_says(call + " --json").out);
  EXPECT_EQ(average.at("text"), "七千");
  EXPECT_EQ(average.at("to"), "seven thousand");
  const json& step = average.at("steps").back();
  EXPECT_EQ(step.at("name"), "weights");
  EXPECT_EQ(json::parse(attn_says(call + " --to 七千 --json").out), average);
  const Said head = attn_says(call + " --to 七千 --head 2");
  EXPECT_EQ(head.code, 0) << head.err;
  EXPECT_NE(head.out.find("seven"), std::string::npos);
  EXPECT_NE(attn_says(call + " --svg -").out.find("<svg"), std::string::npos);
}

TEST(TranslateCommand, MistakesAreOneLine) {
  const auto error = [](const std::string& arguments, const std::string& variables = "") {
    const Said said = attn_says(arguments, variables);
    EXPECT_NE(said.code, 0) << arguments;
    EXPECT_EQ(said.out, "");
    return said.err;
  };
  const std::string model = numbers();
  EXPECT_NE(error("generate " + model).find("--prompt is missing: an encoder-decoder answers a text"),
            std::string::npos);
  EXPECT_NE(error("generate " + model + " --prompt six --draft ngram")
                .find("--draft is for language models, not for an encoder-decoder"),
            std::string::npos);
  EXPECT_NE(error("generate " + model + " --prompt six --beams 0").find("beams is 0; it must be at least 1"),
            std::string::npos);
  EXPECT_NE(error("generate " + model + " --prompt six --target-lang fr").find("no languages to choose"),
            std::string::npos);
  EXPECT_NE(error("generate " + model + " --prompt six --beams 2 --temperature 1")
                .find("beams and a temperature do not go together"),
            std::string::npos);
  EXPECT_NE(error("generate " + golden_path("model/gpt2") + " --beams 2").find("--beams is for encoder-decoders"),
            std::string::npos);
  EXPECT_NE(error("explain --model " + model + " six --gradients").find("not for an encoder-decoder"),
            std::string::npos);
  EXPECT_NE(error("explain --model " + golden_path("model/gpt2") + " six --to x").find("do not go together"),
            std::string::npos);
  EXPECT_NE(error("generate " + model + " --prompt six --beams 0", "LANG=zh_CN.UTF-8").find("必须不小于 1"),
            std::string::npos);
}

}  // namespace
}  // namespace attn::testing
