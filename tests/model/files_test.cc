// tests/model/files_test.cc: folders that transformers wrote and ours: logits, names, parts, dtypes, and everything that can be wrong.
#include <attn/ops.h>
#include <attn/safetensors.h>

#include "model/folder.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attn {
namespace {

using testing::error_of;
using testing::golden_folder;
using testing::TemporaryFolder;

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
  const TemporaryFolder folder;
  LanguageModel::load(golden_folder(GetParam())).save(folder / "new/folder");
  const Safetensors ours = load_safetensors(folder / "new/folder/model.safetensors"), theirs = load_safetensors(golden_folder(GetParam()) + "/model.safetensors");
  EXPECT_EQ(ours.tensors.size(), theirs.tensors.size());
  for (const auto& [name, value] : theirs.tensors) EXPECT_TRUE(same_bits(ours.at(name), value)) << name;
  EXPECT_EQ(ours.metadata, theirs.metadata);
  const ModelConfig config = LanguageModel::load(folder / "new/folder").config;
  EXPECT_EQ(config.key_value_heads(), LanguageModel::load(golden_folder(GetParam())).config.key_value_heads());
  EXPECT_EQ(ModelConfig::from_json(config.to_json()), config);
}

TEST_P(Checkpoint, IsReadInParts) {
  const TemporaryFolder folder;
  const auto all = load_safetensors(golden_folder(GetParam()) + "/model.safetensors").tensors;
  nlohmann::json map;
  std::vector<std::pair<std::string, Tensor>> parts[2];
  for (std::size_t i = 0; i < all.size(); ++i) {
    parts[i % 2].push_back(all[i]);
    map[all[i].first] = i % 2 ? "b.safetensors" : "a.safetensors";
  }
  save_safetensors(folder / "a.safetensors", parts[0]);
  save_safetensors(folder / "b.safetensors", parts[1]);
  folder.write("model.safetensors.index.json", nlohmann::json{{"metadata", {{"total_size", 1}}}, {"weight_map", map}}.dump());
  folder.write("config.json", testing::text_of(golden_folder(GetParam()) + "/config.json"));
  const Tensor ids = randint(0, 20, {1, 5});
  EXPECT_TRUE(same_bits(LanguageModel::load(folder.path())(ids).detach(), LanguageModel::load(golden_folder(GetParam()))(ids).detach()));
}

INSTANTIATE_TEST_SUITE_P(Files, Checkpoint, ::testing::Values("gpt2", "llama", "llama3"), [](const auto& info) { return std::string(info.param); });

TEST(Files, ABareDecoderWithTheBuffersOfOldFiles) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, Tensor>> bare;
  for (const auto& [name, value] : load_safetensors(golden_folder("gpt2") + "/model.safetensors").tensors) bare.emplace_back(name.substr(std::string("transformer.").size()), value);
  bare.emplace_back("h.0.attn.bias", ones({1, 1, 16, 16}));
  bare.emplace_back("h.0.attn.masked_bias", scalar_tensor<float>(-1e4f));
  for (const auto& [name, value] : bare)
    if (name == "wte.weight") {
      bare.emplace_back("lm_head.weight", value.to(Dtype::f64));  // tied, and written all the same
      break;
    }
  save_safetensors(folder / "model.safetensors", bare);
  folder.write("config.json", testing::text_of(golden_folder("gpt2") + "/config.json"));
  const Tensor ids = randint(0, 20, {1, 5});
  EXPECT_TRUE(same_bits(LanguageModel::load(folder.path())(ids).detach(), LanguageModel::load(golden_folder("gpt2"))(ids).detach()));
}

TEST(Files, DtypesAreKeptOrConverted) {
  const TemporaryFolder folder;
  const LanguageModel model(testing::tiny_llama(), Dtype::bf16);
  model.save(folder.path());
  EXPECT_EQ(load_safetensors(folder / "model.safetensors").at("lm_head.weight").dtype(), Dtype::bf16);
  EXPECT_EQ(LanguageModel::load(folder.path()).dtype(), Dtype::bf16);
  const LanguageModel wide = LanguageModel::load(folder.path(), Dtype::f32);
  EXPECT_EQ(wide.dtype(), Dtype::f32);
  EXPECT_TRUE(same_bits(wide.state_dict().front().second, model.state_dict().front().second.to(Dtype::f32)));
  EXPECT_EQ(nlohmann::json::parse(testing::text_of(folder / "config.json")).at("torch_dtype"), "bfloat16");
}

