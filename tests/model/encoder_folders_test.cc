// tests/model/encoder_folders_test.cc: folders of encoders as people have them: modules, older names of tensors, parts;
// and what is wrong with a folder, in one line.
#include <attn/encoder.h>
#include <attn/safetensors.h>

#include "model/encoders.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <functional>

namespace attn {
namespace {

using nlohmann::json;
using testing::Folder;
namespace fs = std::filesystem;

const std::string mean_pooling = R"({"pooling_mode_mean_tokens": true})";

std::string golden(const std::string& name) { return testing::golden_path("model/encoders/" + name); }

Tensor vectors(const TextEncoder& encoder) {
  const auto texts = testing::packed({{5, 6, 7, 8}, {9}, {4, 10, 11, 12, 13, 14}});
  return encoder.pooled(encoder.hidden(texts.ids, texts.ends), texts.ends).detach();
}

void copy_into(const std::string& from, const std::string& to) {
  for (const char* name : {"config.json", "model.safetensors"})
    fs::copy_file(fs::path(from) / name, fs::path(to) / name, fs::copy_options::overwrite_existing);
}

/// Changes config.json of a copy of an encoder, and returns what is said of it, without the path.
std::string said_of(const std::string& name, const std::function<void(json&)>& change) {
  const Folder folder;
  copy_into(golden(name), folder.path());
  json config = json::parse(testing::content_of(folder / "config.json"));
  change(config);
  folder.write("config.json", config.dump());
  std::string text = testing::error_of<ValueError>([&] { TextEncoder::load(folder.path()); });
  for (const std::string& path : {folder / "config.json", folder.path()})
    if (const std::size_t at = text.find(path); at != text.npos) text.replace(at, path.size(), "PATH");
  return text;
}

TEST(EncoderFolders, WrongConfigsAreSaidInOneLine) {
  const auto set = [](const char* field, const json& value) { return [=](json& config) { config[field] = value; }; };
  EXPECT_EQ(said_of("bert", set("model_type", "gpt2")),
            "PATH: model_type is \"gpt2\"; an encoder of texts is bert, roberta, xlm-roberta, camembert, mpnet, "
            "distilbert or modernbert");
  EXPECT_EQ(said_of("bert", set("num_attention_heads", 3)),
            "PATH: EncoderConfig: heads is 3; it must divide width (16)");
  EXPECT_EQ(said_of("bert", set("hidden_size", -16)),
            "PATH: EncoderConfig: width is -16; it must be from 1 to 2147483647");
  EXPECT_EQ(said_of("bert", set("hidden_size", INT64_MAX)),
            "PATH: EncoderConfig: width is 9223372036854775807; it must be from 1 to 2147483647");
  EXPECT_EQ(said_of("bert", set("hidden_size", "16")), "PATH: hidden_size is \"16\"; it must be a whole number");
  EXPECT_EQ(said_of("bert", set("num_hidden_layers", 1000000)),
            "TextEncoder::load: PATH says 1000000 layers; the weights are only 41 tensors");
  EXPECT_EQ(said_of("bert", set("hidden_act", "mish")),
            "PATH: hidden_act is \"mish\"; it must be gelu, gelu_new, gelu_pytorch_tanh, relu, silu or tanh");
  EXPECT_EQ(said_of("bert", set("position_embedding_type", "relative_key")),
            "PATH: position_embedding_type is \"relative_key\"; it must be absolute");
  EXPECT_EQ(said_of("bert", set("layer_norm_eps", 0)),
            "PATH: EncoderConfig: norm_eps is 0; it must be above 0, and finite");
  EXPECT_EQ(said_of("bert", set("is_decoder", true)), "PATH: is_decoder is true; attn's models have it false");
  EXPECT_EQ(said_of("bert", set("vocab_size", 30)),
            "TextEncoder::load: PATH: the weights are not those of config.json; wrong shape: "
            "embeddings.word_embeddings.weight is f32 [31, 16], not [30, 16]");
  EXPECT_EQ(said_of("bert", set("sbert_ce_default_activation_function", "torch.nn.modules.activation.Tanh")),
            "TextEncoder::load: the activation of scores is torch.nn.modules.activation.Tanh; it must be Identity or "
            "Sigmoid");
  EXPECT_EQ(said_of("roberta", set("pad_token_id", 39)),
            "PATH: EncoderConfig: positions is 40; it must be above padding_id + 1 (40)");
  EXPECT_EQ(said_of("mpnet", set("relative_attention_num_buckets", 16)),
            "PATH: relative_attention_num_buckets is 16; it must be 32");
  EXPECT_EQ(said_of("modernbert", set("layer_types", {"full_attention"})),
            "PATH: layer_types is [\"full_attention\"]; it must name full_attention or sliding_attention for each of "
            "num_hidden_layers, 4");
  EXPECT_EQ(said_of("modernbert", set("local_attention", 1)), "PATH: local_attention is 1; it must be at least 2");
  EXPECT_EQ(said_of("modernbert", set("num_hidden_layers", 1 << 30)),
            "PATH: num_hidden_layers is 1073741824; it must be from 1 to 1048576");
  EXPECT_EQ(said_of("modernbert", set("classifier_pooling", "max")),
            "PATH: classifier_pooling is \"max\"; it must be cls or mean");
}

TEST(EncoderFolders, WrongModulesAreSaidInOneLine) {
  const auto said = [](const std::string& modules, const std::string& pooling = mean_pooling) {
    const Folder folder;
    testing::write_sentence_folder(golden("mpnet"), folder.path(), pooling, true);
    if (!modules.empty()) folder.write("modules.json", modules);
    std::string text = testing::error_of<Error>([&] { TextEncoder::load(folder.path()); });
    EXPECT_EQ(text.find(folder.path()), 0u) << text;
    return text.substr(folder.path().size());
  };
  const auto module = [](const std::string& type, const std::string& path) {
    return R"({"type": "sentence_transformers.models.)" + type + R"(", "path": ")" + path + "\"}";
  };
  const std::string transformer = module("Transformer", ""), pooling = module("Pooling", "1_Pooling");
  EXPECT_EQ(said("[" + transformer + "]"), "/modules.json: there is no Pooling");
  EXPECT_EQ(said("[]"), "/modules.json: there is no Transformer");
  EXPECT_EQ(said("[" + pooling + "," + transformer + "]"),
            "/modules.json: modules[0]: type is \"sentence_transformers.models.Pooling\"; the order is Transformer, "
            "Pooling, Dense, Normalize");
  EXPECT_EQ(
      said("[" + transformer + "," + module("WordWeights", "2") + "]"),
      "/modules.json: modules[1]: type is \"sentence_transformers.models.WordWeights\"; a module is a Transformer, "
      "Pooling, Dense or Normalize");
  EXPECT_EQ(said("[" + transformer + "," + module("Pooling", "../x") + "]"),
            "/modules.json: modules[1]: path is \"../x\"; it must be a folder inside of the model's");
  EXPECT_EQ(said("[1]"), "/modules.json: modules is [1]; it must be a list of objects");
  EXPECT_EQ(said("", R"({"pooling_mode": ["cls", "median"]})"),
            "/1_Pooling/config.json: pooling_mode is [\"cls\",\"median\"]; it must be cls, max, mean, "
            "mean_sqrt_len_tokens, weightedmean or lasttoken");
  EXPECT_EQ(said("", R"({"pooling_mode_mean_tokens": 1})"),
            "/1_Pooling/config.json: pooling_mode_mean_tokens is 1; it must be true or false");
}

/// Today's name of a pooling, or several, in this order; none is the mean.
TEST(EncoderFolders, APoolingHasTwoSpellings) {
  const auto kinds = [](const std::string& pooling) {
    const Folder folder;
    testing::write_sentence_folder(golden("mpnet"), folder.path(), pooling, false);
    return TextEncoder::load(folder.path()).pooling.kinds;
  };
  using Kind = EncoderPooling::Kind;
  EXPECT_EQ(kinds(R"({"pooling_mode": "cls"})"), (std::vector{Kind::cls}));
  EXPECT_EQ(kinds(R"({"pooling_mode": ["lasttoken", "mean_sqrt_len_tokens"]})"),
            (std::vector{Kind::lasttoken, Kind::mean_sqrt_len}));
  EXPECT_EQ(kinds(R"({"pooling_mode": "max", "pooling_mode_mean_tokens": true})"), (std::vector{Kind::max}));
  EXPECT_EQ(kinds(R"({"pooling_mode_weightedmean_tokens": true, "pooling_mode_cls_token": true})"),
            (std::vector{Kind::cls, Kind::weightedmean}));
  EXPECT_EQ(kinds("{}"), (std::vector{Kind::mean}));
}

TEST(EncoderFolders, LengthsAndPromptsAreThoseOfTheFiles) {
  const Folder folder;
  testing::write_sentence_folder(golden("bert"), folder.path(), mean_pooling, true);
  EXPECT_EQ(TextEncoder::load(folder.path()).max_tokens, 40);
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 12, "do_lower_case": false})");
  folder.write("config_sentence_transformers.json",
               R"({"prompts": {"query": "query: ", "document": ""}, "default_prompt_name": "query"})");
  const TextEncoder encoder = TextEncoder::load(folder.path());
  EXPECT_EQ(encoder.max_tokens, 12);
  EXPECT_TRUE(encoder.pooling.normalize);
  EXPECT_EQ(encoder.prompts.texts.at("query"), "query: ");
  EXPECT_EQ(encoder.prompts.default_name, "query");
  folder.write("config_sentence_transformers.json", R"({"default_prompt_name": "query"})");
  EXPECT_EQ(
      testing::error_of<ValueError>([&] { TextEncoder::load(folder.path()); }),
      (folder / "config_sentence_transformers.json") + ": default_prompt_name is \"query\"; it must be one of prompts");
  folder.write("config_sentence_transformers.json", "{}");
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 12, "do_lower_case": true})");
  EXPECT_EQ(testing::error_of<ValueError>([&] { TextEncoder::load(folder.path()); }),
            (folder / "sentence_bert_config.json") + ": do_lower_case is true; attn's models have it false");
}

