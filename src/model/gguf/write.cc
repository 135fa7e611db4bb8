// src/model/gguf/write.cc: writes a model as a GGUF file: its keys, then its tensors in one type.
#include "model/gguf/write.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "io/source.h"
#include "io/write.h"
#include "model/gguf/metadata.h"
#include "model/gguf/model.h"
#include "model/gguf/names.h"
#include "model/gguf/types.h"
#include "model/tokenizer_state.h"

#include "runtime/floating_point.h"
#include "runtime/format.h"

#include <algorithm>
#include <map>

namespace attn::gguf {
namespace {

constexpr std::uint64_t alignment = 32;
constexpr const char* function = "convert";

const Type& type_of(const std::string& name) {
  const auto all = types();
  return *std::find_if(all.begin(), all.end(), [&](const Type& type) { return name == type.name; });
}

/// Returns the number that general.file_type has for a type.
std::int64_t file_type(const Type& type) {
  const std::map<std::string, std::int64_t> numbers = {{"F32", 0}, {"F16", 1}, {"Q4_0", 2}, {"Q8_0", 7}, {"BF16", 32}};
  return numbers.at(type.name);
}

const Architecture& architecture_of(const ModelConfig& config) {
  const Family family = family_of(config), written = family == Family::mistral ? Family::llama : family;
  const auto found = std::find_if(std::begin(architectures), std::end(architectures),
                                  [&](const Architecture& one) { return one.family == written; });
  if (found == std::end(architectures) || config.activation == ModelConfig::Activation::gelu)
    throw ValueError("convert: the model is of no architecture of GGUF files that attn reads");
  return *found;
}

void add_config(Metadata& metadata, const Architecture& architecture, const ModelConfig& c) {
  const std::string prefix = std::string(architecture.name) + ".";
  const bool gpt2 = architecture.family == Family::gpt2;
  const auto number = [&](const char* key, std::int64_t value) { metadata.number(prefix + key, value); };
  number("context_length", c.context);
  number("embedding_length", c.width);
  number("block_count", c.layers);
  number("feed_forward_length", c.dim_of_mlp());
  number("attention.head_count", c.heads);
  number("attention.head_count_kv", c.key_value_heads());
  metadata.real(prefix + (gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"), c.norm_eps);
  if (gpt2) return;
  number("attention.key_length", c.dim_of_head());
  number("attention.value_length", c.dim_of_head());
  number("rope.dimension_count", c.dim_of_head());
  number("vocab_size", c.vocab_size);
  metadata.real(prefix + "rope.freq_base", c.rotary_theta);
  if (c.sliding_window > 0) number("attention.sliding_window", c.sliding_window);
}

/// Returns the rows of a tensor in the order of the file, in f32.
Tensor rows_of(const std::map<std::string, Tensor>& parameters, const Stored& stored) {
  Tensor rows = parameters.at(stored.parameter).narrow(0, stored.row, stored.rows).detach().to(Dtype::f32).contiguous();
  if (stored.head_rows == 0) return rows;
  const std::int64_t heads = rows.size(0) / stored.head_rows, inner = rows.numel() / rows.size(0);
  return rows.reshape({heads, 2, stored.head_rows / 2, inner}).transpose(1, 2).reshape(rows.sizes()).contiguous();
}

struct Written {
  std::string name;
  Dims sizes;
  const Type* type;
  std::vector<std::byte> data;  // padded
};

Written written(std::string name, const Tensor& values, const Type& wanted) {
  const bool whole = values.dim() == 2 && values.size(1) % wanted.elements == 0;
  const Type& type = whole ? wanted : type_of("F32");
  Written result{std::move(name), values.sizes(), &type, {}};
  const std::int64_t blocks = values.numel() / type.elements;
  const auto bytes = static_cast<std::uint64_t>(blocks * type.bytes);
  result.data.resize((bytes + alignment - 1) / alignment * alignment);
  const float* const from = values.data<float>();
  if (type.elements > 1)  // an infinite scale would lose all numbers of its block
    for (std::int64_t i = 0; i < values.numel(); ++i)
      if (!(std::abs(from[i]) <= 65504))
        throw ValueError(
            runtime::format("convert: {} holds {}; {} can hold numbers up to 65504", result.name, from[i], type.name));
  const runtime::DefaultFloatingPoint floating_point;
  for (std::int64_t i = 0; i < blocks; ++i) type.encode(from + i * type.elements, result.data.data() + i * type.bytes);
  return result;
}

std::string header_of(const Metadata& metadata, const std::vector<Written>& tensors) {
  std::string header = "GGUF";
  append(header, std::uint32_t{3});
  append(header, static_cast<std::uint64_t>(tensors.size()));
  append(header, metadata.count);
  header += metadata.bytes;
  std::uint64_t offset = 0;
  for (const Written& tensor : tensors) {
    append_text(header, tensor.name);
    append(header, static_cast<std::uint32_t>(tensor.sizes.size()));
    for (int i = tensor.sizes.size(); i > 0; --i) append(header, static_cast<std::uint64_t>(tensor.sizes[i - 1]));
    append(header, tensor.type->id);
    append(header, offset);
    offset += tensor.data.size();
  }
  header.resize((header.size() + alignment - 1) / alignment * alignment, '\0');
  return header;
}

}  // namespace

std::vector<std::string> written_types() {
  std::vector<std::string> names;
  for (const Type& type : types())
    if (type.encode != nullptr) names.emplace_back(type.name);
  return names;
}

void write(const std::string& path, const LanguageModel& asked, const Tokenizer* tokenizer, const std::string& type) {
  const LanguageModel model = asked.decoded();
  const ModelConfig& config = model.config;
  const Architecture& architecture = architecture_of(config);
  Metadata metadata;
  metadata.text("general.architecture", architecture.name);
  metadata.number("general.file_type", file_type(type_of(type)));
  metadata.number("general.quantization_version", 2);
  add_config(metadata, architecture, config);
  if (!config.end_tokens.empty()) metadata.number("tokenizer.ggml.eos_token_id", config.end_tokens[0]);
  if (config.end_tokens.size() > 1) metadata.number("tokenizer.ggml.eot_token_id", config.end_tokens[1]);
  if (tokenizer != nullptr) {
    add_tokenizer(metadata, *tokenizer);
    const std::vector<std::int64_t>& after = state_of(*tokenizer).after;
    if (!after.empty() && (config.end_tokens.empty() || config.end_tokens[0] != after[0]))
      throw ValueError("convert: the tokenizer adds another token after a text than the one that ends it");
  }
  const nn::StateDict state = model.state_dict();
  const std::map<std::string, Tensor> parameters(state.begin(), state.end());
  std::vector<Written> tensors;
  if (const auto& scaling = config.rotary_scaling)
    tensors.push_back(
        written("rope_freqs.weight", factors_of(*scaling, config.dim_of_head(), config.rotary_theta), type_of("F32")));
  for (const Stored& stored : stored_tensors(architecture, config))
    tensors.push_back(written(stored.name, rows_of(parameters, stored), type_of(type)));
  const std::string header = header_of(metadata, tensors);
  std::vector<std::span<const std::byte>> pieces = {std::as_bytes(std::span(header))};
  for (const Written& tensor : tensors) pieces.emplace_back(tensor.data);
  io::write_whole(function, path, pieces);
}

}  // namespace attn::gguf