TEST(Files, ShapesThatNoFamilyHasAreKeptToo) {
  const TemporaryFolder folder;
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
    folder.write("config.json", testing::text_of(golden_folder("gpt2") + "/config.json"));
  }
  std::string error() const {
    const std::string text = error_of<ValueError>([&] { LanguageModel::load(folder.path()); }), begin = "LanguageModel::load: " + folder.path() + ": ";
    EXPECT_TRUE(text.starts_with(begin)) << text;
    return text.substr(std::min(begin.size(), text.size()));
  }
  TemporaryFolder folder;
};

TEST(Files, TensorsThatDoNotFitAreNamed) {
  const Changed changed([](auto& tensors) {
    for (auto& [name, value] : tensors) {
      if (name == "transformer.ln_f.weight") name = "transformer.ln_g.weight";
      if (name == "transformer.h.1.attn.c_attn.weight") value = value.t();
      if (name == "transformer.ln_f.bias") value = value.to(Dtype::i64);
    }
  });
  EXPECT_EQ(changed.error(),
            "the weights are not those of config.json; missing: transformer.ln_f.weight; unexpected: transformer.ln_g.weight; wrong shape: "
            "transformer.h.1.attn.c_attn.weight is f32 [36, 12], not [12, 36], transformer.ln_f.bias is i64 [12], not [12]");
}

std::string config_error(const std::string& json) {
  return error_of<ValueError>([&] { ModelConfig::from_json(json); });
}

TEST(Files, ConfigsThatAreNone) {
  EXPECT_EQ(config_error(R"({"model_type": "mamba"})"), R"(config.json: model_type is "mamba"; it must be gpt2, llama or attn)");
  EXPECT_EQ(config_error(R"({"model_type": "gpt2"})"), "config.json: vocab_size is missing");
  EXPECT_EQ(config_error("{}"), "config.json: model_type is missing");
  const auto with = [](const std::string& name, const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(testing::text_of(golden_folder(name) + "/config.json"));
    config[field] = value;
    return config.dump();
  };
  EXPECT_EQ(config_error(with("gpt2", "n_embd", "12")), R"(config.json: n_embd is "12"; it must be a whole number)");
  EXPECT_EQ(config_error(with("gpt2", "n_head", 5)), "config.json: ModelConfig: heads is 5; it must divide width (12)");
  EXPECT_EQ(config_error(with("gpt2", "n_layer", 0)), "config.json: ModelConfig: layers is 0; it must be from 1 to 2147483647");
  EXPECT_EQ(config_error(with("gpt2", "resid_pdrop", -1e300)), "config.json: ModelConfig: dropout is -1e+300; it must be from 0 to below 1");
  EXPECT_EQ(config_error(with("llama", "rms_norm_eps", -1e-9)), "config.json: ModelConfig: norm_eps is -1e-09; it must not be negative");
  EXPECT_EQ(config_error(with("llama", "rope_parameters", {{"rope_theta", -1}, {"rope_type", "default"}})), "config.json: ModelConfig: rotary_theta is -1; it must be above 0, and finite");
  EXPECT_EQ(config_error(with("gpt2", "n_embd", 1.5)), "config.json: n_embd is 1.5; it must be a whole number");
  EXPECT_EQ(config_error(with("gpt2", "activation_function", "relu")), R"(config.json: activation_function is "relu"; it must be gelu_new, gelu_pytorch_tanh or gelu)");
  EXPECT_EQ(config_error(with("gpt2", "scale_attn_by_inverse_layer_idx", true)), "config.json: scale_attn_by_inverse_layer_idx is true; attn's models have it false");
  EXPECT_EQ(config_error(with("llama", "rope_parameters", {{"rope_type", "yarn"}})), R"(config.json: rope_parameters: rope_type is "yarn"; it must be default or llama3)");
  EXPECT_EQ(config_error(with("llama", "num_key_value_heads", 3)), "config.json: ModelConfig: kv_heads is 3; it must divide heads (4)");
  EXPECT_EQ(config_error(with("llama", "head_dim", 3)), "config.json: ModelConfig: head_dim is 3; rotary positions need an even one");
  EXPECT_EQ(config_error(with("llama", "eos_token_id", "end")), R"(config.json: eos_token_id is "end"; it must be an id or a list of ids)");
  EXPECT_EQ(config_error(with("gpt2", "is_causal", false)), "config.json: is_causal is false; attn's models have it true");
  EXPECT_EQ(config_error(with("gpt2", "is_causal", nullptr)), "config.json: is_causal is null; attn's models have it true");
  EXPECT_NO_THROW(ModelConfig::from_json(with("gpt2", "scale_attn_by_inverse_layer_idx", nullptr)));
  EXPECT_EQ(config_error(with("llama", "quantization_config", {{"quant_method", "fp8"}})),
            R"(config.json: quantization_config is {"quant_method":"fp8"}; attn's models are not quantised: it must be null)");
  EXPECT_EQ(config_error(with("gpt2", "num_attention_heads", 2)), "config.json: num_attention_heads is 2; n_head says 3");
  EXPECT_EQ(config_error(with("llama", "partial_rotary_factor", 0.5)), "config.json: partial_rotary_factor is 0.5; attn's models turn whole heads: it must be 1");
  EXPECT_EQ(config_error(with("llama3", "original_max_position_embeddings", 8)),
            "config.json: original_max_position_embeddings is 8; it must be that of the rotary parameters, 16");
  EXPECT_EQ(config_error(with("llama", "sliding_window", 4)),
            "config.json: sliding_window is 4; attn's models see all tokens before: it must be null, or no shorter than max_position_embeddings");
  EXPECT_TRUE(config_error(with("llama", "attention_chunk_size", 4)).starts_with("config.json: attention_chunk_size is 4; attn's models see all tokens before"));
  auto all_full = nlohmann::json::parse(with("llama", "sliding_window", 4));
  all_full["use_sliding_window"] = false;  // Qwen's word: a Llama's windows stay
  EXPECT_TRUE(config_error(all_full.dump()).starts_with("config.json: sliding_window is 4"));
  all_full["layer_types"] = std::vector<std::string>(all_full["num_hidden_layers"].get<std::size_t>(), "full_attention");
  EXPECT_NO_THROW(ModelConfig::from_json(all_full.dump(), "config.json"));
  EXPECT_EQ(config_error(R"({"model_type": "gpt2", "vocab_size": 9, "n_positions": 9, "n_layer": 2000000000, "n_head": 1, "n_embd": 500000000})"),
            "config.json: ModelConfig: the weights are more numbers than can be counted");
  EXPECT_EQ(error_of<FormatError>([] { ModelConfig::from_json("{\"model_type\": "); }), "config.json: not JSON (byte offset 15)");
  for (const char* field : {"model_type", "vocab_size", "rope_parameters", "eos_token_id"}) {
    const std::string deep = R"({"model_type": "llama", ")" + std::string(field) + "\": " + std::string(1000000, '[') + std::string(1000000, ']') + "}";
    EXPECT_TRUE(error_of<FormatError>([&] { ModelConfig::from_json(deep); }).starts_with("config.json: nested too deeply")) << field;
  }
  EXPECT_EQ(error_of<FormatError>([] { ModelConfig::from_json(R"({"model_type": 1e999})"); }), "config.json: a number is too large (byte offset 0)");
  EXPECT_EQ(error_of<FormatError>([] { ModelConfig::from_json("[]"); }), "config.json: it must be a JSON object (byte offset 0)");
}

