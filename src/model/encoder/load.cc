// src/model/encoder/load.cc: loads an encoder from a folder of transformers or sentence-transformers.
#include <attn/ops.h>

#include "io/source.h"
#include "io/is_file.h"
#include "model/encoder/blocks.h"
#include "model/encoder/folder.h"
#include "model/encoder/names.h"
#include "model/gguf/mapped_file.h"
#include "model/weights_files.h"

#include <filesystem>

namespace attn {
namespace {

namespace fs = std::filesystem;

/// Reads the tensors of the encoder, under their names without prefix.
Tensors read_encoder(const fs::path& folder, const EncoderConfig& config, const WeightsWanted& which) {
  Tensors tensors;
  for (auto& [name, tensor] : read_weights(folder, which)) tensors.emplace(encoder_name(config, name), tensor);
  return tensors;
}

/// Reads a Dense of sentence-transformers for vectors of `in` numbers.
EncoderDense read_dense(const std::string& folder, std::int64_t in, Dtype dtype) {
  const std::string path = (fs::path(folder) / "config.json").string();
  const JsonFields fields(read_text(encoder_load_name, path), path);
  const std::int64_t out = fields.integer("out_features");
  if (fields.integer("in_features") != in)
    fields.refuse("in_features", "a vector has " + std::to_string(in) + " numbers");
  if (out < 1) fields.refuse("out_features", "it must be at least 1");
  const std::string activation = fields.text("activation_function", "torch.nn.modules.activation.Tanh"),
                    last = activation.substr(activation.rfind('.') + 1);
  if (last != "Tanh" && last != "Identity") fields.refuse("activation_function", "it must be Tanh or Identity");
  std::vector<StoredTensor> stored = {{"linear.weight", {out, in}, "", 0, out}};
  if (fields.boolean("bias", true)) stored.push_back({"linear.bias", {out}, "", 0, out});
  const WeightsWanted which{.function = encoder_load_name, .wanted = [](const std::string&) { return true; }};
  const Tensors tensors = read_weights(folder, which);
  check_fit(stored, tensors, folder, which);
  const auto read = [&](const StoredTensor& one) { return tensors.at(one.name).to(dtype).contiguous(); };
  return {.weight = read(stored[0]), .bias = stored.size() > 1 ? read(stored[1]) : Tensor(), .tanh = last == "Tanh"};
}

/// Returns whether a score is a sigmoid, as sentence-transformers' cross-encoders have it for one label unless a file
/// names the identity. `named`: what config_sentence_transformers.json names, which goes before config.json.
bool has_sigmoid(const EncoderConfig& config, const JsonFields& fields, std::string named) {
  const auto own = fields.object("sentence_transformers");
  if (named.empty() && own) named = own->text("activation_fn", "");
  if (named.empty()) named = fields.text("sbert_ce_default_activation_function", "");
  const std::string last = named.substr(named.rfind('.') + 1);
  if (last != "" && last != "Identity" && last != "Sigmoid")
    throw ValueError("TextEncoder::load: the activation of scores is " + io::one_line(named) +
                     "; it must be Identity or Sigmoid");
  return last.empty() ? config.labels == 1 : last == "Sigmoid";
}

}  // namespace

TextEncoder TextEncoder::load(const std::string& folder, std::optional<Dtype> dtype) {
  if (dtype && !is_floating(*dtype))
    throw DtypeError("TextEncoder::load: dtype is " + std::string(name_of(*dtype)) +
                     "; it must be f32, f64, bf16 or f16");
  io::check_path(encoder_load_name, folder);
  if (gguf::is_gguf(folder)) return Folder::load_gguf(folder, dtype);
  Folder said = Folder::read(folder);
  const fs::path path(said.transformer);
  const std::string config_path = (path / "config.json").string(),
                    config_text = read_text(encoder_load_name, config_path);
  const EncoderConfig config = EncoderConfig::from_json(config_text, config_path);
  const JsonFields fields(config_text, config_path);
  if (!said.pools && config.labels == 0)
    throw ValueError((fs::path(folder) / "modules.json").string() + ": there is no Pooling");
  const WeightsWanted which{.function = encoder_load_name, .wanted = [&](const std::string& name) {
                              return is_encoder_weight(config, encoder_name(config, name));
                            }};
  Tensors tensors = read_encoder(path, config, which);
  check_layers_fit(config.layers, tensors, config_path, encoder_load_name);
  const std::vector<StoredTensor> stored = encoder_tensors(config);
  check_fit(stored, tensors, said.transformer, which);

  const Dtype kept = dtype ? *dtype : kept_dtype(stored, tensors, fields);
  const auto parts = std::make_shared<Parts>(config, Held{.dtype = kept});
  parts->sigmoid = has_sigmoid(config, fields, said.activation);
  std::int64_t dim = config.width * static_cast<std::int64_t>(said.pooling.kinds.size());
  for (const std::string& one : said.dense) {
    parts->dense.push_back(read_dense(one, dim, kept == Dtype::f64 ? Dtype::f64 : Dtype::f32));
    dim = parts->dense.back().weight.size(0);
  }
  for (const fs::path& place : {path, fs::path(folder)})
    if (!parts->tokenizer && io::is_file(place / "tokenizer.json"))
      parts->tokenizer = Tokenizer::load((place / "tokenizer.json").string());
  if (!said.max_tokens && parts->tokenizer && parts->tokenizer->max_length() > 0)
    said.max_tokens = parts->tokenizer->max_length();
  TextEncoder encoder(config, said, parts);
  fill(by_name(encoder), stored, tensors);
  encoder.eval();
  return encoder;
}

}  // namespace attn
