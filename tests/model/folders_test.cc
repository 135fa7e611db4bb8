// tests/model/folders_test.cc: folders as people have them: buffers of any dtype, tied heads, overlays and stale parts,
// the config.json of known models. Each is read as transformers reads it.
#include "io/files.h"
#include "model/tiny_models.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/safetensors.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

namespace attn {
namespace {

using nlohmann::json;
using testing::error_of;
using testing::Folder;
using testing::golden_folder;

/// Returns the bytes of a safetensors file. An entry is a tensor of the base by its name there ("from"), or bytes of 1
/// of any dtype.
std::string file_of(const json& entries, const Safetensors& base) {
  const std::map<std::string, std::size_t> sizes = {{"F32", 4}, {"F16", 2},  {"I64", 8},     {"U8", 1},
                                                    {"I8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F99", 1}};
  json header = json::object();
  std::string data;
  for (const json& entry : entries) {
    const std::size_t begin = data.size();
    json dims = json::array();
    std::string dtype = "F32";
    if (entry.contains("from")) {
      const Tensor& x = base.at(entry.at("from").get<std::string>());
      for (const std::int64_t size : x.sizes()) dims.push_back(size);
      data.append(static_cast<const char*>(x.data()), static_cast<std::size_t>(x.numel()) * sizeof(float));
    } else {
      dtype = entry.at("dtype");
      dims = entry.at("shape");
      std::size_t bytes = sizes.at(dtype);
      for (const json& size : dims) bytes *= size.get<std::size_t>();
      data.append(bytes, '\1');
    }
    header[entry.at("name").get<std::string>()] = {
        {"dtype", dtype}, {"shape", dims}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text + data;
}

/// The folder of a record of folders.json.
struct Recorded {
  explicit Recorded(const json& record) {
    const std::string base = golden_folder(record.at("base"));
    folder.write("config.json", record.contains("config") ? record.at("config").get<std::string>()
                                                          : testing::content_of(base + "/config.json"));
    if (record.contains("files")) {
      const Safetensors tensors = load_safetensors(base + "/model.safetensors");
      for (const auto& [file, entries] : record.at("files").items()) folder.write(file, file_of(entries, tensors));
    } else {
      folder.write("model.safetensors", testing::content_of(base + "/model.safetensors"));
    }
    if (record.contains("index"))
      folder.write("model.safetensors.index.json", json{{"weight_map", record.at("index")}}.dump());
    if (record.contains("generation_config")) folder.write("generation_config.json", record.at("generation_config"));
  }
  std::string error() const {
    return error_of<Error>([&] { LanguageModel::load(folder.path()); });
  }
  Folder folder;
};

TEST(Folders, AreReadAsTransformersReadsThem) {
  for (const json& record : testing::golden("model/folders.json")) {
    SCOPED_TRACE(record.at("name").get<std::string>());
    const Recorded recorded(record);
    const json& checkpoint = testing::golden("model/" + record.at("base").get<std::string>() + "/logits.json");
    json expected = checkpoint.at("logits");
    if (record.contains("logits")) expected["values"] = record.at("logits");
    std::vector<std::int64_t> ids;
    for (const json& row : checkpoint.at("ids")) ids.insert(ids.end(), row.begin(), row.end());
    const LanguageModel model = LanguageModel::load(recorded.folder.path());
    const Tensor logits =
        model(tensor<std::int64_t>(ids).reshape({static_cast<std::int64_t>(checkpoint.at("ids").size()), -1}));
    EXPECT_TRUE(testing::within_error_rule(
        logits.detach(), testing::golden_tensor(expected),
        (record.contains("logits") ? record : checkpoint).at("torch_error_vs_float64").get<double>()));
    EXPECT_EQ(json(model.config.end_tokens), record.at("eos_token_id"));
  }
}

/// Returns the record of that name.
json record_of(std::string_view name) {
  for (const json& record : testing::golden("model/folders.json"))
    if (record.at("name") == name) return record;
  throw std::runtime_error("no such record");
}

TEST(Folders, ATensorThatIsUsedHasADtypeOfAttn) {
  for (const auto& [dtype, text] :
       {std::pair{"F8_E4M3",
                  "tensor \"transformer.ln_f.bias\" is F8_E4M3; F64, F32, F16, BF16, I64, I32 and BOOL can "
                  "be loaded"},
        {"U8", "tensor \"transformer.ln_f.bias\" is U8; F64, F32, F16, BF16, I64, I32 and BOOL can be loaded"}}) {
    json record = record_of("GPT-2 with masks of U8");
    for (json& entry : record.at("files").at("model.safetensors"))
      if (entry.at("name") == "transformer.ln_f.bias")
        entry = {{"name", entry.at("name")}, {"dtype", dtype}, {"shape", {12}}};
    const Recorded recorded(record);
    EXPECT_EQ(recorded.error(), "load_safetensors: " + (recorded.folder / "model.safetensors") + ": " + text);
  }
}

/// Of a buffer nothing but its place in the file is checked, not even the dtype's name; its place is.
TEST(Folders, ABufferOfAnUnknownDtypeIsLeftOut) {
  json record = record_of("GPT-2 with masks of U8");
  for (json& entry : record.at("files").at("model.safetensors"))
    if (entry.value("dtype", "") == "U8") entry["dtype"] = "F99";
  const Recorded recorded(record);
  EXPECT_NO_THROW(LanguageModel::load(recorded.folder.path()));
  const std::string path = recorded.folder / "model.safetensors";
  EXPECT_NE(error_of<FormatError>([&] { load_safetensors(path); }).find("has the unknown dtype \"F99\""),
            std::string::npos);
  testing::Bytes cut = testing::read_file(path);
  cut.resize(cut.size() - 10);
  testing::write_file(path, cut);
  EXPECT_NE(recorded.error().find("the data of tensor"), std::string::npos) << recorded.error();
}

/// Whatever order the files have: transformers reads all parts and keeps the last of several copies by name.
TEST(Folders, ThePartThatTheIndexNamesCounts) {
  json record = record_of("an overlay, its stale copies and a forgotten file");
  const auto renamed = [](json& object, const char* from, const char* to) {
    object[to] = object.at(from);
    object.erase(from);
  };
  renamed(record.at("files"), "b-overlay.safetensors", "0-overlay.safetensors");
  for (auto& [name, file] : record.at("index").items())
    if (file == "b-overlay.safetensors") file = "0-overlay.safetensors";
  const Recorded recorded(record);
  const Tensor ids = tensor<std::int64_t>({3, 1, 4, 1, 5}).unsqueeze(0);
  EXPECT_TRUE(same_bits(LanguageModel::load(recorded.folder.path())(ids).detach(),
                        LanguageModel::load(golden_folder("llama"))(ids).detach()));
}

TEST(Folders, AnIndexThatNamesTheWrongFileIsRefused) {
  json record = record_of("an overlay, its stale copies and a forgotten file");
  record.at("index").at("model.norm.weight") = "d.safetensors";
  const Recorded wrong(record);
  EXPECT_EQ(wrong.error(), "LanguageModel::load: " + (wrong.folder / "model.safetensors.index.json") +
                               ": weight_map says that model.norm.weight is in d.safetensors, which does not have it");
  record.at("index").at("model.norm.weight") = "e.safetensors";
  const Recorded absent(record);
  EXPECT_NE(absent.error().find((absent.folder / "e.safetensors") + ": No such file"), std::string::npos)
      << absent.error();
  record.at("index").erase("model.norm.weight");
  const Recorded missing(record);
  EXPECT_EQ(missing.error(), "LanguageModel::load: " + missing.folder.path() +
                                 ": the weights are not those of config.json; missing: model.norm.weight");
}

TEST(Folders, AHeadAloneIsNoEmbeddingUnlessItIsTied) {
  json record = record_of("a tied head alone");
  json config = json::parse(testing::content_of(golden_folder("qwen2") + "/config.json"));
  config["tie_word_embeddings"] = false;
  record["config"] = config.dump();
  EXPECT_NE(Recorded(record).error().find("missing: model.embed_tokens.weight"), std::string::npos);
}

}  // namespace
}  // namespace attn
