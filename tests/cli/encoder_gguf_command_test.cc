// tests/cli/encoder_gguf_command_test.cc: attn convert writes encoders as GGUF files, and attn embed reads them: the
// vectors are those of the decoded weights, to the bit.
#include <attn/gguf.h>
#include <attn/npy.h>
#include <attn/safetensors.h>

#include "cli/command.h"
#include "cli/small_encoder.h"
#include "model/encoder/gguf_file.h"
#include "model/encoder/names.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class EncoderGguf : public ::testing::Test {
 protected:
  EncoderGguf() {
    manual_seed(7);
    const EncoderConfig config = EncoderConfig::from_json(config_text());
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const StoredTensor& one : encoder_tensors(config)) tensors.emplace_back(one.name, randn(one.sizes) * 0.3);
    write_folder(model, tensors);
    folder.write("lines.txt", random_lines(60));
  }
  static std::string config_text() {
    return json{{"model_type", "bert"},          {"vocab_size", 30},     {"max_position_embeddings", 48},
                {"num_hidden_layers", 2},        {"hidden_size", 64},    {"num_attention_heads", 4},
                {"intermediate_size", 96},       {"type_vocab_size", 2}, {"pad_token_id", 0},
                {"architectures", {"BertModel"}}}
        .dump();
  }
  void write_folder(const std::string& to, const std::vector<std::pair<std::string, Tensor>>& tensors) const {
    fs::create_directories(to);
    const std::string from = folder / "bare";
    fs::create_directories(from);
    write_text(from + "/config.json", config_text());
    save_safetensors(from + "/model.safetensors", tensors);
    write_sentence_folder(from, to, R"({"pooling_mode_cls_token": true})", normalize);
    write_text(to + "/sentence_bert_config.json", R"({"max_seq_length": 20})");
    write_text(to + "/config_sentence_transformers.json",
               R"({"prompts": {"query": "the cat ", "document": ""}, "default_prompt_name": "document"})");
    write_tokenizer(to);
    fs::remove_all(from);
  }
  std::string converted(const std::string& type) const {
    const std::string file = folder / (type + ".gguf");
    const Said said = attn_says("convert " + model + " " + file + " --type " + type);
    EXPECT_EQ(said.code, 0) << said.err;
    return file;
  }
  std::string vectors(const std::string& from, const std::string& options = "",
                      const std::string& variables = "") const {
    const std::string out = folder / "v.npy";
    const Said said = attn_says("embed " + from + " " + lines + " --out " + out + " " + options, variables);
    EXPECT_EQ(said.code, 0) << said.err;
    const std::string content = content_of(out);
    fs::remove(out);
    return content;
  }
  bool normalize = true;
  const Folder folder;
  const std::string model = folder / "model", lines = folder / "lines.txt";
};

TEST_F(EncoderGguf, VectorsAreThoseOfTheFolder) {
  const std::string file = converted("F32");
  EXPECT_TRUE(vectors(file) == vectors(model));
  EXPECT_TRUE(vectors(file, "--prompt query") == vectors(model, "--prompt query"));
  const TextEncoder folder_encoder = TextEncoder::load(model), encoder = TextEncoder::load(file);
  EXPECT_EQ(encoder.pooling, folder_encoder.pooling);
  EXPECT_EQ(encoder.prompts, folder_encoder.prompts);
  EXPECT_EQ(encoder.max_tokens, 20);
  const std::string text = "the Cats sat, on a tinmat \xE4\xB8\xAD ...";
  EXPECT_EQ(encoder.tokenizer().encode_text(text).ids, folder_encoder.tokenizer().encode_text(text).ids);
}

/// In every type, whatever is computed at the same time.
TEST_F(EncoderGguf, VectorsOfBlocksAreThoseOfTheDecodedWeights) {
  for (const char* type : {"Q8_0", "Q4_0", "F16", "BF16"}) {
    SCOPED_TRACE(type);
    const std::string path = converted(type), decoded = folder / (std::string("decoded_") + type);
    const GgufFile file = GgufFile::open(path);
    EXPECT_EQ(file.find("blk.0.ffn_down.weight")->type, type);
    EXPECT_EQ(file.find("position_embd.weight")->type, "F32");
    const EncoderConfig config = gguf::encoder_config_of(file);
    const std::vector<StoredTensor> names = encoder_tensors(config);
    const std::vector<gguf::Stored> stored = gguf::stored_of_encoder(config);
    ASSERT_EQ(names.size(), stored.size());  // in the same order
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (std::size_t i = 0; i < names.size(); ++i) tensors.emplace_back(names[i].name, file.tensor(stored[i].name));
    write_folder(decoded, tensors);
    const std::string expected = vectors(decoded);
    EXPECT_TRUE(vectors(path) == expected);
    EXPECT_TRUE(vectors(path, "--batch 1", "ATTN_NUM_THREADS=1") == expected);
    EXPECT_TRUE(vectors(path, "--batch 7", "ATTN_NUM_THREADS=3") == expected);
    EXPECT_TRUE(vectors(path, "", "ATTN_TARGET=avx2") == expected);
  }
}

TEST_F(EncoderGguf, VectorsThatAreNotNormalisedStayAsTheyAre) {
  normalize = false;
  fs::remove_all(model);
  manual_seed(8);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const StoredTensor& one : encoder_tensors(EncoderConfig::from_json(config_text())))
    tensors.emplace_back(one.name, randn(one.sizes) * 0.3);
  write_folder(model, tensors);
  EXPECT_TRUE(vectors(converted("F32")) == vectors(model));
}

TEST_F(EncoderGguf, InfoSaysWhatTheFileHolds) {
  const Said said = attn_says("info " + converted("Q8_0"));
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_NE(said.out.find("architecture bert   2 layers, width 64, 4 heads (4 of keys and values) of 16, MLP 96\n"
                          "vocabulary   30   context 48\n"),
            std::string::npos)
      << said.out;
  EXPECT_NE(
      said.out.find("in memory    the matrices stay mapped as they are; computed in f32\ntokenizer    bert, default"),
      std::string::npos)
      << said.out;
}

TEST_F(EncoderGguf, MistakesAreOneLine) {
  const auto error = [&](const std::string& arguments) {
    const Said said = attn_says(arguments);
    EXPECT_EQ(said.code, 1) << said.err;
    return said.err;
  };
  const std::string file = converted("Q8_0"), other = folder / "other";
  for (const std::string& arguments : {file + " " + other, file + " " + other + ".gguf", model + " " + other}) {
    const std::string from = arguments.substr(0, arguments.find(' '));
    EXPECT_EQ(error("convert " + arguments), "attn: convert: " + from +
                                                 " holds an encoder of texts; attn writes the folder of one as a GGUF "
                                                 "file, and nothing else\n");
  }
  write_text(model + "/1_Pooling/config.json", R"({"pooling_mode_max_tokens": true})");
  EXPECT_EQ(error("convert " + model + " " + other + ".gguf"),
            "attn: convert: the encoder has another pooling than mean, cls or the last token\n");
  for (const auto& [family, says] :
       {std::pair("mpnet",
                  "is MPNet; attn writes BERT, RoBERTa and DistilBERT as GGUF files, and computes others from "
                  "their folder"),
        {"bert", "gives scores of pairs, which attn computes from its folder; GGUF files are of vectors"}}) {
    write_model(family, folder / family);
    EXPECT_EQ(error("convert " + (folder / family) + " " + other + ".gguf"),
              std::string("attn: convert: the encoder ") + says + "\n");
  }
  EXPECT_FALSE(fs::exists(other) || fs::exists(other + ".gguf"));
}

}  // namespace
}  // namespace attn::testing
