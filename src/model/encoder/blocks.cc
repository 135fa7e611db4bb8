// src/model/encoder/blocks.cc: implements the layers of an encoder: attention and MLP with the norms after each (BERT)
// or before each (ModernBERT), and the layers of a score.
#include "model/encoder/blocks.h"

#include <attn/ops.h>

#include "model/encoder/activation.h"

namespace attn {
namespace {

using Activation = EncoderConfig::Activation;
using Family = EncoderConfig::Family;

ModelLinear map(std::int64_t in, std::int64_t out, bool bias, Held held) {
  return ModelLinear(in, out, bias, held.dtype, held.stored);
}

nn::LayerNorm norm_of(const EncoderConfig& config, Dtype dtype) {
  return nn::LayerNorm(config.width, {.eps = config.norm_eps, .bias = config.norm_bias, .dtype = dtype});
}

bool is_modern(const EncoderConfig& config) { return config.family == Family::modernbert; }

/// Returns how many times the MLP's width `up` computes: ModernBERT's has a gate too.
std::int64_t ups(const EncoderConfig& config) { return is_modern(config) ? 2 : 1; }

nn::Embedding table(std::int64_t rows, std::int64_t columns, Dtype dtype) {
  return nn::Embedding(rows, columns, {.dtype = dtype, .draw = false});
}

/// ModernBERT's scores have an activation of their own; RoBERTa's, MPNet's and BERT's is tanh, DistilBERT's relu.
Activation head_activation(const EncoderConfig& config) {
  if (config.family == Family::distilbert) return Activation::relu;
  return is_modern(config) ? config.classifier_activation : Activation::tanh;
}

}  // namespace

EncoderBlock::EncoderBlock(const EncoderConfig& c, bool first, Held held)
    : norms_first_(is_modern(c)), heads_(c.heads), activation_(c.activation),
      qkv(register_module("qkv", map(c.width, 3 * c.width, c.attention_bias, held))),
      out(register_module("out", map(c.width, c.width, c.attention_bias, held))),
      attention_norm(norms_first_ && first ? std::nullopt
                                           : std::optional(register_module("attention_norm", norm_of(c, held.dtype)))),
      up(register_module("up", map(c.width, ups(c) * c.mlp_width, c.mlp_bias, held))),
      down(register_module("down", map(c.mlp_width, c.width, c.mlp_bias, held))),
      mlp_norm(register_module("mlp_norm", norm_of(c, held.dtype))) {}

Tensor EncoderBlock::attended(const Tensor& x, const EncoderAttention& attention,
                              const EncoderProjections& project) const {
  const std::int64_t total = x.size(0), head_dim = x.size(1) / heads_;
  std::vector<Tensor> parts =
      project(qkv, x).reshape({total, 3 * heads_, head_dim}).split({heads_, heads_, heads_}, 1);  // each [total, H, D]
  if (attention.rotary != nullptr)
    for (const std::size_t i : {0, 1}) parts[i] = attention.rotary->rotated(parts[i], attention.tables);
  const Tensor heads = attn::attention(parts[0], parts[1], parts[2], attention.options).output;
  return project(out, heads.reshape({total, x.size(1)}));
}

Tensor EncoderBlock::mlp(const Tensor& x, const EncoderProjections& project) const {
  if (!norms_first_) return project(down, project(up, x, activation_));
  const Tensor y = project(up, x);
  const std::vector<Tensor> halves = y.split({y.size(1) / 2, y.size(1) / 2}, 1);
  return project(down, activated(halves[0], activation_) * halves[1]);
}

Tensor EncoderBlock::operator()(const Tensor& x, const EncoderAttention& attention,
                                const EncoderProjections& project) const {
  if (norms_first_) {
    const Tensor y = x + attended(attention_norm ? (*attention_norm)(x) : x, attention, project);
    return y + mlp(mlp_norm(y), project);
  }
  const Tensor y = (*attention_norm)(attended(x, attention, project) + x);
  return mlp_norm(mlp(y, project) + y);
}

std::vector<Tensor> EncoderBlock::weights() const {
  std::vector<Tensor> all;
  for (const ModelLinear* layer : {&qkv, &out, &up, &down})
    if (!layer->matrix) all.push_back(layer->weight);
  return all;
}

void EncoderBlock::add_matrices(const std::string& prefix, gguf::Matrices& to) const {
  for (const auto& [name, layer] : {std::pair("qkv", &qkv), {"out", &out}, {"up", &up}, {"down", &down}})
    if (layer->matrix) to.emplace(prefix + name + ".weight", layer->matrix);
}

EncoderHead::EncoderHead(const EncoderConfig& c, Dtype dtype)
    : activation_(head_activation(c)),
      dense(register_module("dense", map(c.width, c.width, !is_modern(c) || c.classifier_bias, Held{dtype}))),
      out(register_module("out", map(c.width, c.labels, true, Held{dtype}))),
      norm(is_modern(c) ? std::optional(register_module("norm", norm_of(c, dtype))) : std::nullopt) {}

Tensor EncoderHead::operator()(const Tensor& x, const EncoderProjections& project) const {
  const Tensor y = project(dense, x, activation_);
  return project(out, norm ? (*norm)(y) : y);
}

TextEncoder::Parts::Parts(const EncoderConfig& c, Held held)
    : dtype(held.dtype), embedding(c.width, c.vocab_size, /*with_bias=*/false, held.dtype, held.stored),
      embedding_norm(norm_of(c, dtype)) {
  if (is_modern(c)) {
    const std::int64_t head_dim = c.width / c.heads;
    rotary[0].emplace(head_dim, nn::RotaryEmbeddingOptions{.theta = c.rotary_theta});
    rotary[1].emplace(head_dim, nn::RotaryEmbeddingOptions{.theta = c.local_rotary_theta});
    norm.emplace(norm_of(c, dtype));
  } else {
    positions.emplace(table(c.positions, c.width, dtype));
  }
  if (c.segments > 0) segments.emplace(table(c.segments, c.width, dtype));
  if (c.relative_buckets > 0) relative.emplace(table(c.relative_buckets, c.heads, dtype));
  for (std::int64_t n = 0; n < c.layers; ++n) blocks.push_back(EncoderBlock(c, n == 0, held));
  if (c.labels > 0) head.emplace(c, dtype);
}

}  // namespace attn
