// src/model/encoder/folder.cc: reads modules.json of sentence-transformers and the files of each module.
#include "model/encoder/folder.h"

#include "io/is_file.h"
#include "io/source.h"
#include "model/json_fields.h"
#include "model/weights_files.h"

#include "runtime/format.h"

#include <algorithm>
#include <filesystem>
#include <utility>

namespace attn {
namespace {

namespace fs = std::filesystem;
using Kind = EncoderPooling::Kind;

/// Reads pooling_mode, a name or several; or, of earlier versions, a field for each, which are joined in this order.
EncoderPooling read_pooling(const fs::path& folder) {
  struct Mode {
    const char *name, *field;
    Kind kind;
  };
  constexpr Mode modes[] = {{"cls", "pooling_mode_cls_token", Kind::cls},
                            {"max", "pooling_mode_max_tokens", Kind::max},
                            {"mean", "pooling_mode_mean_tokens", Kind::mean},
                            {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", Kind::mean_sqrt_len},
                            {"weightedmean", "pooling_mode_weightedmean_tokens", Kind::weightedmean},
                            {"lasttoken", "pooling_mode_lasttoken", Kind::lasttoken}};
  const std::string path = (folder / "config.json").string();
  const JsonFields fields(read_text(encoder_load_name, path), path);
  EncoderPooling pooling{.kinds = {}, .include_prompt = fields.boolean("include_prompt", true)};
  const nlohmann::json& said = fields.at("pooling_mode");
  for (const nlohmann::json& one : said.is_array() ? said : nlohmann::json::array({said})) {
    if (said.is_null()) break;
    const auto mode =
        std::find_if(std::begin(modes), std::end(modes), [&](const Mode& each) { return one == each.name; });
    if (mode == std::end(modes))
      fields.refuse("pooling_mode", "it must be cls, max, mean, mean_sqrt_len_tokens, weightedmean or lasttoken");
    pooling.kinds.push_back(mode->kind);
  }
  for (const Mode& mode : modes)
    if (said.is_null() && fields.boolean(mode.field, false)) pooling.kinds.push_back(mode.kind);
  if (pooling.kinds.empty()) pooling.kinds = {Kind::mean};
  return pooling;
}

/// Returns the maximum length of a file of sentence-transformers, whose name depends on its version and the model.
std::optional<std::int64_t> read_max_length(const fs::path& folder) {
  for (const char* model : {"bert", "roberta", "distilbert", "camembert", "xlm-roberta"}) {
    const fs::path path = folder / ("sentence_" + std::string(model) + "_config.json");
    const std::optional<JsonFields> found = fields_of(encoder_load_name, path);
    if (!found) continue;
    const JsonFields& fields = *found;
    fields.must_be("do_lower_case", false);
    if (fields.at("max_seq_length").is_null()) return std::nullopt;
    const std::int64_t length = fields.integer("max_seq_length");
    if (length < 1) fields.refuse("max_seq_length", "it must be null, or at least 1");
    return length;
  }
  return std::nullopt;
}

EncoderPrompts read_prompts(const JsonFields& fields) {
  EncoderPrompts prompts;
  prompts.default_name = fields.text("default_prompt_name", "");
  const nlohmann::json& texts = fields.at("prompts");
  if (!texts.is_null() && !texts.is_object()) fields.refuse("prompts", "it must name a text each");
  for (const auto& [name, text] : texts.items()) {
    if (!text.is_string()) fields.refuse("prompts", "it must name a text each");
    prompts.texts.emplace(name, text.get<std::string>());
  }
  if (!prompts.default_name.empty() && !prompts.texts.contains(prompts.default_name))
    fields.refuse("default_prompt_name", "it must be one of prompts");
  return prompts;
}

/// Returns a module's folder, which must be inside of the model's.
fs::path folder_of(const fs::path& folder, const JsonFields& module) {
  const fs::path path = module.text("path", "");
  const std::string text = path.string();
  if (path.is_absolute() || io::one_line(text) != text || text.find('\0') != text.npos ||
      std::any_of(path.begin(), path.end(), [](const fs::path& part) { return part == ".."; }))
    module.refuse("path", "it must be a folder inside of the model's");
  return folder / path;
}

}  // namespace

TextEncoder::Folder TextEncoder::Folder::read(const std::string& folder) {
  const fs::path path(folder), modules = path / "modules.json";
  Folder result;
  result.transformer = folder;
  if (const auto config = fields_of(encoder_load_name, path / "config_sentence_transformers.json")) {
    result.prompts = read_prompts(*config);
    result.activation = config->text("activation_fn", "");
  }
  if (!io::is_file(modules)) {
    result.max_tokens = read_max_length(path);
    return result;
  }
  const JsonFields list("{\"modules\":" + read_text(encoder_load_name, modules.string()) + "}", modules.string());
  bool transformer = false, pooling = false, normalize = false;
  for (const JsonFields& module : list.objects("modules")) {
    const std::string type = module.text("type"), name = type.substr(type.rfind('.') + 1);
    const fs::path own = folder_of(path, module);
    const auto in_order = [&](bool before) {
      if (!before) module.refuse("type", "the order is Transformer, Pooling, Dense, Normalize");
    };
    if (name == "Transformer") {
      in_order(!std::exchange(transformer, true));
      result.transformer = own.string();
      result.max_tokens = read_max_length(own);
    } else if (name == "Pooling") {
      in_order(transformer && !std::exchange(pooling, true));
      result.pooling = read_pooling(own);
    } else if (name == "Dense") {
      in_order(pooling && !normalize);
      result.dense.push_back(own.string());
    } else if (name == "Normalize") {
      in_order(pooling && !std::exchange(normalize, true));
    } else {
      module.refuse("type", "a module is a Transformer, Pooling, Dense or Normalize");
    }
  }
  if (!transformer) throw ValueError(modules.string() + ": there is no Transformer");
  result.pools = pooling;
  result.pooling.normalize = normalize;
  return result;
}

}  // namespace attn
