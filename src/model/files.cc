// src/model/files.cc: reads and writes a model's folder: config.json and model.safetensors, in one file or several
// parts.
#include <attn/model.h>
#include <attn/ops.h>
#include <attn/safetensors.h>

#include "io/checksum.h"
#include "io/is_file.h"
#include "io/safetensors_header.h"
#include "io/source.h"
#include "io/write.h"
#include "model/blocks.h"
#include "model/gguf/mapped_file.h"
#include "model/gguf/model.h"
#include "model/json_fields.h"
#include "model/stored.h"
#include "model/weights_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

namespace attn {
namespace {

namespace fs = std::filesystem;

constexpr const char* load_name = "LanguageModel::load";

/// The tensors of a decoder's file: all except the buffers; a tied head has no separate table.
WeightsWanted tensors_wanted(const ModelConfig& config) {
  return {.function = load_name,
          .wanted = [](const std::string& name) { return !is_buffer(name); },
          .spare = [tied = config.tied_head](const std::string& name) { return tied && is_head(name); }};
}

/// Reads the end tokens from transformers' generation_config.json: empty if it names none; nullopt if the file is
/// missing or, as in transformers, is not JSON.
std::optional<std::vector<std::int64_t>> generation_ends(const std::string& path) {
  if (!io::is_file(path)) return std::nullopt;
  const std::string text = read_text(load_name, path);
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

/// Maps a file, so that only the pages of this rank's columns are read.
std::unique_ptr<io::Source> map_weights(const char* function, const std::string& path) {
  const std::shared_ptr<const gguf::Bytes> bytes = gguf::map_file(function, path);
  return std::make_unique<io::MemorySource>(std::string(function) + ": " + path, bytes->all(), bytes);
}

/// Continues a digest with a tensor's name, its size, and the first and last bytes of its data. The whole data would
/// have to be read, of which each rank needs a part.
std::uint64_t sampled(const std::string& name, std::span<const std::byte> data, std::uint64_t digest) {
  constexpr std::size_t most = 4096;
  const std::string head = name + " " + std::to_string(data.size());
  const std::size_t count = std::min(most, data.size());
  for (const auto& piece : {std::as_bytes(std::span(head)), data.first(count), data.last(count)})
    digest = io::xxh64(piece, digest);
  return digest;
}

std::uint64_t sampled(const GgufFile& file) {
  std::uint64_t digest = 0;
  for (const GgufFile::Entry& entry : file.tensors()) digest = sampled(entry.name, file.data(entry), digest);
  return digest;
}

std::uint64_t sampled(const Tensors& tensors) {
  std::uint64_t digest = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t bytes = static_cast<std::size_t>(tensor.numel()) * size_of(tensor.dtype());
    digest = sampled(name, {static_cast<const std::byte*>(tensor.data()), bytes}, digest);
  }
  return digest;
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

LanguageModel LanguageModel::load(const std::string& path, std::optional<Dtype> dtype) {
  return load(path, dtype, std::shared_ptr<const SharedColumns>());
}

LanguageModel LanguageModel::load(const std::string& folder, std::optional<Dtype> dtype,
                                  std::shared_ptr<const SharedColumns> ranks) {
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
    const auto parts = std::make_shared<Parts>(
        config, Held{.dtype = kept, .stored = gguf::keeps_matrices(file, config, kept), .ranks = ranks});
    if (parts->held.stored) parts->file = file;
    if (ranks) parts->digest = sampled(file);
    LanguageModel model(config, parts);
    gguf::load_weights(file, parts->columns.own(gguf::stored_tensors(gguf::architecture_of(file), config)),
                       by_name(model), matrices_of(*parts));
    if (model.is_stored() || model.is_shared())
      for (Tensor parameter : model.parameters()) parameter.requires_grad_(false);
    model.eval();
    return model;
  }
  const std::string config_path = (path / "config.json").string(), config_text = read_text(load_name, config_path);
  ModelConfig config = ModelConfig::from_json(config_text, config_path);
  if (const auto ends = generation_ends((path / "generation_config.json").string())) config.end_tokens = *ends;
  const WeightsWanted which = tensors_wanted(config);
  Tensors tensors = read_weights(path, which, ranks ? map_weights : open_file);
  check_layers_fit(config.layers, tensors, config_path, load_name);
  const Family family = family_in(config_text, config_path);
  add_prefix(tensors, prefix_of(family));
  const std::vector<StoredTensor> stored = stored_tensors(config, family);
  if (config.tied_head) take_head_as(stored.front().name, tensors);
  check_fit(stored, tensors, folder, which);
  if (config.tied_head) check_tied_head(stored.front().name, tensors, folder);

  const Dtype kept = dtype ? *dtype : kept_dtype(stored, tensors, JsonFields(config_text, config_path));
  const auto parts = std::make_shared<Parts>(config, Held{.dtype = kept, .ranks = ranks});
  if (ranks) parts->digest = sampled(tensors);
  LanguageModel model(config, parts);
  fill(by_name(model), parts->columns.own(stored), tensors);
  if (model.is_shared())
    for (Tensor parameter : model.parameters()) parameter.requires_grad_(false);
  model.eval();
  return model;
}

LanguageModel LanguageModel::decoded() const {
  if (is_shared()) throw ValueError("LanguageModel: several ranks have columns of the weights; load the file alone");
  if (!is_stored()) return *this;
  LanguageModel model(config, std::make_shared<const Parts>(config, Held{.dtype = dtype()}));
  gguf::load_weights(*parts_->file, config, by_name(model));
  model.load_state_dict(state_dict(), /*strict=*/false);  // the vectors may have changed
  model.train(is_training());
  return model;
}

void LanguageModel::save(const std::string& folder) const {
  if (is_stored() || is_shared()) return decoded().save(folder);
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
