// tests/cli/embed_command_test.cc: attn embed and attn rank: the vectors of lines, the same bits whatever is done at
// the same time; it goes on after a kill; the nearest lines.
#include <attn/npy.h>

#include "cli/command.h"
#include "model/encoders.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <random>

namespace attn::testing {
namespace {

using nlohmann::json;

const std::vector<std::string> words = {"the", "cat",  "dog", "sat", "ran", "on",  "in",   "mat", "rain",
                                        "red", "blue", "a",   "is",  "of",  "sun", "moon", "sea"};

/// Writes a tokenizer of 31 tokens: special ones, words, and the pieces of other words.
void write_tokenizer(const std::string& folder) {
  json vocabulary = {{"[PAD]", 0}, {"[CLS]", 1}, {"[SEP]", 2}, {"[UNK]", 3}};
  for (const std::string& word : words) vocabulary[word] = vocabulary.size();
  for (const char* piece : {"s", "t", "##s", "##t", "##ed", "##ing"}) vocabulary[piece] = vocabulary.size();
  const auto part = [](const char* kind, const char* id, int type) {
    return json{{kind, {{"id", id}, {"type_id", type}}}};
  };
  const json cls = part("SpecialToken", "[CLS]", 0), sep = part("SpecialToken", "[SEP]", 0),
             first = part("Sequence", "A", 0);
  const auto special = [](const char* name, int id) { return json{{"id", name}, {"ids", {id}}, {"tokens", {name}}}; };
  json added = json::array();
  for (const auto& [name, id] : {std::pair("[PAD]", 0), {"[CLS]", 1}, {"[SEP]", 2}, {"[UNK]", 3}})
    added.push_back({{"id", id},
                     {"content", name},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", added},
                          {"normalizer",
                           {{"type", "BertNormalizer"},
                            {"clean_text", true},
                            {"handle_chinese_chars", true},
                            {"strip_accents", nullptr},
                            {"lowercase", true}}},
                          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
                          {"post_processor",
                           {{"type", "TemplateProcessing"},
                            {"single", {cls, first, sep}},
                            {"pair", {cls, first, sep, part("Sequence", "B", 1), part("SpecialToken", "[SEP]", 1)}},
                            {"special_tokens", {{"[CLS]", special("[CLS]", 1)}, {"[SEP]", special("[SEP]", 2)}}}}},
                          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
                          {"model",
                           {{"type", "WordPiece"},
                            {"unk_token", "[UNK]"},
                            {"continuing_subword_prefix", "##"},
                            {"max_input_chars_per_word", 100},
                            {"vocab", vocabulary}}}};
  write_text(folder + "/tokenizer.json", tokenizer.dump());
}

/// Writes a model that gives vectors (mpnet) or a score (bert), with a tokenizer and prompts.
void write_model(const std::string& family, const std::string& folder) {
  std::filesystem::create_directories(folder);
  write_sentence_folder(golden_path("model/encoders/" + family), folder, R"({"pooling_mode_mean_tokens": true})", true);
  write_tokenizer(folder);
}

/// Random lines of words, some empty, with what the vocabulary does not have.
std::string random_lines(int count, std::uint32_t seed = 3) {
  std::mt19937 random(seed);
  std::string text;
  for (int line = 0; line < count; ++line) {
    for (auto left = random() % 20; left > 0; --left)
      text += words[random() % words.size()] +
              (random() % 4 == 0   ? "s"
               : random() % 9 == 0 ? "\xE4\xB8\xAD"
                                   : "") +
              " ";
    text += "\n";
  }
  return text;
}

class EmbedCommand : public ::testing::Test {
 protected:
  EmbedCommand() {
    write_model("mpnet", model);
    folder.write("lines.txt", random_lines(700));
  }
  Said embed(const std::string& options, const std::string& variables = "") const {
    return attn_says("embed " + model + " " + options, variables);
  }
  std::string out(const std::string& name) const { return folder / name; }
  const Folder folder;
  const std::string model = folder / "model", lines = folder / "lines.txt";
};

TEST_F(EmbedCommand, ALineIsARow) {
  const Said said = embed(lines + " --out " + out("v.npy"));
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out, "700 lines, 16 numbers each, in " + out("v.npy") + "\n");
  const Tensor vectors = load_npy(out("v.npy"));
  EXPECT_EQ(vectors.sizes(), (Dims{700, 16}));
  EXPECT_TRUE(within(norm(vectors, 2, {1}), ones({700}), 1e-6));
  EXPECT_EQ(content_of(out("v.npy")), [&] {
    const auto bytes = npy_bytes(vectors);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }());
  EXPECT_EQ(folder.entries(), 3u);  // no FILE.part is left
  const TextEncoder encoder = TextEncoder::load(model);
  EXPECT_TRUE(same_bits(encoder.embed({"the cat sat on the mat"}), encoder.embed({"  The Cat sat on the MAT "})));
}

/// Batches, threads, targets, stdin, the order of the lines.
TEST_F(EmbedCommand, BitsDependOnNothingElse) {
  ASSERT_EQ(embed(lines + " --out " + out("v.npy")).code, 0);
  const std::string expected = content_of(out("v.npy"));
  const auto same = [&](const std::string& options, const std::string& variables) {
    const Said said = embed(options + " --out " + out("w.npy"), variables);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_TRUE(content_of(out("w.npy")) == expected) << options << " " << variables;
  };
  same(lines + " --batch 1", "");
  same(lines + " --batch 100000", "ATTN_NUM_THREADS=1");
  same(lines, "ATTN_NUM_THREADS=3");
  same("- <" + lines, "");
  for (const std::string target : {"amx", "avx512", "avx2", "neon", "scalar"})
    if (attn_says("info", "ATTN_TARGET=" + target).code == 0) same(lines, "ATTN_TARGET=" + target);
  ASSERT_EQ(shell("tac " + lines + " >" + out("back.txt")).code, 0);
  ASSERT_EQ(embed(out("back.txt") + " --out " + out("back.npy")).code, 0);
  const Tensor forward = load_npy(out("v.npy")), back = load_npy(out("back.npy"));
  for (std::int64_t i = 0; i < 700; ++i) EXPECT_TRUE(same_bits(forward.select(0, i), back.select(0, 699 - i)));
}

/// Killed anywhere: what is there is kept, and the end is the same file.
TEST_F(EmbedCommand, GoesOnAfterAKill) {
  ASSERT_EQ(embed(lines + " --out " + out("v.npy")).code, 0);
  const std::string part = out("w.npy.part");
  // the first 300 lines arrive, and the command is killed while it waits for more
  const Said killed = shell("mkfifo " + out("p") + "; " + attn_command + " embed " + model + " - --out " +
                            out("w.npy") + " <" + out("p") + " & id=$!; exec 3>" + out("p") + "; head -n 300 " + lines +
                            " >&3; for i in $(seq 600); do grep -aq " + "'vectors 256 of' " + part +
                            " && break; sleep 0.1; done; kill -9 $id; wait $id; rm " + out("p"));
  ASSERT_TRUE(std::filesystem::exists(part)) << killed.err;
  EXPECT_FALSE(std::filesystem::exists(out("w.npy")));
  const Said wrong = embed("- --out " + out("w.npy") + " <" + out("lines.txt") + " --prompt x");
  EXPECT_EQ(wrong.err, "attn: TextEncoder: the model has no prompt \"x\"; it has none\n");
  folder.write("other.txt", random_lines(700, 4));
  EXPECT_EQ(embed(out("other.txt") + " --out " + out("w.npy")).err,
            "attn: " + part + " holds the vectors of 256 other lines; remove it to begin anew\n");
  EXPECT_EQ(embed(lines + " --dtype bf16 --out " + out("w.npy")).err,
            "attn: " + part + " holds vectors of another model, prompt or dtype; remove it to begin anew\n");
  std::ofstream(part, std::ios::binary | std::ios::app) << "half a row";
  const Said said = embed(lines + " --json --out " + out("w.npy"));
  EXPECT_EQ(said.code, 0) << said.err;
  const json facts = json::parse(said.out);
  EXPECT_EQ(facts.at("lines"), 700);
  EXPECT_EQ(facts.at("before"), 256);
  EXPECT_EQ(facts.at("whole"), true);
  EXPECT_TRUE(content_of(out("w.npy")) == content_of(out("v.npy")));
  EXPECT_FALSE(std::filesystem::exists(part));
}

TEST_F(EmbedCommand, MistakesAreOneLine) {
  const auto error = [&](const std::string& arguments, int code) {
    const Said said = attn_says(arguments);
    EXPECT_EQ(said.code, code) << said.err;
    EXPECT_EQ(said.out, "");
    return said.err;
  };
  EXPECT_EQ(error("embed", 2), "attn embed: --out is missing: the file for the vectors, as in: --out vectors.npy\n");
  EXPECT_EQ(error("embed --out v.npy", 2),
            "attn embed: a folder is missing: of an encoder, as transformers or sentence-transformers stores it\n");
  EXPECT_EQ(error("embed " + model + " --out v.npy", 2), "attn embed: a file of lines is missing; - is stdin\n");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out -", 2),
            "attn embed: --out is -; vectors need a file (./- has that name)\n");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out /dev/null", 1),
            "attn: /dev/null is there and is no file; vectors need a file\n");
  EXPECT_EQ(error("embed " + model + " " + (folder / "none.txt") + " --out " + out("v.npy"), 1),
            "attn: " + (folder / "none.txt") + ": No such file or directory\n");
  EXPECT_EQ(error("embed " + model + " " + folder.path() + " --out " + out("v.npy"), 1),
            "attn: " + folder.path() + ": Is a directory\n");
  folder.write("v.npy.part", "something else");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out " + out("v.npy"), 1),
            "attn: " + out("v.npy.part") +
                " is not the beginning of a file of vectors of 16 numbers; remove it to begin anew\n");
  EXPECT_EQ(content_of(out("v.npy.part")), "something else");
  std::filesystem::remove(out("v.npy.part"));
  folder.write("bad.txt", random_lines(300) + "\xFF\n");
  EXPECT_EQ(error("embed " + model + " " + out("bad.txt") + " --out " + out("v.npy"), 1)
                .find("attn: " + out("bad.txt") + ": line 301: "),
            0u);
  write_model("bert", folder / "scores");
  EXPECT_EQ(error("embed " + (folder / "scores") + " " + lines + " --out " + out("x.npy"), 1),
            "attn: embed: " + (folder / "scores") + " gives scores of pairs, no vectors; attn rank uses it\n");
  std::filesystem::remove(model + "/tokenizer.json");
  EXPECT_EQ(error("embed " + model + " " + lines + " --out " + out("x.npy"), 1),
            "attn: TextEncoder: the model's folder has no tokenizer.json; it is needed for texts\n");
}

