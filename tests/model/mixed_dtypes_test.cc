// tests/model/mixed_dtypes_test.cc: a file whose tensors have several dtypes is loaded without losing a bit of any.
#include "model/tiny_models.h"
#include "support/errors.h"

#include <attn/ops.h>
#include <attn/safetensors.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

namespace attn {
namespace {

using testing::Folder;

constexpr Dtype floats[] = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16};

/// Whether `wide` has every number of `narrow`.
bool has_all_of(Dtype wide, Dtype narrow) {
  static const std::map<Dtype, std::vector<Dtype>> numbers = {
      {Dtype::f64, {Dtype::f64, Dtype::f32, Dtype::bf16, Dtype::f16}},
      {Dtype::f32, {Dtype::f32, Dtype::bf16, Dtype::f16}},
      {Dtype::bf16, {Dtype::bf16}},
      {Dtype::f16, {Dtype::f16}}};
  const auto& all = numbers.at(wide);
  return std::find(all.begin(), all.end(), narrow) != all.end();
}

/// A folder with the tensors of a tiny Llama, each of the dtype that is said of its name, and a config.json that says
/// `dtype` under `field`.
std::map<std::string, Tensor> write(const Folder& folder, const std::function<Dtype(const std::string&)>& dtype_of_name,
                                    const char* field, const nlohmann::json& dtype) {
  const LanguageModel model(testing::tiny_llama(), Dtype::f64);
  model.save(folder / "f64");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, value] : load_safetensors(folder / "f64/model.safetensors").tensors)
    tensors.emplace_back(name, value.to(dtype_of_name(name)));
  save_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
  nlohmann::json config = nlohmann::json::parse(testing::content_of(folder / "f64/config.json"));
  config.erase("torch_dtype");
  if (field != nullptr) config[field] = dtype;
  folder.write("config.json", config.dump());
  return {tensors.begin(), tensors.end()};
}

/// Every number of the file is in the model.
void expect_kept(const Folder& folder, const LanguageModel& model, const std::map<std::string, Tensor>& file) {
  model.save(folder / "again");
  for (const auto& [name, value] : load_safetensors(folder / "again/model.safetensors").tensors)
    EXPECT_TRUE(same_bits(value.to(Dtype::f64), file.at(name).to(Dtype::f64)))
        << name << " " << value.dtype() << " of " << file.at(name).dtype();
}

TEST(MixedDtypes, EveryPairWithEveryWordOfTheConfig) {
  for (const Dtype embedding : floats)
    for (const Dtype rest : floats)
      for (const char* field : {"dtype", "torch_dtype", static_cast<const char*>(nullptr)})
        for (const Dtype said : floats) {
          if (field == nullptr && said != Dtype::f32) continue;
          SCOPED_TRACE(std::string(name_of(embedding)) + ", " + std::string(name_of(rest)) +
                       ", config.json: " + (field ? std::string(name_of(said)) : "nothing"));
          const Folder folder;
          const auto file = write(
              folder, [&](const std::string& name) { return name == "model.embed_tokens.weight" ? embedding : rest; },
              field, std::string(torch_name_of(said)));
          const LanguageModel model = LanguageModel::load(folder.path());
          expect_kept(folder, model, file);
          if (embedding == rest) {
            EXPECT_EQ(model.dtype(), rest);
          } else if (field != nullptr && has_all_of(said, embedding) && has_all_of(said, rest)) {
            EXPECT_EQ(model.dtype(), said);
          } else {
            EXPECT_NE(model.dtype() == Dtype::f64, embedding != Dtype::f64 && rest != Dtype::f64)
                << "no wider than it must be";
          }
        }
}

TEST(MixedDtypes, OneTensorAlone) {
  for (const char* alone :
       {"model.norm.weight", "lm_head.weight", "model.layers.1.mlp.down_proj.weight", "model.embed_tokens.weight"}) {
    const Folder folder;
    const auto file = write(
        folder, [&](const std::string& name) { return name == alone ? Dtype::f32 : Dtype::bf16; }, "dtype", "bfloat16");
    const LanguageModel model = LanguageModel::load(folder.path());
    EXPECT_EQ(model.dtype(), Dtype::f32) << alone;
    expect_kept(folder, model, file);
    EXPECT_EQ(LanguageModel::load(folder.path(), Dtype::bf16).dtype(), Dtype::bf16) << "the dtype of the call";
  }
}

TEST(MixedDtypes, AConfigThatNamesNoDtypeOfAModel) {
  for (const nlohmann::json& said :
       {nlohmann::json("int64"), nlohmann::json(32), nlohmann::json("auto"), nlohmann::json()}) {
    const Folder folder;
    const auto file = write(
        folder, [&](const std::string& name) { return name == "model.norm.weight" ? Dtype::f16 : Dtype::bf16; },
        "dtype", said);
    const LanguageModel model = LanguageModel::load(folder.path());
    EXPECT_EQ(model.dtype(), Dtype::f32);
    expect_kept(folder, model, file);
  }
}

/// A tied head that has more bits than the table is another.
TEST(MixedDtypes, ATiedHeadIsComparedWithoutRounding) {
  const Folder folder;
  ModelConfig config = testing::tiny_llama();
  config.tied_head = true;
  LanguageModel(config).save(folder / "first");
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const auto& [name, value] : load_safetensors(folder / "first/model.safetensors").tensors) {
    tensors.emplace_back(name, name == "model.embed_tokens.weight" ? value.to(Dtype::bf16) : value);
    if (name == "model.embed_tokens.weight") tensors.emplace_back("lm_head.weight", value);
  }
  folder.write("config.json", testing::content_of(folder / "first/config.json"));
  save_safetensors(folder / "model.safetensors", tensors);
  EXPECT_NE(testing::error_of<ValueError>([&] {
              LanguageModel::load(folder.path());
            }).find("lm_head.weight is not model.embed_tokens.weight"),
            std::string::npos);
  for (auto& [name, value] : tensors)
    if (name == "lm_head.weight") value = value.to(Dtype::bf16).to(Dtype::f32);
  save_safetensors(folder / "model.safetensors", tensors);
  EXPECT_EQ(LanguageModel::load(folder.path()).dtype(), Dtype::f32);
}

}  // namespace
}  // namespace attn
