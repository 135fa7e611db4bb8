// tests/model/gguf_model_test.cc: models in GGUF files are those of the folders that they were made of, bit for bit;
// what attn does not read is refused by name.
#include "model/gguf/write.h"
#include "model/gguf_folder.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::error_of;
using testing::Folder;
using testing::GgufBytes;
using testing::golden_folder;

class GgufModel : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(GgufModel, IsThatOfTheFolder) {
  const auto [name, architecture] = GetParam();
  const Folder folder;
  const std::string path =
      folder.write("model.gguf", testing::gguf_of_folder(golden_folder(name), architecture).bytes());
  const LanguageModel model = LanguageModel::load(path), theirs = LanguageModel::load(golden_folder(name));
  ModelConfig same = theirs.config;
  same.dropout = 0;  // of training: it is not in the file
  EXPECT_EQ(model.config.to_json(), same.to_json());
  const nn::StateDict ours = model.decoded().state_dict(), expected = theirs.state_dict();
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    EXPECT_EQ(ours[i].first, expected[i].first);
    EXPECT_TRUE(same_bits(ours[i].second, expected[i].second)) << ours[i].first;
  }
  const Tensor ids = randint(0, 20, {2, 9});
  EXPECT_TRUE(same_bits(model(ids).detach(), theirs(ids).detach()));
  EXPECT_EQ(LanguageModel::load(path, Dtype::bf16).dtype(), Dtype::bf16);
  EXPECT_TRUE(same_bits(LanguageModel::load(path, Dtype::bf16).decoded().state_dict()[0].second,
                        expected[0].second.to(Dtype::bf16)));
}

/// A file that attn writes is read as the same model.
TEST_P(GgufModel, IsWrittenAndReadAgain) {
  const Folder folder;
  const LanguageModel model = LanguageModel::load(golden_folder(GetParam().first));
  gguf::write(folder / "m.gguf", model, nullptr, "F32");
  const LanguageModel again = LanguageModel::load(folder / "m.gguf");
  ModelConfig same = model.config;
  same.dropout = 0;
  EXPECT_EQ(again.config.to_json(), same.to_json());
  const nn::StateDict ours = again.decoded().state_dict(), expected = model.state_dict();
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(same_bits(ours[i].second, expected[i].second)) << ours[i].first;
}

INSTANTIATE_TEST_SUITE_P(Every, GgufModel,
                         ::testing::Values(std::pair{"gpt2", "gpt2"}, std::pair{"llama", "llama"},
                                           std::pair{"llama3", "llama"}, std::pair{"mistral", "llama"},
                                           std::pair{"qwen2", "qwen2"}, std::pair{"qwen3", "qwen3"}),
                         [](const auto& info) { return std::string(info.param.first); });

/// Returns what is said to a file that `change` made of the tiny Llama's.
template <typename F>
std::string refused(F&& change) {
  const Folder folder;
  GgufBytes file = testing::gguf_of_folder(golden_folder("llama"), "llama");
  change(file);
  const std::string path = folder.write("m.gguf", file.bytes());
  std::string text = error_of<ValueError>([&] { LanguageModel::load(path); });
  const std::string begin = "GgufFile: " + path + ": ";
  EXPECT_TRUE(text.starts_with(begin)) << text;
  return text.substr(std::min(begin.size(), text.size()));
}

void replace_key(GgufBytes& file, const std::string& name) {
  std::erase_if(file.keys, [&](const std::string& key) { return key.starts_with(testing::text_of(name)); });
}