TEST(Files, SizesOfGpt2UnderTheNamesOfOthers) {
  nlohmann::json config = nlohmann::json::parse(testing::text_of(golden_folder("gpt2") + "/config.json"));
  const ModelConfig own = ModelConfig::from_json(config.dump());
  for (const auto& [field, elsewhere] : {std::pair("n_embd", "hidden_size"), {"n_head", "num_attention_heads"}, {"n_layer", "num_hidden_layers"},
                                         {"n_positions", "max_position_embeddings"}}) {
    config[elsewhere] = config[field];
    EXPECT_EQ(ModelConfig::from_json(config.dump()), own);
    config.erase(field);
    EXPECT_EQ(ModelConfig::from_json(config.dump()), own);
  }
}

TEST(Files, TheRotaryFieldsOfOlderConfigs) {
  nlohmann::json config = nlohmann::json::parse(testing::text_of(golden_folder("llama3") + "/config.json"));
  const ModelConfig now = ModelConfig::from_json(config.dump());
  nlohmann::json scaling = config.at("rope_parameters");
  config["rope_theta"] = scaling.at("rope_theta");
  scaling.erase("rope_theta");
  config.erase("rope_parameters");
  config["rope_scaling"] = scaling;
  EXPECT_EQ(ModelConfig::from_json(config.dump()), now);
  EXPECT_EQ(now.rotary_theta, 500000);
  EXPECT_EQ(now.rotary_scaling->original_context, 16);
}

