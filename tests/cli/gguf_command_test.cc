// tests/cli/gguf_command_test.cc: the command reads GGUF files: info, generate, explain --model, convert.
#include "model/gguf_folder.h"
#include "model/tiny_models.h"

#include "cli/command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attn::testing {
namespace {

/// Writes the tiny Llama with a tokenizer of 29 tokens: single letters, of SentencePiece's kind.
std::string write_model(const Folder& folder) {
  GgufBytes file = gguf_of_folder(golden_folder("llama"), "llama");
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81"};
  for (char c = 'a'; tokens.size() < 29; ++c) tokens.emplace_back(1, c);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[0] = 2, types[1] = types[2] = 3;
  file.text("general.name", "Tiny\nLlama").text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens);
  file.array("tokenizer.ggml.scores", 6, std::vector<float>(tokens.size()));
  file.array("tokenizer.ggml.token_type", 5, types).number("tokenizer.ggml.bos_token_id", 1);
  return folder.write("m.gguf", file.bytes());
}

TEST(GgufCommand, InfoSaysWhatTheFileHolds) {
  const Folder folder;
  const std::string path = write_model(folder);
  const Said said = attn_says("info " + path);
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.out,
            "Tiny Llama   GGUF 3\n"
            "architecture llama   2 layers, width 16, 4 heads (2 of keys and values) of 4, MLP 20\n"
            "vocabulary   29   context 32\n"
            "parameters   4464   32.0 bits each\n"
            "tensors      21 F32\n"
            "in memory    the matrices stay mapped as they are; computed in f32\n"
            "tokenizer    llama\n");
  const auto json = nlohmann::json::parse(attn_says("info --json " + path).out);
  EXPECT_EQ(json.at("tensors").at("F32"), 21);
  EXPECT_EQ(json.at("config").at("model_type"), "llama");
  EXPECT_EQ(json.at("tokens"), 29);
  EXPECT_EQ(attn_says("info " + folder.path()).err,
            "attn info: " + folder.path() +
                " is a folder; attn info reads GGUF files, and attn convert writes a folder as one\n");
}

/// What JSON says, without how long it took.
nlohmann::json facts(const std::string& text) {
  nlohmann::json json = nlohmann::json::parse(text);
  json.erase("seconds");
  json.erase("tokens_per_second");
  return json;
}

TEST(GgufCommand, AFileGeneratesAndExplainsAsItsFolder) {
  const Folder folder;
  const std::string path = write_model(folder), other = folder / "model";
  const Said converted = attn_says("convert " + path + " " + other);
  EXPECT_EQ(converted.code, 0) << converted.err;
  EXPECT_EQ(converted.out + converted.err, "");
  for (const std::string words : {"generate ", "explain --layer 1 --head 2 --json --model "}) {
    const std::string rest = words.starts_with("generate") ? " --prompt 'a bad cab' --tokens 9 --json" : " 'a bad cab'";
    const Said ours = attn_says(words + path + rest), theirs = attn_says(words + other + rest);
    EXPECT_EQ(ours.code, 0) << ours.err;
    EXPECT_EQ(facts(ours.out), facts(theirs.out));
  }
  EXPECT_EQ(attn_says("convert " + path + " " + other).err,
            "attn: convert: " + other + " holds a model already (model.safetensors); give another folder\n");
  EXPECT_EQ(attn_says("convert " + other + " " + (folder / "half") + " --dtype bf16").code, 0);
  const auto config = nlohmann::json::parse(content_of(folder / "half/config.json"));
  EXPECT_EQ(config.at("torch_dtype"), "bfloat16");
}

TEST(GgufCommand, AFileWithoutATokenizer) {
  const Folder folder;
  const std::string path = folder.write("m.gguf", gguf_of_folder(golden_folder("qwen2"), "qwen2").bytes());
  EXPECT_EQ(attn_says("generate " + path).err, "attn: GgufFile: " + path + ": tokenizer.ggml.model is missing\n");
  EXPECT_EQ(attn_says("convert " + path + " " + (folder / "model")).code, 0);
  EXPECT_FALSE(std::filesystem::exists(folder / "model/tokenizer.json"));
  EXPECT_NE(attn_says("info " + path).out.find("tokenizer    none\n"), std::string::npos);
}

}  // namespace
}  // namespace attn::testing