TEST(GgufModels, WhatAttnDoesNotReadIsNamed) {
  EXPECT_EQ(refused([](GgufBytes& file) {
              replace_key(file, "general.architecture");
              file.text("general.architecture", "mamba");
            }),
            "general.architecture is \"mamba\"; attn reads llama, qwen2, qwen3, gemma2, gemma3, phi3, smollm3, gpt2");
  EXPECT_EQ(
      refused([](GgufBytes& file) {
        replace_key(file, "general.architecture");
        file.text("general.architecture", "qwen3moe");
      }),
      "general.architecture is \"qwen3moe\"; attn reads llama, qwen2, qwen3, gemma2, gemma3, phi3, smollm3, gpt2, no "
      "mixtures of experts");
  EXPECT_EQ(refused([](GgufBytes& file) { replace_key(file, "general.architecture"); }),
            "general.architecture is missing");
  EXPECT_EQ(refused([](GgufBytes& file) { replace_key(file, "llama.block_count"); }), "llama.block_count is missing");
  EXPECT_EQ(refused([](GgufBytes& file) { file.number("llama.expert_count", 8); }),
            "llama.expert_count is 8; attn's models have no such thing: it must be 0");
  EXPECT_EQ(
      refused([](GgufBytes& file) { file.text("llama.rope.scaling.type", "ntk"); }),
      "llama.rope.scaling.type is \"ntk\"; attn reads none, linear, yarn, and the factors of Llama 3 and Phi-3 in "
      "tables");
  EXPECT_EQ(refused([](GgufBytes& file) { file.text("llama.rope.scaling.type", "yarn"); }),
            "llama.rope.scaling.original_context_length is missing");
  EXPECT_EQ(refused([](GgufBytes& file) { file.real("llama.final_logit_softcapping", 30); }),
            "llama.final_logit_softcapping is 30; attn's models have no such thing: it must be 0");
  EXPECT_EQ(refused([](GgufBytes& file) { file.boolean("llama.attention.causal", false); }),
            "llama.attention.causal is false; it must be true");
  EXPECT_EQ(refused([](GgufBytes& file) {
              replace_key(file, "llama.rope.dimension_count");
              file.number("llama.rope.dimension_count", 2);
            }),
            "llama.rope.dimension_count is 2; this architecture's models rotate whole heads: it must be 4");
  EXPECT_EQ(refused([](GgufBytes& file) {
              replace_key(file, "llama.attention.value_length");
              file.number("llama.attention.value_length", 2);
            }),
            "llama.attention.value_length is 2; it must be that of keys, 4");
  EXPECT_EQ(refused([](GgufBytes& file) {
              replace_key(file, "llama.attention.head_count");
              file.array<std::int32_t>("llama.attention.head_count", 5, {4, 2});
            }),
            "llama.attention.head_count is an array of 2; its elements must be equal");
  EXPECT_EQ(refused([](GgufBytes& file) {
              replace_key(file, "llama.attention.head_count");
              file.number("llama.attention.head_count", 0);
            }),
            "ModelConfig: heads is 0; it must be from 1 to 2147483647");
  EXPECT_EQ(refused([](GgufBytes& file) { file.number("tokenizer.ggml.eot_token_id", 29); }),
            "tokenizer.ggml.eot_token_id is 29; there are 29 tokens");
}

TEST(GgufModels, TensorsThatDoNotFitAreNamed) {
  EXPECT_EQ(refused([](GgufBytes& file) {
              replace_key(file, "llama.block_count");
              file.number("llama.block_count", 2000000000);
            }),
            "block_count is 2000000000; there are only 21 tensors");
  EXPECT_EQ(refused([](GgufBytes& file) {
              for (auto& tensor : file.tensors) {
                if (tensor.name == "blk.1.ffn_up.weight") tensor.name = "blk.1.ffn_up_exps.weight";
                if (tensor.name == "output_norm.weight") tensor.sizes = {4, 4};
              }
            }),
            "the tensors are not those of the metadata's model; missing: blk.1.ffn_up.weight; unexpected: "
            "blk.1.ffn_up_exps.weight; wrong shape: output_norm.weight is [4, 4], not [16]");
  EXPECT_EQ(refused([](GgufBytes& file) {
              std::erase_if(file.tensors, [](auto& t) { return t.name == "token_embd.weight"; });
            }),
            "token_embd.weight is missing");
  EXPECT_EQ(refused([](GgufBytes& file) { file.floats("rope_freqs.weight", {2}, std::array{2.0f, 3.0f}); }),
            "rope_freqs.weight holds other factors than Llama 3's scaling with bounds of 1 and 4 and a power of two as "
            "the original context; attn reads no others");
  EXPECT_EQ(refused([](GgufBytes& file) { file.floats("rope_freqs.weight", {3}, std::array{1.0f, 3.0f, 3.0f}); }),
            "rope_freqs.weight is [3]; it must be [2]");
}