// Transformers' order where a file has both.
TEST(Files, RopeScalingGoesBeforeRopeParameters) {
  nlohmann::json config = nlohmann::json::parse(testing::text_of(golden_folder("llama3") + "/config.json"));
  config["rope_scaling"] = nlohmann::json::object();
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_theta, 500000);
  config["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_scaling, std::nullopt);
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_theta, 10000);
  config["rope_scaling"] = {{"type", "linear"}};
  EXPECT_EQ(config_error(config.dump()), R"(config.json: rope_scaling: type is "linear"; it must be default or llama3)");
  config.erase("rope_scaling");
  config["rope_parameters"]["low_freq_factor"] = 40;
  EXPECT_TRUE(config_error(config.dump()).ends_with("they must be above 0, and high_frequency no less than low_frequency")) << config_error(config.dump());
}

TEST(Files, ATiedHeadThatDiffersIsRefused) {
  const Changed changed([](auto& tensors) { tensors.emplace_back("lm_head.weight", zeros({31, 12})); });
  EXPECT_EQ(changed.error(), "lm_head.weight is not transformer.wte.weight, as tie_word_embeddings in config.json says; set it to false");
}

TEST(Files, TheEndIsThatOfGenerationConfig) {
  const TemporaryFolder folder;
  LanguageModel(testing::tiny_gpt2()).save(folder.path());
  folder.write("generation_config.json", R"({"eos_token_id": [3, 4]})");
  EXPECT_EQ(LanguageModel::load(folder.path()).config.end_tokens, (std::vector<std::int64_t>{3, 4}));
}

// As in transformers 5, whose generation config is that file alone.
TEST(Files, AGenerationConfigWithoutAnEndHasNone) {
  const TemporaryFolder folder;
  ModelConfig config = testing::tiny_gpt2();
  config.end_tokens = {5};
  LanguageModel(config).save(folder.path());
  for (const char* text : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": [], "_from_model_config": true})"}) {
    folder.write("generation_config.json", text);
    EXPECT_TRUE(LanguageModel::load(folder.path()).config.end_tokens.empty()) << text;
  }
}

TEST(Files, AGenerationConfigThatIsNoJsonIsNone) {
  const TemporaryFolder folder;
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
  EXPECT_EQ(error_of<FormatError>([&] { LanguageModel::load(folder.path()); }), (folder / "generation_config.json") + ": it must be a JSON object (byte offset 0)");
  std::filesystem::remove(folder / "generation_config.json");
  std::filesystem::create_directory(folder / "generation_config.json");
  EXPECT_EQ(LanguageModel::load(folder.path()).config.end_tokens, config.end_tokens);
}

TEST(Files, AClaimOfManyLayersAllocatesNothing) {
  const TemporaryFolder folder;
  nlohmann::json config = nlohmann::json::parse(testing::text_of(golden_folder("gpt2") + "/config.json"));
  config["n_layer"] = 2000000000;
  folder.write("config.json", config.dump());
  save_safetensors(folder / "model.safetensors", load_safetensors(golden_folder("gpt2") + "/model.safetensors").tensors);
  EXPECT_EQ(error_of<ValueError>([&] { LanguageModel::load(folder.path()); }),
            "LanguageModel::load: " + (folder / "config.json") + " says 2000000000 layers; the weights are only 28 tensors");
}

TEST(Files, AnIndexStaysInItsFolder) {
  const TemporaryFolder folder;
  folder.write("config.json", testing::text_of(golden_folder("gpt2") + "/config.json"));
  for (const char* file : {R"("../model.safetensors")", R"("")", R"("a\nb")", R"("a\u0000")", "1"}) {
    folder.write("model.safetensors.index.json", R"({"weight_map": {"a": )" + std::string(file) + "}}");
    EXPECT_EQ(error_of<ValueError>([&] { LanguageModel::load(folder.path()); }),
              (folder / "model.safetensors.index.json") + R"(: weight_map is {"a":)" + file + "}; each value must be the name of a file in its folder");
  }
}

TEST(Files, WhatIsNotThere) {
  const TemporaryFolder folder;
  EXPECT_THROW(LanguageModel::load(folder / "nowhere"), IoError);
  folder.write("config.json", testing::text_of(golden_folder("gpt2") + "/config.json"));
  EXPECT_THROW(LanguageModel::load(folder.path()), IoError);
  folder.write("file", "");
  EXPECT_THROW(LanguageModel(testing::tiny_gpt2()).save(folder / "file/below"), IoError);
}

}  // namespace
}  // namespace attn
