// src/model/files.cc: reads and writes a model's folder: config.json and model.safetensors, in one file or several
// parts.
#include <attn/model.h>
#include <attn/ops.h>
#include <attn/safetensors.h>

#include "io/safetensors_header.h"
#include "io/source.h"
#include "io/write.h"
#include "model/blocks.h"
#include "model/gguf/model.h"
#include "model/json_fields.h"
#include "model/stored.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace attn {
namespace {

namespace fs = std::filesystem;
using Tensors = std::map<std::string, Tensor>;

constexpr const char* weights_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";

std::string read_text(const std::string& path) {
  const io::FileSource source("LanguageModel::load", path);
  std::string text(source.size(), '\0');
  source.read(0, text.data(), text.size());
  return text;
}

/// Returns the file of each tensor that an index lists; the files are in the folder of the index.
std::map<std::string, std::string> files_of_index(const std::string& path) {
  const JsonFields index(read_text(path), path);
  std::map<std::string, std::string> files;
  const nlohmann::json& map = index.at("weight_map");
  if (!map.is_object()) index.refuse("weight_map", "it must name the file of each tensor");
  for (const auto& [name, file] : map.items()) {
    const std::string text = file.is_string() ? file.get<std::string>() : "";
    if (text.empty() || fs::path(text).filename() != text || io::one_line(text) != text)
      index.refuse("weight_map", "each value must be the name of a file in its folder");
    files.emplace(name, text);
  }
  return files;
}

/// Reads the tensors of the index, each from the file that the index names: other files, and other tensors of these
/// files, are not read.
Tensors read_parts(const fs::path& folder, const ModelConfig& config) {
  const std::string path = (folder / index_name).string();
  std::map<std::string, std::set<std::string>> parts;  // the names of each file's tensors
  for (const auto& [name, file] : files_of_index(path))
    if (!is_buffer(name)) parts[file].insert(name);
  Tensors all;
  for (const auto& [file, names] : parts) {
    const io::FileSource source("load_safetensors", (folder / file).string());
    for (auto& [name, tensor] :
         io::load_wanted(source, [&](const auto& found) { return names.contains(found); }).tensors)
      all.emplace(name, tensor);
    for (const std::string& name : names)
      if (!all.contains(name) && !(config.tied_head && is_head(name)))
        throw ValueError("LanguageModel::load: " + path + ": weight_map says that " + io::one_line(name) + " is in " +
                         file + ", which does not have it");
  }
  return all;
}

Tensors read_weights(const fs::path& folder, const ModelConfig& config) {
  if (!fs::exists(folder / weights_name) && fs::exists(folder / index_name)) return read_parts(folder, config);
  const io::FileSource source("load_safetensors", (folder / weights_name).string());
  Tensors all;
  for (auto& [name, tensor] : io::load_wanted(source, [](const auto& found) { return !is_buffer(found); }).tensors)
    all.emplace(name, tensor);
  return all;
}

/// Reads the end tokens from transformers' generation_config.json: empty if it names none; nullopt if the file is
/// missing or, as in transformers, is not JSON.
std::optional<std::vector<std::int64_t>> generation_ends(const std::string& path) {
  if (!fs::is_regular_file(path)) return std::nullopt;
  const std::string text = read_text(path);
  try {
    parse_json_of_python(text, path);
  } catch (const FormatError&) { return std::nullopt; }
  return JsonFields(text, path).ids("eos_token_id");
}

/// Adds the family's prefix to all tensor names but the head's if none has it: a file of the bare decoder omits it.
void add_prefix(Tensors& tensors, const std::string& prefix) {
  for (const auto& [name, tensor] : tensors)
    if (name.starts_with(prefix)) return;
  Tensors renamed;
  for (const auto& [name, tensor] : tensors) renamed.emplace(name == "lm_head.weight" ? name : prefix + name, tensor);
  tensors = std::move(renamed);
}

std::string listed(const char* label, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + io::one_line(names[i]);
  if (names.size() > 8) text += " and " + std::to_string(names.size() - 8) + " more";
  return names.empty() ? "" : "; " + std::string(label) + ": " + text;
}

/// Returns whether `wide` represents each number of `narrow` exactly.
bool holds(Dtype wide, Dtype narrow) {
  return wide == narrow || wide == Dtype::f64 || (wide == Dtype::f32 && narrow != Dtype::f64);
}

/// Returns the narrowest dtype that represents all numbers of both exactly; for bf16 with f16 that is f32.
Dtype widest(Dtype a, Dtype b) { return holds(a, b) ? a : holds(b, a) ? b : Dtype::f32; }

/// Returns the output layer's table in the file; end() if there is none.
Tensors::iterator head_of(Tensors& tensors) {
  return std::find_if(tensors.begin(), tensors.end(), [](const auto& named) { return is_head(named.first); });
}

/// Makes the output layer's table the embedding, if the file has only the former.
void take_head_as(const std::string& embedding, Tensors& tensors) {
  const auto head = head_of(tensors);
  if (head == tensors.end() || tensors.contains(embedding)) return;
  auto table = tensors.extract(head);
  table.key() = embedding;
  tensors.insert(std::move(table));
}

/// Throws a ValueError if the file has the output layer's table and it differs from the embedding: the version of
/// transformers then decides which one is used.
void check_tied_head(const std::string& embedding, Tensors& tensors, const std::string& folder) {
  const auto head = head_of(tensors);
  if (head == tensors.end()) return;
  const Tensor &own = head->second, &table = tensors.at(embedding);
  const Dtype both = widest(own.dtype(), table.dtype());
  if (!same_bits(own.to(both), table.to(both)))
    throw ValueError("LanguageModel::load: " + folder + ": " + head->first + " is not " + embedding +
                     ", as tie_word_embeddings in config.json says; set it to false");
}

/// Throws a ValueError if the file's tensors do not fit the config.
void check_fit(const ModelConfig& config, const std::vector<StoredTensor>& stored, const Tensors& tensors,
               const std::string& folder) {
  std::vector<std::string> missing, unexpected, misshapen;
  std::set<std::string> known;
  for (const StoredTensor& want : stored) {
    known.insert(want.name);
    const auto found = tensors.find(want.name);
    if (want.file_row > 0) continue;  // the same tensor again
    if (found == tensors.end()) missing.push_back(want.name);
    else if (!(found->second.sizes() == want.sizes) || !is_floating(found->second.dtype()))
      misshapen.push_back(want.name + " is " + std::string(name_of(found->second.dtype())) + " " +
                          to_string(found->second.sizes()) + ", not " + to_string(want.sizes));
  }
  for (const auto& [name, tensor] : tensors)
    if (!known.contains(name) && !(config.tied_head && is_head(name))) unexpected.push_back(name);
  const std::string text =
      listed("missing", missing) + listed("unexpected", unexpected) + listed("wrong shape", misshapen);
  if (!text.empty())
    throw ValueError("LanguageModel::load: " + folder + ": the weights are not those of config.json" + text);
}

/// Returns the dtype of the file's tensors. If they have several, returns that of config.json if it loses nothing, else
/// the narrowest dtype that loses nothing.
Dtype kept_dtype(const std::vector<StoredTensor>& stored, const Tensors& tensors, const JsonFields& config) {
  const Dtype first = tensors.at(stored.front().name).dtype();
  Dtype all = first;
  bool mixed = false;
  for (const StoredTensor& one : stored) {
    const Dtype dtype = tensors.at(one.name).dtype();
    mixed = mixed || dtype != first;
    all = widest(all, dtype);
  }
  for (const char* field : {"dtype", "torch_dtype"})  // the names in transformers 5 and in earlier versions
    for (const Dtype said : {Dtype::f32, Dtype::f64})
      if (mixed && config.at(field) == torch_name_of(said) && holds(said, all)) return said;
  return all;
}

/// Returns the rows of a parameter to which a stored tensor belongs, in the layout of the file.
Tensor rows_of(const std::map<std::string, Tensor>& parameters, const StoredTensor& stored) {
  const Tensor rows = parameters.at(stored.parameter).narrow(0, stored.row, stored.rows);
  return stored.transposed ? rows.t() : rows;
}

/// Copies the tensors of the file into the parameters; each is freed before the next is copied.
void fill(const std::map<std::string, Tensor>& parameters, const std::vector<StoredTensor>& stored, Tensors& tensors) {
  for (std::size_t i = 0; i < stored.size(); ++i) {
    const StoredTensor& one = stored[i];
    const Tensor& given = tensors.at(one.name);
    rows_of(parameters, one).copy_(one.transposed ? given : given.narrow(0, one.file_row, one.rows));
    if (i + 1 == stored.size() || stored[i + 1].name != one.name) tensors.erase(one.name);
  }
}

std::map<std::string, Tensor> by_name(const LanguageModel& model) {
  const nn::StateDict state = model.state_dict();
  return {state.begin(), state.end()};
}

/// Returns the matrices of a model that stay as a file has them, by the names of their parameters.
gguf::Matrices matrices_of(const LanguageModel::Parts& parts) {
  gguf::Matrices matrices;
  const auto add = [&](const std::string& name, const ModelLinear& layer) {
    if (layer.matrix) matrices.emplace(name + ".weight", layer.matrix);
  };
  add("embedding", parts.embedding);
  if (parts.head) add("head", *parts.head);
  for (std::int64_t n = 0; n < parts.blocks.size(); ++n) {
    const DecoderBlock& block = parts.blocks[n];
    const std::string name = "blocks." + std::to_string(n) + ".";
    add(name + "attention.qkv", block.attention.qkv);
    add(name + "attention.out", block.attention.out);
    if (block.mlp.gate) add(name + "mlp.gate", *block.mlp.gate);
    add(name + "mlp.up", block.mlp.up);
    add(name + "mlp.down", block.mlp.down);
  }
  return matrices;
}

}  // namespace