/// The factors of the published Llama 3 models give their scaling.
TEST(GgufModels, TheScalingOfLlama3) {
  for (const double factor : {8.0, 32.0}) {
    const Folder folder;
    ModelConfig config = testing::tiny_llama();
    config.head_dim = 64;
    config.rotary_theta = 500000;
    config.context = 131072;
    config.rotary_scaling = nn::RotaryScaling{.factor = factor};
    LanguageModel(config).save(folder.path());
    const std::string path = folder.write("m.gguf", testing::gguf_of_folder(folder.path(), "llama").bytes());
    EXPECT_EQ(LanguageModel::load(path).config.rotary_scaling, config.rotary_scaling);
  }
}

/// A file whose weights are all of one 16-bit type keeps it.
TEST(GgufModels, KeepSixteenBits) {
  const Folder folder;
  GgufBytes file = testing::gguf_of_folder(golden_folder("llama"), "llama");
  const auto narrowed = [&](std::uint32_t type, Dtype dtype, auto&& chosen) {
    GgufBytes changed = file;
    for (auto& tensor : changed.tensors)
      if (chosen(tensor.name)) {
        const Tensor wide = empty({static_cast<std::int64_t>(tensor.data.size() / 4)});
        std::memcpy(wide.data(), tensor.data.data(), tensor.data.size());
        const Tensor narrow = wide.to(dtype);
        tensor.type = type;
        tensor.data.assign(static_cast<const char*>(narrow.data()), tensor.data.size() / 2);
      }
    return LanguageModel::load(folder.write("m.gguf", changed.bytes())).dtype();
  };
  const auto every = [](const std::string&) { return true; };
  EXPECT_EQ(narrowed(1, Dtype::f16, every), Dtype::f16);
  EXPECT_EQ(narrowed(30, Dtype::bf16, every), Dtype::bf16);
  // As most files are: norms in f32.
  EXPECT_EQ(narrowed(1, Dtype::f16, [](const std::string& name) { return name.find("norm") == std::string::npos; }),
            Dtype::f32);
}

TEST(GgufModels, WhatAFileCannotHoldIsRefused) {
  const Folder folder;
  const std::string path = folder / "m.gguf";
  EXPECT_EQ(error_of<ValueError>([&] { gguf::write(path, LanguageModel(testing::tiny_mixture()), nullptr, "F32"); }),
            "convert: the model is of no architecture of GGUF files that attn reads");
  ModelConfig config = testing::tiny_llama();
  config.width = 32;
  const LanguageModel model(config);
  model.state_dict()[0].second.data<float>()[5] = 1e6f;
  EXPECT_EQ(error_of<ValueError>([&] { gguf::write(path, model, nullptr, "Q8_0"); }),
            "convert: token_embd.weight holds 1000000; Q8_0 can hold numbers up to 65504");
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(GgufModels, AnotherFile) {
  const Folder folder;
  const std::string path = folder.write("model.bin", "PK\3\4....");
  EXPECT_EQ(
      error_of<FormatError>([&] { LanguageModel::load(path); }),
      "GgufFile: " + path + ": the file does not begin with GGUF; a GGUF file or a model's folder is needed (byte 0)");
}

}  // namespace
}  // namespace attn
