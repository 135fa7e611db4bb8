// tests/cli/rank_command_test.cc: attn rank: the nearest lines, by vectors or by a model of pairs; mistakes.
#include "cli/command.h"
#include "cli/small_encoder.h"
#include "model/lively.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attn::testing {
namespace {

using nlohmann::json;

class RankCommand : public ::testing::Test {
 protected:
  RankCommand() {
    write_model("mpnet", model);
    folder.write("lines.txt", random_lines(700));
  }
  const Folder folder;
  const std::string model = folder / "model", lines = folder / "lines.txt";
};

TEST_F(RankCommand, ShowsTheNearestLines) {
  folder.write("few.txt", "the dog ran in the rain\nthe cat sat on the mat\r\nblue moon\nthe cat sat on the mat");
  const Said said = attn_says("rank " + model + " 'The cat sat on the mat' " + (folder / "few.txt") + " --top 2");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "1.0000  2: the cat sat on the mat\n1.0000  4: the cat sat on the mat\n");
  const auto all = json::parse(attn_says("rank " + model + " 'blue moon' " + lines + " --top 1000 --json").out);
  ASSERT_EQ(all.at("lines").size(), 700u);
  EXPECT_EQ(all.at("of"), 700);
  double before = 2;
  for (const json& line : all.at("lines")) {
    EXPECT_LE(line.at("score").get<double>(), before);
    before = line.at("score").get<double>();
  }
}

/// A model of pairs: the score of the query and each line.
TEST_F(RankCommand, TakesACrossEncoder) {
  const std::string scores = folder / "scores";
  write_model("bert", scores);
  std::filesystem::remove(scores + "/modules.json");
  folder.write("two.txt", "the cat sat on the mat\nblue moon\n");
  const TextEncoder encoder = TextEncoder::load(scores);
  const Tensor expected = encoder.scores({{"the cat", "the cat sat on the mat"}, {"the cat", "blue moon"}});
  // [CLS] the cat [SEP] blue moon [SEP], as its segments 0 0 0 0 1 1 1
  const PackedTexts pair = packed({{1, 4, 5, 2, 14, 19, 2}}, {{0, 0, 0, 0, 1, 1, 1}});
  EXPECT_TRUE(
      same_bits(expected.narrow(0, 1, 1).contiguous(),
                sigmoid(encoder.logits(encoder.hidden(pair.ids, pair.ends, pair.segments), pair.ends)).detach()));
  const auto ranked = json::parse(attn_says("rank " + scores + " 'the cat' " + (folder / "two.txt") + " --json").out);
  ASSERT_EQ(ranked.at("lines").size(), 2u);
  for (const json& line : ranked.at("lines"))
    EXPECT_EQ(line.at("score").get<float>(),
              static_cast<float>(expected.select(0, line.at("line").get<std::int64_t>() - 1).item()));
}

TEST_F(RankCommand, MistakesAreOneLine) {
  const auto error = [&](const std::string& arguments, int code) {
    const Said said = attn_says("rank " + arguments);
    EXPECT_EQ(said.code, code) << said.err;
    EXPECT_EQ(said.out, "");
    return said.err;
  };
  const std::string missing = "attn rank: a query is missing, as in: attn rank MODEL \"a question\" lines.txt\n";
  EXPECT_EQ(error("", 2), missing);
  EXPECT_EQ(error(model + " '' " + lines, 2), missing);
  EXPECT_EQ(error(model + " cat", 2), "attn rank: a file of lines is missing; - is stdin\n");
  EXPECT_EQ(error(model + " cat " + lines + " --top 0", 2), "attn rank: --top is 0; it must be at least 1\n");
  EXPECT_EQ(error(model + " cat " + lines + " --batch 0", 2), "attn rank: --batch is 0; it must be at least 1\n");
  EXPECT_EQ(error(model + " cat " + (folder / "none.txt"), 1),
            "attn: " + (folder / "none.txt") + ": No such file or directory\n");
  EXPECT_EQ(error(model + " \"$(printf '\\377')\" " + lines, 1).find("attn: rank: the query: "), 0u);
  const std::string decoder = folder / "decoder";
  lively({.vocab_size = 31, .context = 16, .layers = 1, .heads = 2, .width = 16}).save(decoder);
  write_tokenizer(decoder);
  EXPECT_EQ(error(decoder + " cat " + lines, 1),
            "attn: " + decoder +
                "/config.json: model_type is \"gpt2\"; an encoder of texts is bert, roberta, xlm-roberta, camembert, "
                "mpnet, distilbert or modernbert\n");
  EXPECT_EQ(
      error(lines + " cat " + lines, 1),
      "attn: " + lines +
          " is a file; an encoder is a folder, as transformers or sentence-transformers stores it, or a GGUF file\n");
  // of a model of pairs: the query, not the first line, and the prompt
  const std::string scores = folder / "scores";
  write_model("bert", scores);
  std::filesystem::remove(scores + "/modules.json");
  EXPECT_EQ(error(scores + " \"$(printf '\\377')\" " + lines, 1).find("attn: rank: the query: "), 0u);
  EXPECT_EQ(error(scores + " cat " + lines + " --prompt query", 1),
            "attn: TextEncoder: the model has no prompt \"query\"; it has none\n");
  folder.write("bad.txt", "cat\n\xFF\n");
  EXPECT_EQ(error(scores + " cat " + (folder / "bad.txt"), 1).find("attn: " + (folder / "bad.txt") + ": line 2: "), 0u);
}

TEST_F(RankCommand, TakesNoLinesAndALongQuery) {
  const Said none = attn_says("rank " + model + " cat /dev/null");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.out, "");
  const json empty = json::parse(attn_says("rank " + model + " cat /dev/null --json").out);
  EXPECT_EQ(empty.at("of"), 0);
  EXPECT_TRUE(empty.at("lines").empty());
  // a query is read as far as the model reads, as a line is
  folder.write("few.txt", "the cat sat on the mat\nblue moon\n");
  std::string query;
  for (int i = 0; i < 1000; ++i) query += "the cat sat on the mat ";
  const TextEncoder encoder = TextEncoder::load(model);
  const Tensor scores = linear(encoder.embed({"the cat sat on the mat", "blue moon"}), encoder.embed({query}));
  for (const std::string top : {"2", "1000000"}) {
    const Said said = attn_says("rank " + model + " '" + query + "' " + (folder / "few.txt") + " --json --top " + top);
    ASSERT_EQ(said.code, 0) << said.err;
    const json ranked = json::parse(said.out);
    ASSERT_EQ(ranked.at("lines").size(), 2u);
    for (const json& line : ranked.at("lines"))
      EXPECT_NEAR(line.at("score").get<double>(), scores.select(0, line.at("line").get<std::int64_t>() - 1).item(),
                  1e-6);
  }
}

}  // namespace
}  // namespace attn::testing
