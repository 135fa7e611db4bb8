// tests/model/files_test.cc: folders that transformers wrote and ours: logits, names, parts, dtypes, and everything
// that can be wrong.
#include <attn/ops.h>
#include <attn/safetensors.h>

#include "model/tiny_models.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace attn {
namespace {

using testing::error_of;
using testing::Folder;
using testing::golden_folder;

class Checkpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(Checkpoint, LogitsAreThoseOfTransformers) {
  const LanguageModel model = LanguageModel::load(golden_folder(GetParam()));
  const auto& recorded = testing::golden(std::string("model/") + GetParam() + "/logits.json");
  std::vector<std::int64_t> ids;
  for (const auto& row : recorded.at("ids"))
    for (const auto& id : row) ids.push_back(id.get<std::int64_t>());
  const auto batch = static_cast<std::int64_t>(recorded.at("ids").size());
  const Tensor in = tensor<std::int64_t>(ids).reshape({batch, -1});
  model.eval();
  EXPECT_TRUE(testing::within_error_rule(model(in).detach(), testing::golden_tensor(recorded.at("logits")),
                                         recorded.at("torch_error_vs_float64").get<double>()));
  EXPECT_EQ(model.config.parameters(), [&] {
    std::int64_t count = 0;
    for (const Tensor& weight : model.parameters()) count += weight.numel();
    return count;
  }());
}

TEST_P(Checkpoint, SavedAgainHasTheTensorsOfTransformers) {
  const Folder folder;
  LanguageModel::load(golden_folder(GetParam())).save(folder / "new/folder");
  const Safetensors ours = load_safetensors(folder / "new/folder/model.safetensors"),
                    theirs = load_safetensors(golden_folder(GetParam()) + "/model.safetensors");
  EXPECT_EQ(ours.tensors.size(), theirs.tensors.size());
  for (const auto& [name, value] : theirs.tensors) EXPECT_TRUE(same_bits(ours.at(name), value)) << name;
  EXPECT_EQ(ours.metadata, theirs.metadata);
  const ModelConfig config = LanguageModel::load(folder / "new/folder").config;
  EXPECT_EQ(config.key_value_heads(), LanguageModel::load(golden_folder(GetParam())).config.key_value_heads());
  EXPECT_EQ(ModelConfig::from_json(config.to_json()), config);
  const auto says = nlohmann::json::parse(config.to_json()),
             said = nlohmann::json::parse(testing::content_of(golden_folder(GetParam()) + "/config.json"));
  for (const char* field : {"architectures", "model_type", "head_dim", "attention_bias", "mlp_bias",
                            "tie_word_embeddings", "rope_parameters", "sliding_window", "use_sliding_window"})
    EXPECT_EQ(said.contains(field) ? says.value(field, nlohmann::json()) : nlohmann::json(),
              said.value(field, nlohmann::json()))
        << field;
}

TEST_P(Checkpoint, IsReadInParts) {
  const Folder folder;
  const auto all = load_safetensors(golden_folder(GetParam()) + "/model.safetensors").tensors;
  nlohmann::json map;
  std::vector<std::pair<std::string, Tensor>> parts[2];
  for (std::size_t i = 0; i < all.size(); ++i) {
    parts[i % 2].push_back(all[i]);
    map[all[i].first] = i % 2 ? "b.safetensors" : "a.safetensors";
  }
  save_safetensors(folder / "a.safetensors", parts[0]);
  save_safetensors(folder / "b.safetensors", parts[1]);
  folder.write("model.safetensors.index.json",
               nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  folder.write("config.json", testing::content_of(golden_folder(GetParam()) + "/config.json"));
  const Tensor ids = randint(0, 20, {1, 5});
  EXPECT_TRUE(same_bits(LanguageModel::load(folder.path())(ids).detach(),
                        LanguageModel::load(golden_folder(GetParam()))(ids).detach()));
}

INSTANTIATE_TEST_SUITE_P(Files, Checkpoint,
                         ::testing::Values("gpt2", "llama", "llama3", "mistral", "qwen2", "qwen3", "gemma2", "gemma3",
                                           "phi3", "smollm3"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Files, ABareDecoderWithTheBuffersOfOldFiles) {
  const Folder folder;
  std::vector<std::pair<std::string, Tensor>> bare;
  for (const auto& [name, value] : load_safetensors(golden_folder("gpt2") + "/model.safetensors").tensors)
    bare.emplace_back(name.substr(std::string("transformer.").size()), value);
  bare.emplace_back("h.0.attn.bias", ones({1, 1, 16, 16}));
  bare.emplace_back("h.0.attn.masked_bias", scalar_tensor<float>(-1e4f));
  for (const auto& [name, value] : bare)
    if (name == "wte.weight") {
      bare.emplace_back("lm_head.weight", value.to(Dtype::f64));  // tied, and written all the same
      break;
    }
  save_safetensors(folder / "model.safetensors", bare);
  folder.write("config.json", testing::content_of(golden_folder("gpt2") + "/config.json"));
  const Tensor ids = randint(0, 20, {1, 5});
  EXPECT_TRUE(same_bits(LanguageModel::load(folder.path())(ids).detach(),
                        LanguageModel::load(golden_folder("gpt2"))(ids).detach()));
}

TEST(Files, DtypesAreKeptOrConverted) {
  const Folder folder;
  const LanguageModel model(testing::tiny_llama(), Dtype::bf16);
  model.save(folder.path());
  EXPECT_EQ(load_safetensors(folder / "model.safetensors").at("lm_head.weight").dtype(), Dtype::bf16);
  EXPECT_EQ(LanguageModel::load(folder.path()).dtype(), Dtype::bf16);
  const LanguageModel wide = LanguageModel::load(folder.path(), Dtype::f32);
  EXPECT_EQ(wide.dtype(), Dtype::f32);
  EXPECT_TRUE(same_bits(wide.state_dict().front().second, model.state_dict().front().second.to(Dtype::f32)));
  EXPECT_EQ(nlohmann::json::parse(testing::content_of(folder / "config.json")).at("torch_dtype"), "bfloat16");
}

/// Each field of the families' on or off: whatever shape that is, it is read back.
TEST(Files, EveryMixtureIsKept) {
  std::map<std::string, int> types;
  for (int mixture = 0; mixture < 64; ++mixture) {
    ModelConfig config = mixture & 1 ? testing::tiny_llama() : testing::tiny_gpt2();
    config.kv_heads = 2;
    config.head_dim = 4;
    config.attention_bias = mixture & 2;
    if (mixture & 4) config.attention_out_bias = !config.attention_bias;
    config.qk_norm = mixture & 8;
    config.sliding_window = mixture & 16 ? 5 : 0;
    config.mlp_bias = mixture & 32;
    const LanguageModel model(config);
    std::int64_t count = 0;
    for (const Tensor& weight : model.parameters()) count += weight.numel();
    EXPECT_EQ(config.parameters(), count) << mixture;
    const Folder folder;
    model.save(folder.path());
    const LanguageModel again = LanguageModel::load(folder.path());
    EXPECT_EQ(again.config.to_json(), config.to_json());
    const Tensor ids = randint(0, 13, {1, 9});
    EXPECT_TRUE(same_bits(again(ids).detach(), model(ids).detach())) << config.to_json();
    ++types[nlohmann::json::parse(config.to_json()).at("model_type").get<std::string>()];
  }
  EXPECT_EQ(types, (std::map<std::string, int>{
                       {"attn", 52}, {"gpt2", 1}, {"llama", 4}, {"mistral", 1}, {"qwen2", 2}, {"qwen3", 4}}))
      << ::testing::PrintToString(types);
}

TEST(Files, ShapesThatNoFamilyHasAreKeptToo) {
  const Folder folder;
  ModelConfig config = testing::tiny_gpt2();
  config.positions = ModelConfig::Positions::rotary;
  config.rotary_scaling = nn::RotaryScaling{.factor = 4, .original_context = 6};
  config.end_tokens = {3, 5};
  config.mlp_bias = false;
  config.kv_heads = 1;
  config.head_dim = 4;
  config.dropout = 0.25;
  const LanguageModel model(config);
  model.save(folder.path());
  const LanguageModel again = LanguageModel::load(folder.path());
  EXPECT_EQ(again.config, config);
  const Tensor ids = randint(0, 13, {2, 7});
  model.eval();
  again.eval();
  EXPECT_TRUE(same_bits(again(ids).detach(), model(ids).detach()));
}

/// The golden GPT-2 with other tensors.
struct Changed {
  explicit Changed(const std::function<void(std::vector<std::pair<std::string, Tensor>>&)>& change) {
    auto tensors = load_safetensors(golden_folder("gpt2") + "/model.safetensors").tensors;
    change(tensors);
    save_safetensors(folder / "model.safetensors", tensors);
    folder.write("config.json", testing::content_of(golden_folder("gpt2") + "/config.json"));
  }
  std::string error() const {
    const std::string text = error_of<ValueError>([&] { LanguageModel::load(folder.path()); }),
                      begin = "LanguageModel::load: " + folder.path() + ": ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return text.substr(std::min(begin.size(), text.size()));
  }
  Folder folder;
};

TEST(Files, TensorsThatDoNotFitAreNamed) {
  const Changed changed([](auto& tensors) {
    for (auto& [name, value] : tensors) {
      if (name == "transformer.ln_f.weight") name = "transformer.ln_g.weight";
      if (name == "transformer.h.1.attn.c_attn.weight") value = value.t();
      if (name == "transformer.ln_f.bias") value = value.to(Dtype::i64);
    }
  });
  EXPECT_EQ(
      changed.error(),
      "the weights are not those of config.json; missing: transformer.ln_f.weight; unexpected: "
      "transformer.ln_g.weight; wrong shape: "
      "transformer.h.1.attn.c_attn.weight is f32 [36, 12], not [12, 36], transformer.ln_f.bias is i64 [12], not [12]");
}

TEST(Files, ATiedHeadThatDiffersIsRefused) {
  const Changed changed([](auto& tensors) { tensors.emplace_back("lm_head.weight", zeros({31, 12})); });
  EXPECT_EQ(
      changed.error(),
      "lm_head.weight is not transformer.wte.weight, as tie_word_embeddings in config.json says; set it to false");
}

TEST(Files, TheEndIsThatOfGenerationConfig) {
  const Folder folder;
  LanguageModel(testing::tiny_gpt2()).save(folder.path());
  folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(LanguageModel::load(folder.path()).config.end_tokens, (std::vector<std::int64_t>{3, 4}));
}

// As in transformers 5, whose generation config is that file alone.
TEST(Files, AGenerationConfigWithoutAnEndHasNone) {
  const Folder folder;
  ModelConfig config = testing::tiny_gpt2();
  config.end_tokens = {5};
  LanguageModel(config).save(folder.path());
  for (const char* text : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": [], "_from_model_config": true})"}) {
    folder.write("generation_config.json", text);
    EXPECT_TRUE(LanguageModel::load(folder.path()).config.end_tokens.empty()) << text;
  }
}

TEST(Files, AGenerationConfigThatIsNoJsonIsNone) {
  const Folder folder;
  ModelConfig config = testing::tiny_gpt2();
  config.end_tokens = {5};
  LanguageModel(config).save(folder.path());
  for (const char* text : {"", "{\"eos_token_id\": 3", "\xff", "# none"}) {
    folder.write("generation_config.json", text);
    EXPECT_EQ(LanguageModel::load(folder.path()).config.end_tokens, config.end_tokens) << text;
  }
  folder.write("generation_config.json", R"({"eos_token_id": "end"})");
  EXPECT_EQ(error_of<ValueError>([&] { LanguageModel::load(folder.path()); }),
            (folder / "generation_config.json") + R"(: eos_token_id is "end"; it must be an id or a list of ids)");
  folder.write("generation_config.json", "[]");
  EXPECT_EQ(error_of<FormatError>([&] { LanguageModel::load(folder.path()); }),
            (folder / "generation_config.json") + ": it must be a JSON object (byte offset 0)");
  std::filesystem::remove(folder / "generation_config.json");
  std::filesystem::create_directory(folder / "generation_config.json");
  EXPECT_EQ(LanguageModel::load(folder.path()).config.end_tokens, config.end_tokens);
}

TEST(Files, AClaimOfManyLayersAllocatesNothing) {
  const Folder folder;
  nlohmann::json config = nlohmann::json::parse(testing::content_of(golden_folder("gpt2") + "/config.json"));
  config["n_layer"] = 2000000000;
  folder.write("config.json", config.dump());
  save_safetensors(folder / "model.safetensors",
                   load_safetensors(golden_folder("gpt2") + "/model.safetensors").tensors);
  EXPECT_EQ(
      error_of<ValueError>([&] { LanguageModel::load(folder.path()); }),
      "LanguageModel::load: " + (folder / "config.json") + " says 2000000000 layers; the weights are only 28 tensors");
}

TEST(Files, AnIndexStaysInItsFolder) {
  const Folder folder;
  folder.write("config.json", testing::content_of(golden_folder("gpt2") + "/config.json"));
  for (const char* file : {R"("../model.safetensors")", R"("")", R"("a\nb")", R"("a\u0000")", "1"}) {
    folder.write("model.safetensors.index.json", R"({"weight_map": {"a": )" + std::string(file) + "}}");
    EXPECT_EQ(error_of<ValueError>([&] { LanguageModel::load(folder.path()); }),
              (folder / "model.safetensors.index.json") + R"(: weight_map is {"a":)" + file +
                  "}; each value must be the name of a file in its folder");
  }
}

TEST(Files, WhatIsNotThere) {
  const Folder folder;
  EXPECT_THROW(LanguageModel::load(folder / "nowhere"), IoError);
  folder.write("config.json", testing::content_of(golden_folder("gpt2") + "/config.json"));
  EXPECT_THROW(LanguageModel::load(folder.path()), IoError);
  folder.write("file", "");
  EXPECT_THROW(LanguageModel(testing::tiny_gpt2()).save(folder / "file/below"), IoError);
}

}  // namespace
}  // namespace attn
