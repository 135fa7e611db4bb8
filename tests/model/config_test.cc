// tests/model/config_test.cc: config.json: what transformers' say, what is refused.
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace attn {
namespace {

using testing::error_of;
using testing::golden_folder;

std::string config_error(const std::string& json) {
  return error_of<ValueError>([&] { ModelConfig::from_json(json); });
}

/// Python's json writes NaN, Infinity and -Infinity: where the field is not read they do not matter.
TEST(Configs, NumbersOfPython) {
  const std::string llama = testing::content_of(golden_folder("llama") + "/config.json");
  const auto with = [&](const std::string& fields) { return "{" + fields + "," + llama.substr(llama.find('{') + 1); };
  const ModelConfig config = ModelConfig::from_json(llama);
  EXPECT_EQ(ModelConfig::from_json(with(R"("a": NaN, "b": [-Infinity, {"c": Infinity}], "d": "say \"NaN\" \\")")),
            config);
  nlohmann::json broken = nlohmann::json::parse(llama);
  broken["rms_norm_eps"] = "@";
  for (const std::string number : {"NaN", "Infinity", "-Infinity"}) {
    std::string text = broken.dump();
    text.replace(text.find("\"@\""), 3, number);
    EXPECT_EQ(config_error(text), "config.json: rms_norm_eps is \"" + number + "\"; it must be a number");
  }
  for (const auto& [text, offset] : {std::pair{R"({"a": NaN, "b": nan})", 18},
                                     {R"({"a": NaN, "b": [Infinity})", 26},
                                     {R"({"a": +Infinity})", 7},
                                     {R"({"a": Inf})", 7},
                                     {R"({"a": NaN1})", 10}})
    EXPECT_EQ(error_of<FormatError>([&] { ModelConfig::from_json(text); }),
              "config.json: not JSON (byte offset " + std::to_string(offset) + ")")
        << text;
}

TEST(Configs, ThatAreNone) {
  EXPECT_EQ(config_error(R"({"model_type": "mamba"})"),
            R"(config.json: model_type is "mamba"; it must be gpt2, llama, mistral, qwen2, qwen3, )"
            "gemma2, gemma3_text, phi3, smollm3 or attn");
  EXPECT_EQ(config_error(R"({"model_type": "mixtral", "num_local_experts": 8})"),
            "config.json: num_local_experts is 8; attn reads no mixtures of experts");
  EXPECT_EQ(config_error(R"({"model_type": "gpt2"})"), "config.json: vocab_size is missing");
  EXPECT_EQ(config_error("{}"), "config.json: model_type is missing");
  const auto with = [](const std::string& name, const std::string& field, const nlohmann::json& value) {
    nlohmann::json config = nlohmann::json::parse(testing::content_of(golden_folder(name) + "/config.json"));
    config[field] = value;
    return config.dump();
  };
  EXPECT_EQ(config_error(with("gpt2", "n_embd", "12")), R"(config.json: n_embd is "12"; it must be a whole number)");
  EXPECT_EQ(config_error(with("gpt2", "n_head", 5)), "config.json: ModelConfig: heads is 5; it must divide width (12)");
  EXPECT_EQ(config_error(with("gpt2", "n_layer", 0)),
            "config.json: ModelConfig: layers is 0; it must be from 1 to 2147483647");
  EXPECT_EQ(config_error(with("gpt2", "resid_pdrop", -1e300)),
            "config.json: ModelConfig: dropout is -1e+300; it must be from 0 to below 1");
  EXPECT_EQ(config_error(with("llama", "rms_norm_eps", -1e-9)),
            "config.json: ModelConfig: norm_eps is -1e-09; it must not be negative, and finite");
  EXPECT_EQ(config_error(with("llama", "rope_parameters", {{"rope_theta", -1}, {"rope_type", "default"}})),
            "config.json: ModelConfig: rotary_theta is -1; it must be above 0, and finite");
  EXPECT_EQ(config_error(with("gpt2", "n_embd", 1.5)), "config.json: n_embd is 1.5; it must be a whole number");
  EXPECT_EQ(config_error(with("gpt2", "activation_function", "relu")),
            R"(config.json: activation_function is "relu"; it must be gelu_new, gelu_pytorch_tanh or gelu)");
  EXPECT_EQ(config_error(with("gpt2", "scale_attn_by_inverse_layer_idx", true)),
            "config.json: scale_attn_by_inverse_layer_idx is true; attn's models have it false");
  EXPECT_EQ(config_error(with("llama", "rope_parameters", {{"rope_type", "yarn"}})),
            "config.json: rope_parameters: factor is missing");
  EXPECT_EQ(config_error(with("llama", "rope_parameters", {{"rope_type", "proportional"}})),
            R"(config.json: rope_parameters: rope_type is "proportional"; )"
            "it must be default, linear, dynamic, yarn, longrope or llama3");
  EXPECT_EQ(config_error(with("llama", "num_key_value_heads", 3)),
            "config.json: ModelConfig: kv_heads is 3; it must divide heads (4)");
  EXPECT_EQ(config_error(with("llama", "head_dim", 3)),
            "config.json: ModelConfig: head_dim is 3; rotary positions need an even one");
  EXPECT_EQ(config_error(with("llama", "eos_token_id", "end")),
            R"(config.json: eos_token_id is "end"; it must be an id or a list of ids)");
  EXPECT_EQ(config_error(with("gpt2", "is_causal", false)),
            "config.json: is_causal is false; attn's models have it true");
  EXPECT_EQ(config_error(with("gpt2", "is_causal", nullptr)),
            "config.json: is_causal is null; attn's models have it true");
  EXPECT_NO_THROW(ModelConfig::from_json(with("gpt2", "scale_attn_by_inverse_layer_idx", nullptr)));
  EXPECT_EQ(config_error(with("llama", "quantization_config", {{"quant_method", "fp8"}})),
            R"(config.json: quantization_config is {"quant_method":"fp8"}; )"
            "attn's models are not quantised: it must be null");
  EXPECT_EQ(config_error(with("gpt2", "num_attention_heads", 2)),
            "config.json: num_attention_heads is 2; n_head says 3");
  EXPECT_EQ(config_error(with("llama", "partial_rotary_factor", 0.5)),
            "config.json: partial_rotary_factor is 0.5; this family's models turn whole heads: it must be 1");
  EXPECT_EQ(config_error(with("llama3", "original_max_position_embeddings", 8)),
            "config.json: original_max_position_embeddings is 8; it must be that of the rotary parameters, 16");
  EXPECT_EQ(config_error(with("llama", "sliding_window", 4)),
            "config.json: sliding_window is 4; the model sees all tokens before: it must be null, or no shorter than "
            "max_position_embeddings");
  EXPECT_TRUE(config_error(with("llama", "attention_chunk_size", 4))
                  .starts_with("config.json: attention_chunk_size is 4; the model sees all tokens before"));
  auto all_full = nlohmann::json::parse(with("llama", "sliding_window", 4));
  all_full["use_sliding_window"] = false;  // Qwen's word: a Llama's windows stay
  EXPECT_TRUE(config_error(all_full.dump()).starts_with("config.json: sliding_window is 4"));
  all_full["layer_types"] =
      std::vector<std::string>(all_full["num_hidden_layers"].get<std::size_t>(), "full_attention");
  EXPECT_NO_THROW(ModelConfig::from_json(all_full.dump(), "config.json"));
  EXPECT_EQ(config_error(R"({"model_type": "gpt2", "vocab_size": 9, "n_positions": 9, )"
                         R"("n_layer": 2000000000, "n_head": 1, "n_embd": 500000000})"),
            "config.json: ModelConfig: the weights are more numbers than can be counted");
  EXPECT_EQ(error_of<FormatError>([] { ModelConfig::from_json("{\"model_type\": "); }),
            "config.json: not JSON (byte offset 15)");
  for (const char* field : {"model_type", "vocab_size", "rope_parameters", "eos_token_id"}) {
    const std::string deep = R"({"model_type": "llama", ")" + std::string(field) + "\": " + std::string(1000000, '[') +
                             std::string(1000000, ']') + "}";
    EXPECT_TRUE(
        error_of<FormatError>([&] { ModelConfig::from_json(deep); }).starts_with("config.json: nested too deeply"))
        << field;
  }
  EXPECT_EQ(error_of<FormatError>([] { ModelConfig::from_json(R"({"model_type": 1e999})"); }),
            "config.json: a number is too large (byte offset 0)");
  EXPECT_EQ(error_of<FormatError>([] { ModelConfig::from_json("[]"); }),
            "config.json: it must be a JSON object (byte offset 0)");
}

/// What `check` says of the default shape with one change; every function that takes a shape says it too.
template <typename Change>
std::string shape_error(Change change) {
  ModelConfig config;
  change(config);
  const std::string text = error_of<ValueError>([&] { config.check(); });
  EXPECT_EQ(error_of<ValueError>([&] { LanguageModel{config}; }), text);
  EXPECT_EQ(error_of<ValueError>([&] { config.to_json(); }), text);
  EXPECT_EQ(error_of<ValueError>([&] { static_cast<void>(config.parameters()); }), text);
  EXPECT_EQ(error_of<ValueError>([&] { ModelCache(config, 1); }), text);
  return text;
}

TEST(Configs, EverySizeHasItsRange) {
  std::int64_t ModelConfig::* const sizes[] = {
      &ModelConfig::vocab_size, &ModelConfig::context,   &ModelConfig::layers,
      &ModelConfig::heads,      &ModelConfig::kv_heads,  &ModelConfig::width,
      &ModelConfig::head_dim,   &ModelConfig::mlp_width, &ModelConfig::sliding_window};
  for (const auto size : sizes)
    for (const std::int64_t wrong : {std::int64_t{-1}, std::int64_t{-12}, INT64_MIN, INT64_MAX, std::int64_t{1} << 31})
      EXPECT_NE(shape_error([&](ModelConfig& c) {
                  c.*size = wrong;
                }).find(" is " + std::to_string(wrong) + "; it must be from 1 to 2147483647"),
                std::string::npos);
  EXPECT_EQ(shape_error([](ModelConfig& c) { c.head_dim = -64; }),
            "ModelConfig: head_dim is -64; it must be from 1 to 2147483647");
  EXPECT_EQ(shape_error([](ModelConfig& c) { c.kv_heads = -4; }),
            "ModelConfig: kv_heads is -4; it must be from 1 to 2147483647");
  EXPECT_EQ(shape_error([](ModelConfig& c) { c.mlp_width = -1; }),
            "ModelConfig: mlp_width is -1; it must be from 1 to 2147483647");
}

TEST(Configs, EveryEnumerationHasItsValues) {
  for (const int wrong : {-1, 4, 255}) {
    const std::string said = std::to_string(wrong) + "; the enumeration has no such value";
    EXPECT_EQ(shape_error([&](ModelConfig& c) { c.norm = static_cast<ModelConfig::Norm>(wrong); }),
              "ModelConfig: norm is " + said);
    EXPECT_EQ(shape_error([&](ModelConfig& c) { c.positions = static_cast<ModelConfig::Positions>(wrong); }),
              "ModelConfig: positions is " + said);
    EXPECT_EQ(shape_error([&](ModelConfig& c) { c.activation = static_cast<ModelConfig::Activation>(wrong); }),
              "ModelConfig: activation is " + said);
  }
  EXPECT_EQ(error_of<ValueError>([] { LanguageModel(testing::tiny_gpt2(), static_cast<Dtype>(99)); }),
            "LanguageModel: dtype is 99; the enumeration has no such value");
  EXPECT_EQ(error_of<DtypeError>([] { LanguageModel(testing::tiny_gpt2(), Dtype::i64); }),
            "LanguageModel: dtype is i64; it must be f32, f64, bf16 or f16");
}

TEST(Configs, EveryNumberIsFinite) {
  const double infinite = HUGE_VAL;
  for (const double wrong : {infinite, -infinite, static_cast<double>(NAN), -1.0}) {
    EXPECT_NE(shape_error([&](ModelConfig& c) { c.norm_eps = wrong; }), "");
    EXPECT_NE(shape_error([&](ModelConfig& c) { c.rotary_theta = wrong; }), "");
    EXPECT_NE(shape_error([&](ModelConfig& c) { c.dropout = wrong; }), "");
    for (double nn::RotaryScaling::* const field :
         {&nn::RotaryScaling::factor, &nn::RotaryScaling::low_frequency, &nn::RotaryScaling::high_frequency})
      for (const auto positions : {ModelConfig::Positions::learned, ModelConfig::Positions::rotary})
        EXPECT_NE(shape_error([&](ModelConfig& c) {
                    c.positions = positions;
                    c.rotary_scaling = nn::RotaryScaling{};
                    (*c.rotary_scaling).*field = wrong;
                  }),
                  "");
  }
}

TEST(Configs, NegativeSizesOfAFile) {
  const auto own = [](const char* field, const nlohmann::json& value) {
    nlohmann::json json = nlohmann::json::parse(testing::tiny_mixture().to_json());
    json[field] = value;
    return config_error(json.dump());
  };
  for (const char* field : {"head_dim", "kv_heads", "mlp_width", "sliding_window"})
    EXPECT_EQ(own(field, -2),
              "config.json: ModelConfig: " + std::string(field) + " is -2; it must be from 1 to 2147483647");
  EXPECT_EQ(own("norm", "batch_norm"), R"(config.json: norm is "batch_norm"; it must be layer_norm, )"
                                       "rms_norm or rms_norm_plus_one");
  EXPECT_EQ(own("norm", 1), "config.json: norm is 1; it must be a text");
  EXPECT_EQ(own("positions", "none"), R"(config.json: positions is "none"; it must be learned or rotary)");
  EXPECT_EQ(own("activation", "relu"), R"(config.json: activation is "relu"; it must be gelu, gelu_tanh, )"
                                       "swiglu or geglu_tanh");
  EXPECT_EQ(own("eos_token_id", 18446744073709551615u),
            "config.json: eos_token_id is 18446744073709551615; it must be an id or a list of ids");
  for (const char* name : {"llama", "qwen3"}) {
    nlohmann::json json = nlohmann::json::parse(testing::content_of(golden_folder(name) + "/config.json"));
    for (const auto& [field, ours] :
         {std::pair("num_key_value_heads", "kv_heads"), {"head_dim", "head_dim"}, {"intermediate_size", "mlp_width"}}) {
      nlohmann::json wrong = json;
      wrong[field] = -2;
      EXPECT_EQ(config_error(wrong.dump()),
                "config.json: ModelConfig: " + std::string(ours) + " is -2; it must be from 1 to 2147483647");
    }
  }
  nlohmann::json gpt2 = nlohmann::json::parse(testing::content_of(golden_folder("gpt2") + "/config.json"));
  gpt2["n_inner"] = -3;
  EXPECT_EQ(config_error(gpt2.dump()), "config.json: ModelConfig: mlp_width is -3; it must be from 1 to 2147483647");
}

/// The golden config.json of a model with other fields.
struct Fields {
  explicit Fields(const std::string& name)
      : json(nlohmann::json::parse(testing::content_of(golden_folder(name) + "/config.json"))) {}
  Fields with(const nlohmann::json& others) const {
    Fields result = *this;
    result.json.update(others);
    return result;
  }
  Fields without(const std::string& field) const {
    Fields result = *this;
    result.json.erase(field);
    return result;
  }
  ModelConfig config() const { return ModelConfig::from_json(json.dump()); }
  std::string error() const { return config_error(json.dump()); }
  nlohmann::json json;
};

// By transformers 5.23's configuration classes and the layers they make.
TEST(Configs, TheWindowIsThatOfTransformers) {
  const std::vector<std::string> full(2, "full_attention"), sliding(2, "sliding_attention"),
      mixed = {"full_attention", "sliding_attention"};
  const Fields mistral("mistral");
  EXPECT_EQ(mistral.config().sliding_window, 4);
  EXPECT_EQ(mistral.with({{"sliding_window", nullptr}}).config().sliding_window, 0);
  EXPECT_EQ(mistral.without("sliding_window").config().sliding_window, 4096);
  EXPECT_EQ(mistral.with({{"use_sliding_window", false}}).config().sliding_window, 4) << "Qwen's word";
  EXPECT_EQ(mistral.with({{"layer_types", full}}).config().sliding_window, 4) << "the mask is that of sliding_window";
  EXPECT_EQ(mistral.with({{"layer_types", mixed}}).config().sliding_window, 4);
  EXPECT_EQ(mistral.with({{"sliding_window", 0}}).error(),
            "config.json: sliding_window is 0; it must be null, or at least 1");
  EXPECT_EQ(mistral.with({{"sliding_window", nullptr}, {"layer_types", sliding}}).error(),
            R"(config.json: layer_types is ["sliding_attention","sliding_attention"]; )"
            "sliding_attention needs a sliding_window");
  EXPECT_TRUE(mistral.with({{"sliding_window", nullptr}, {"attention_chunk_size", 4}})
                  .error()
                  .starts_with("config.json: attention_chunk_size is 4; the model sees"));
  EXPECT_EQ(mistral.with({{"sliding_window", std::int64_t{1} << 40}}).error(),
            "config.json: ModelConfig: sliding_window is 1099511627776; it must be from 1 to 2147483647");

  const Fields qwen("qwen2");
  EXPECT_EQ(qwen.config().sliding_window, 4);
  EXPECT_EQ(qwen.with({{"use_sliding_window", false}, {"layer_types", nullptr}}).config().sliding_window, 0);
  EXPECT_EQ(qwen.with({{"layer_types", full}}).config().sliding_window, 0);
  EXPECT_EQ(qwen.with({{"use_sliding_window", false}}).error(),
            R"(config.json: layer_types is ["sliding_attention","sliding_attention"]; )"
            "sliding_attention needs a sliding_window, and use_sliding_window");
  const std::vector<LayerConfig> second = {{.sliding_window = 0}, {.sliding_window = 4}};
  EXPECT_EQ(qwen.with({{"layer_types", mixed}}).config().per_layer, second);
  EXPECT_EQ(qwen.with({{"layer_types", mixed}, {"sliding_window", 32}}).config().sliding_window, 32)
      << "the whole context";
  for (const nlohmann::json& none : {nlohmann::json(std::vector<std::string>(3, "full_attention")),
                                     nlohmann::json::array({1, 2}), nlohmann::json("full_attention")})
    EXPECT_TRUE(qwen.with({{"layer_types", none}})
                    .error()
                    .ends_with("it must name full_attention or sliding_attention for each of num_hidden_layers, 2"))
        << none;
  const Fields older = qwen.without("layer_types");
  EXPECT_EQ(older.config().sliding_window, 4);
  EXPECT_EQ(older.with({{"max_window_layers", 2}}).config().sliding_window, 0);
  EXPECT_EQ(older.without("max_window_layers").config().sliding_window, 0) << "28";
  EXPECT_EQ(older.with({{"max_window_layers", 1}}).config().per_layer, second);
}

// What transformers takes for fields that are not there.
TEST(Configs, SizesThatAConfigDoesNotName) {
  const Fields qwen = Fields("qwen3").with({{"num_attention_heads", 32}});
  EXPECT_EQ(qwen.without("num_key_value_heads").config().key_value_heads(), 32);
  EXPECT_EQ(qwen.with({{"num_attention_heads", 64}}).without("num_key_value_heads").config().key_value_heads(), 32);
  EXPECT_EQ(qwen.without("head_dim").config().dim_of_head(), 128);
  EXPECT_EQ(qwen.without("max_position_embeddings").config().context, 32768);
  const Fields mistral = Fields("mistral").with({{"num_attention_heads", 16}, {"hidden_size", 64}});
  EXPECT_EQ(mistral.without("num_key_value_heads").config().key_value_heads(), 8);
  EXPECT_EQ(mistral.with({{"num_key_value_heads", nullptr}}).config().key_value_heads(), 16);
  EXPECT_EQ(mistral.without("head_dim").config().dim_of_head(), 4);
  EXPECT_EQ(mistral.without("max_position_embeddings").config().context, 131072);
}

TEST(Configs, SizesOfGpt2UnderTheNamesOfOthers) {
  nlohmann::json config = nlohmann::json::parse(testing::content_of(golden_folder("gpt2") + "/config.json"));
  const ModelConfig own = ModelConfig::from_json(config.dump());
  for (const auto& [field, elsewhere] : {std::pair("n_embd", "hidden_size"),
                                         {"n_head", "num_attention_heads"},
                                         {"n_layer", "num_hidden_layers"},
                                         {"n_positions", "max_position_embeddings"}}) {
    config[elsewhere] = config[field];
    EXPECT_EQ(ModelConfig::from_json(config.dump()), own);
    config.erase(field);
    EXPECT_EQ(ModelConfig::from_json(config.dump()), own);
  }
}

TEST(Configs, TheRotaryFieldsOfOlderConfigs) {
  nlohmann::json config = nlohmann::json::parse(testing::content_of(golden_folder("llama3") + "/config.json"));
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
TEST(Configs, RopeScalingGoesBeforeRopeParameters) {
  nlohmann::json config = nlohmann::json::parse(testing::content_of(golden_folder("llama3") + "/config.json"));
  config["rope_scaling"] = nlohmann::json::object();
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_theta, 500000);
  config["rope_scaling"] = {{"rope_type", "default"}};
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_scaling, std::nullopt);
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_theta, 10000);
  config["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  EXPECT_EQ(ModelConfig::from_json(config.dump()).rotary_scaling,
            (nn::RotaryScaling{.factor = 2, .kind = nn::RotaryScaling::Kind::linear}));
  config["rope_scaling"] = {{"type", "linear"}};
  EXPECT_EQ(config_error(config.dump()), "config.json: rope_scaling: factor is missing");
  config.erase("rope_scaling");
  config["rope_parameters"]["low_freq_factor"] = 40;
  EXPECT_TRUE(
      config_error(config.dump()).ends_with("they must be above 0, and high_frequency no less than low_frequency"))
      << config_error(config.dump());
}

TEST(Configs, OwnConfigsOfBeforeAreRead) {
  auto json = nlohmann::json::parse(testing::tiny_mixture().to_json());
  for (const char* field : {"attention_out_bias", "qk_norm", "sliding_window"}) json.erase(field);
  ModelConfig expected = testing::tiny_mixture();
  expected.attention_out_bias = std::nullopt;
  expected.qk_norm = false;
  expected.sliding_window = 0;
  EXPECT_EQ(ModelConfig::from_json(json.dump()), expected);
}

}  // namespace
}  // namespace attn