TEST_F(EmbedCommand, NoLinesAreNoRows) {
  EXPECT_EQ(embed("/dev/null --out " + out("v.npy")).code, 0);
  EXPECT_EQ(load_npy(out("v.npy")).sizes(), (Dims{0, 16}));
}

TEST_F(EmbedCommand, PromptsStandBeforeTheTexts) {
  write_text(model + "/config_sentence_transformers.json",
             R"({"prompts": {"query": "the red ", "passage": "the blue "}, "default_prompt_name": null})");
  folder.write("two.txt", "cat\nsun sea\n");
  ASSERT_EQ(embed(out("two.txt") + " --prompt query --out " + out("v.npy")).code, 0);
  const TextEncoder encoder = TextEncoder::load(model);
  EXPECT_TRUE(same_bits(load_npy(out("v.npy")), encoder.embed({"the red cat", "the red sun sea"})));
  EXPECT_EQ(embed(out("two.txt") + " --prompt document --out " + out("w.npy")).err,
            "attn: TextEncoder: the model has no prompt \"document\"; it has passage, query\n");
  const json ranked = json::parse(attn_says("rank " + model + " cat " + out("two.txt") + " --json").out);
  const Tensor query = encoder.embed({"the red cat"}), passages = encoder.embed({"the blue cat", "the blue sun sea"});
  const Tensor scores = linear(passages, query).select(1, 0);
  for (const json& line : ranked.at("lines"))
    EXPECT_NEAR(line.at("score").get<double>(), scores.select(0, line.at("line").get<std::int64_t>() - 1).item(), 1e-6);
}

TEST_F(EmbedCommand, RankShowsTheNearestLines) {
  folder.write("few.txt", "the dog ran in the rain\nthe cat sat on the mat\r\nblue moon\nthe cat sat on the mat");
  const Said said = attn_says("rank " + model + " 'The cat sat on the mat' " + out("few.txt") + " --top 2");
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
TEST_F(EmbedCommand, RankTakesACrossEncoder) {
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
  const auto ranked = json::parse(attn_says("rank " + scores + " 'the cat' " + out("two.txt") + " --json").out);
  for (const json& line : ranked.at("lines"))
    EXPECT_EQ(line.at("score").get<float>(),
              static_cast<float>(expected.select(0, line.at("line").get<std::int64_t>() - 1).item()));
}

TEST_F(EmbedCommand, SpeaksChinese) {
  EXPECT_EQ(embed(lines + " --out " + out("v.npy") + " --prompt x", "LANG=zh_CN.UTF-8").err,
            "attn: TextEncoder：模型没有提示“x”；它没有任何提示\n");
}

}  // namespace
}  // namespace attn::testing