/// A linear map of the vectors, with and without its activation.
TEST(EncoderFolders, ADenseMapsTheVectors) {
  const Folder folder;
  testing::write_sentence_folder(golden("distilbert"), folder.path(), mean_pooling, false);
  const Tensor before = vectors(TextEncoder::load(folder.path()));
  std::string modules = testing::content_of(folder / "modules.json");
  modules.insert(modules.rfind(']'), R"(, {"type": "sentence_transformers.models.Dense", "path": "2_Dense"})");
  folder.write("modules.json", modules);
  json config = {{"in_features", 16}, {"out_features", 3}, {"bias", true}};
  config["activation_function"] = "torch.nn.modules.linear.Identity";
  testing::write_text(folder / "2_Dense/config.json", config.dump());
  const Tensor weight = randn({3, 16}), bias = randn({3});
  save_safetensors(folder / "2_Dense/model.safetensors", {{"linear.weight", weight}, {"linear.bias", bias}});
  EXPECT_EQ(TextEncoder::load(folder.path()).dim(), 3);
  EXPECT_TRUE(same_bits(vectors(TextEncoder::load(folder.path())), linear(before, weight, bias)));
  config["activation_function"] = "torch.nn.modules.activation.Tanh";
  testing::write_text(folder / "2_Dense/config.json", config.dump());
  EXPECT_TRUE(same_bits(vectors(TextEncoder::load(folder.path())), tanh(linear(before, weight, bias))));
  config["in_features"] = 8;
  testing::write_text(folder / "2_Dense/config.json", config.dump());
  EXPECT_EQ(testing::error_of<ValueError>([&] { TextEncoder::load(folder.path()); }),
            (folder / "2_Dense/config.json") + ": in_features is 8; a vector has 16 numbers");
}