LanguageModel LanguageModel::load(const std::string& folder, std::optional<Dtype> dtype) {
  if (dtype && !is_floating(*dtype))
    throw DtypeError("LanguageModel::load: dtype is " + std::string(name_of(*dtype)) +
                     "; it must be f32, f64, bf16 or f16");
  io::check_path("LanguageModel::load", folder);
  const fs::path path(folder);
  if (std::error_code unknown; fs::is_regular_file(path, unknown)) {
    const GgufFile file = GgufFile::open(folder);
    const ModelConfig config = gguf::config_of(file);
    gguf::check_weights(file, config);
    const Dtype kept = dtype.value_or(gguf::dtype_of(file));
    const auto parts =
        std::make_shared<Parts>(config, Held{.dtype = kept, .stored = gguf::keeps_matrices(file, config, kept)});
    if (parts->held.stored) parts->file = file;
    LanguageModel model(config, parts);
    gguf::load_weights(file, config, by_name(model), matrices_of(*parts));
    if (model.is_stored())
      for (Tensor parameter : model.parameters()) parameter.requires_grad_(false);
    model.eval();
    return model;
  }
  const std::string config_path = (path / "config.json").string(), config_text = read_text(config_path);
  ModelConfig config = ModelConfig::from_json(config_text, config_path);
  if (const auto ends = generation_ends((path / "generation_config.json").string())) config.end_tokens = *ends;
  Tensors tensors = read_weights(path, config);
  // This is checked before memory is allocated, because a damaged config.json may claim more layers than fit into
  // memory.
  if (config.layers > static_cast<std::int64_t>(tensors.size()))
    throw ValueError("LanguageModel::load: " + config_path + " says " + std::to_string(config.layers) +
                     (config.layers == 1 ? " layer" : " layers") + "; the weights are only " +
                     std::to_string(tensors.size()) + (tensors.size() == 1 ? " tensor" : " tensors"));
  const Family family = family_in(config_text, config_path);
  add_prefix(tensors, prefix_of(family));
  const std::vector<StoredTensor> stored = stored_tensors(config, family);
  if (config.tied_head) take_head_as(stored.front().name, tensors);
  check_fit(config, stored, tensors, folder);
  if (config.tied_head) check_tied_head(stored.front().name, tensors, folder);

  const Dtype kept = dtype ? *dtype : kept_dtype(stored, tensors, JsonFields(config_text, config_path));
  LanguageModel model(config, std::make_shared<const Parts>(config, Held{.dtype = kept}));
  fill(by_name(model), stored, tensors);
  model.eval();
  return model;
}

LanguageModel LanguageModel::decoded() const {
  if (!is_stored()) return *this;
  LanguageModel model(config, std::make_shared<const Parts>(config, Held{.dtype = dtype()}));
  gguf::load_weights(*parts_->file, config, by_name(model));
  model.load_state_dict(state_dict(), /*strict=*/false);  // the vectors may have changed
  model.train(is_training());
  return model;
}

void LanguageModel::save(const std::string& folder) const {
  if (is_stored()) return decoded().save(folder);
  io::check_path("LanguageModel::save", folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError("LanguageModel::save: " + folder + ": " + error.message());
  const auto parameters = by_name(*this);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const StoredTensor& one : stored_tensors(config, family_of(config))) {
    const Tensor rows = rows_of(parameters, one);
    if (one.file_row == 0) tensors.emplace_back(one.name, rows);
    else tensors.back().second = cat({tensors.back().second, rows}).detach();
  }
  io::save_with_checksum("LanguageModel::save", (fs::path(folder) / weights_name).string(), tensors,
                         {{"format", "pt"}});
  const std::string json = config.to_json(dtype());
  io::write_whole("LanguageModel::save", (fs::path(folder) / "config.json").string(), {std::as_bytes(std::span(json))});
}

}  // namespace attn
