// src/model/encoder_decoder/files.cc: loads an encoder-decoder from a folder of transformers, and saves one.
#include <attn/encoder_decoder.h>
#include <attn/ops.h>

#include "io/safetensors_header.h"
#include "io/source.h"
#include "io/write.h"
#include "model/encoder_decoder/blocks.h"
#include "model/encoder_decoder/generation_config.h"
#include "model/encoder_decoder/names.h"
#include "model/weights_files.h"

#include <filesystem>
#include <span>

namespace attn {
namespace {

namespace fs = std::filesystem;

constexpr const char* pair_load_name = "EncoderDecoder::load";
constexpr const char *shared_table = "shared.weight", *encoder_table = "encoder.embed_tokens.weight",
                     *decoder_table = "decoder.embed_tokens.weight", *head_table = "lm_head.weight",
                     *bias_of_head = "final_logits_bias";

bool is_same(const Tensor& a, const Tensor& b) {
  const Dtype both = widest(a.dtype(), b.dtype());
  return a.sizes() == b.sizes() && is_floating(a.dtype()) && is_floating(b.dtype()) &&
         same_bits(a.to(both), b.to(both));
}

/// Finds out which tables are one, and gives them the names of `pair_tensors`. A table that the file has twice, or
/// lacks, is the one that another name has: the shared table, else that of the decoder, the encoder, the output
/// layer.
void resolve_tables(Tensors& tensors, EncoderDecoderConfig& config) {
  std::map<std::string, Tensor> found;
  for (const char* name : {shared_table, decoder_table, encoder_table, head_table})
    if (const auto at = tensors.find(name); at != tensors.end()) {
      found.emplace(name, at->second);
      tensors.erase(at);
    }
  const auto first_of = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const auto at = found.find(name); at != found.end()) return at->second;
    return Tensor();
  };
  const Tensor encoder = first_of({encoder_table, shared_table, decoder_table, head_table}),
               decoder = first_of({decoder_table, shared_table, head_table, encoder_table}),
               head = first_of({head_table, decoder_table, shared_table, encoder_table});
  if (!encoder.defined()) return;  // check_fit reports that the shared table is missing
  config.shared_embedding = config.shared_embedding && is_same(encoder, decoder);
  // T5's is the decoder's table whenever the file has no other
  const bool may_be_tied = config.tied_head || config.family == EncoderDecoderConfig::Family::t5;
  config.tied_head = found.contains(head_table) ? is_same(head, decoder) : may_be_tied;
  tensors.emplace(config.shared_embedding ? shared_table : encoder_table, encoder);
  if (!config.shared_embedding) tensors.emplace(decoder_table, decoder);
  if (!config.tied_head) tensors.emplace(head_table, head);
}

/// Takes final_logits_bias [1, V] out of the tensors: zeros if the file has none.
void take_head_bias(Tensors& tensors, const Tensor& to, const std::string& folder) {
  const auto found = tensors.find(bias_of_head);
  if (found == tensors.end()) return;
  const Tensor given = found->second;
  tensors.erase(found);
  if (!to.defined()) return;
  if (given.numel() != to.numel() || !is_floating(given.dtype()))
    throw ValueError(std::string(pair_load_name) + ": " + folder + ": final_logits_bias is " +
                     std::string(name_of(given.dtype())) + " " + to_string(given.sizes()) + ", not [1, " +
                     std::to_string(to.numel()) + "]");
  to.copy_(given.reshape({to.numel()}));
}

}  // namespace

EncoderDecoder EncoderDecoder::load(const std::string& folder, std::optional<Dtype> dtype) {
  if (dtype && !is_floating(*dtype))
    throw DtypeError(std::string(pair_load_name) + ": dtype is " + std::string(name_of(*dtype)) +
                     "; it must be f32, f64, bf16 or f16");
  io::check_path(pair_load_name, folder);
  const fs::path path(folder);
  const std::string config_path = (path / "config.json").string(), config_text = read_text(pair_load_name, config_path);
  EncoderDecoderConfig config = EncoderDecoderConfig::from_json(config_text, config_path);
  const WeightsWanted which{.function = pair_load_name, .wanted = [&](const std::string& name) {
                              return is_pair_weight(config, pair_name(config, name));
                            }};
  Tensors tensors;
  for (auto& [name, tensor] : read_weights(path, which)) tensors.emplace(pair_name(config, name), tensor);
  check_layers_fit(std::max(config.encoder_layers, config.decoder_layers), tensors, config_path, pair_load_name);
  resolve_tables(tensors, config);
  const std::vector<StoredTensor> stored = pair_tensors(config);
  Tensors bias;
  if (auto found = tensors.extract(bias_of_head)) bias.insert(std::move(found));
  check_fit(stored, tensors, folder, which);

  const Dtype kept = dtype ? *dtype : kept_dtype(stored, tensors, JsonFields(config_text, config_path));
  EncoderDecoder model(config, std::make_shared<const Parts>(config, kept));
  model.generation_config = generation_config_of(pair_load_name, path, config);
  take_head_bias(bias, model.parts_->head_bias, folder);
  fill(by_name(model), stored, tensors);
  model.eval();
  return model;
}

void EncoderDecoder::save(const std::string& folder) const {
  constexpr const char* name = "EncoderDecoder::save";
  io::check_path(name, folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw IoError(std::string(name) + ": " + folder + ": " + error.message());
  const Tensors parameters = by_name(*this);
  std::vector<std::pair<std::string, Tensor>> tensors;
  for (const StoredTensor& one : pair_tensors(config))
    tensors.emplace_back(pair_file_name(config, one.name), rows_of(parameters, one));
  if (parts_->head_bias.defined()) tensors.emplace_back(bias_of_head, parts_->head_bias.unsqueeze(0));
  io::save_with_checksum(name, (fs::path(folder) / weights_name).string(), tensors, {{"format", "pt"}});
  const auto write = [&](const char* file, const std::string& text) {
    io::write_whole(name, (fs::path(folder) / file).string(), {std::as_bytes(std::span(text))});
  };
  write("generation_config.json", generation_config);
  write("config.json", config.to_json(dtype()));
}

}  // namespace attn