/// The model in a folder of its own, in parts, with the names of BERT's time, beside the layers of another task.
TEST(EncoderFolders, OlderFilesAreTheSameEncoder) {
  const Folder folder;
  const Tensor expected = vectors(TextEncoder::load(golden("bert")));
  testing::write_sentence_folder(golden("bert"), folder.path(), mean_pooling, false);
  fs::create_directories(folder / "0_Transformer");
  for (const char* name : {"config.json", "model.safetensors"})
    fs::rename(folder / name, folder / ("0_Transformer/" + std::string(name)));
  std::string modules = testing::content_of(folder / "modules.json");
  const std::string empty = R"("path": "")";
  modules.replace(modules.find(empty), empty.size(), R"("path": "0_Transformer")");
  folder.write("modules.json", modules);
  EXPECT_TRUE(same_bits(vectors(TextEncoder::load(folder.path())), expected));

  std::vector<std::pair<std::string, Tensor>> parts[2];
  json map;
  const Safetensors whole = load_safetensors(folder / "0_Transformer/model.safetensors");
  for (const auto& [name, tensor] : whole.tensors) {
    std::string old = name;
    for (const auto& [now, then] : {std::pair<std::string, std::string>("LayerNorm.weight", "LayerNorm.gamma"),
                                    {"LayerNorm.bias", "LayerNorm.beta"}})
      if (old.ends_with(now)) old.replace(old.size() - now.size(), now.size(), then);
    parts[map.size() % 2].emplace_back(old, tensor);
    map[old] = map.size() % 2 == 0 ? "a.safetensors" : "b.safetensors";
  }
  parts[0].emplace_back("bert.embeddings.position_ids", arange(40).unsqueeze(0));
  parts[0].emplace_back("cls.predictions.bias", zeros({31}));
  map["bert.embeddings.position_ids"] = map["cls.predictions.bias"] = "a.safetensors";
  fs::remove(folder / "0_Transformer/model.safetensors");
  save_safetensors(folder / "0_Transformer/a.safetensors", parts[0]);
  save_safetensors(folder / "0_Transformer/b.safetensors", parts[1]);
  testing::write_text(folder / "0_Transformer/model.safetensors.index.json", json{{"weight_map", map}}.dump());
  EXPECT_TRUE(same_bits(vectors(TextEncoder::load(folder.path())), expected));
}

}  // namespace
}  // namespace attn
