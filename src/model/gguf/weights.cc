// src/model/gguf/weights.cc: finds the tensors of a model in a GGUF file and decodes them into its parameters.
#include <attn/error.h>
#include <attn/ops.h>

#include "io/source.h"
#include "model/gguf/architecture.h"
#include "model/gguf/model.h"
#include "model/stored.h"

#include "runtime/format.h"

#include <algorithm>
#include <set>

namespace attn::gguf {
namespace {

/// A tensor of the file and the rows of a parameter that it holds.
struct Stored : StoredTensor {
  std::int64_t head_rows = 0;  // of a head, if the rows of rotary pairs are neighbours; else 0
};

class Names {
 public:
  Names(const GgufFile& file, const ModelConfig& config) : architecture_(architecture_of(file)), config_(config) {
    const bool gpt2 = architecture_.family == Family::gpt2;
    whole("token_embd.weight", "embedding.weight", {config.vocab_size, config.width});
    if (gpt2) whole("position_embd.weight", "positions.weight", {config.context, config.width});
    for (std::int64_t n = 0; n < config.layers; ++n) {
      const std::string from = "blk." + std::to_string(n) + ".", to = "blocks." + std::to_string(n) + ".";
      norm(from + "attn_norm", to + "attention_norm");
      attention(from, to + "attention.", gpt2);
      norm(from + "ffn_norm", to + "mlp_norm");
      if (!gpt2) map(from + "ffn_gate", to + "mlp.gate", config.width, config.dim_of_mlp(), config.mlp_bias);
      map(from + "ffn_up", to + "mlp.up", config.width, config.dim_of_mlp(), config.mlp_bias);
      map(from + "ffn_down", to + "mlp.down", config.dim_of_mlp(), config.width, config.mlp_bias);
    }
    norm("output_norm", "norm");
    if (!config.tied_head) whole("output.weight", "head.weight", {config.vocab_size, config.width});
  }
  std::vector<Stored> result;

 private:
  void whole(const std::string& name, const std::string& parameter, const Dims& sizes) {
    result.push_back({{name, sizes, parameter, 0, sizes[0], false}});
  }
  void norm(const std::string& name, const std::string& parameter) {
    whole(name + ".weight", parameter + ".weight", {config_.width});
    if (config_.norm == ModelConfig::Norm::layer_norm) whole(name + ".bias", parameter + ".bias", {config_.width});
  }
  /// Adds a linear layer, which the model holds in the rows [row, row + out) of the parameter.
  void map(const std::string& name, const std::string& parameter, std::int64_t in, std::int64_t out, bool bias,
           std::int64_t row = 0, std::int64_t head_rows = 0) {
    result.push_back({{name + ".weight", {out, in}, parameter + ".weight", row, out, false}, head_rows});
    if (bias) result.push_back({{name + ".bias", {out}, parameter + ".bias", row, out, false}, head_rows});
  }
  void attention(const std::string& from, const std::string& to, bool gpt2) {
    const ModelConfig& c = config_;
    const std::int64_t dim = c.dim_of_head(), q = c.heads * dim, kv = c.key_value_heads() * dim,
                       head_rows = architecture_.neighbours ? dim : 0;
    if (gpt2) {
      map(from + "attn_qkv", to + "qkv", c.width, q + 2 * kv, c.attention_bias);
    } else {
      map(from + "attn_q", to + "qkv", c.width, q, c.attention_bias, 0, head_rows);
      map(from + "attn_k", to + "qkv", c.width, kv, c.attention_bias, q, head_rows);
      map(from + "attn_v", to + "qkv", c.width, kv, c.attention_bias, q + kv);
    }
    if (c.qk_norm)
      for (const char* head : {"q_norm.weight", "k_norm.weight"}) whole(from + "attn_" + head, to + head, {dim});
    map(from + "attn_output", to + "out", q, c.width, c.bias_of_out());
  }

  const Architecture& architecture_;
  const ModelConfig& config_;
};

std::string listed(const char* label, const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < 8; ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > 8) text += runtime::format(" and {} more", names.size() - 8);
  return names.empty() ? "" : runtime::format("; {}: {}", label, text);
}

}  // namespace

void check_weights(const GgufFile& file, const ModelConfig& config) {
  // Before anything is listed, because a damaged file may claim more layers than fit into memory.
  if (config.layers > static_cast<std::int64_t>(file.tensors().size()))
    throw ValueError(runtime::format("{}: block_count is {}; there are only {} tensors", file.name(), config.layers,
                                     file.tensors().size()));
  std::vector<std::string> missing, unexpected, misshapen;
  std::set<std::string> known = {"rope_freqs.weight"};
  for (const Stored& want : Names(file, config).result) {
    known.insert(want.name);
    const GgufFile::Entry* const found = file.find(want.name);
    if (found == nullptr) missing.push_back(want.name);
    else if (!(found->sizes == want.sizes))
      misshapen.push_back(want.name + " is " + to_string(found->sizes) + ", not " + to_string(want.sizes));
  }
  for (const GgufFile::Entry& entry : file.tensors())
    if (!known.contains(entry.name)) unexpected.push_back(io::one_line(entry.name.substr(0, 200)));
  const std::string text =
      listed("missing", missing) + listed("unexpected", unexpected) + listed("wrong shape", misshapen);
  if (!text.empty()) throw ValueError(file.name() + ": the tensors are not those of the metadata's model" + text);
}

Dtype dtype_of(const GgufFile& file) {
  for (const auto& [type, dtype] : {std::pair{"F16", Dtype::f16}, std::pair{"BF16", Dtype::bf16}})
    if (std::all_of(file.tensors().begin(), file.tensors().end(),
                    [&](const auto& entry) { return entry.type == type || entry.name == "rope_freqs.weight"; }))
      return dtype;
  return Dtype::f32;
}

void load_weights(const GgufFile& file, const ModelConfig& config, const std::map<std::string, Tensor>& parameters) {
  constexpr std::int64_t at_once = 1 << 22;  // numbers that are decoded before they are copied
  for (const Stored& one : Names(file, config).result) {
    const GgufFile::Entry& entry = *file.find(one.name);
    const bool vector = one.sizes.size() == 1;
    const std::int64_t rows = vector ? 1 : one.sizes[0], width = one.sizes.back();
    const Tensor all = parameters.at(one.parameter).narrow(0, one.row, one.rows);
    std::int64_t group = std::max<std::int64_t>(1, at_once / width);
    if (one.head_rows != 0) group = std::max(group / one.head_rows, std::int64_t{1}) * one.head_rows;  // whole heads
    for (std::int64_t first = 0; first < rows; first += group) {
      const std::int64_t count = std::min(group, rows - first);
      Tensor part = empty({count, width});
      file.decode_rows(entry, first, count, part.data<float>());
      if (vector) part = part.reshape({width});
      if (one.head_rows != 0) {
        const std::int64_t heads = part.size(0) / one.head_rows, inner = part.numel() / part.size(0);
        part = part.reshape({heads, one.head_rows / 2, 2, inner}).transpose(1, 2).reshape(part.sizes());
      }
      (vector ? all : all.narrow(0, first, count)).copy_(part);
    }
  }
}

}  // namespace attn::gguf
