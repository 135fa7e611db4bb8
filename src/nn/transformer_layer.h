// src/nn/transformer_layer.h: declares what the layers of encoder and decoder share: options, feed-forward, dropout.
#pragma once
#include <attn/error.h>
#include <attn/nn/transformer.h>

#include "runtime/format.h"

namespace attn::nn {

/// Returns d_model; throws, naming the class, for sizes and a dropout out of range.
std::int64_t check_layer(const char* who, std::int64_t d_model, std::int64_t nhead,
                         const TransformerLayerOptions& options);
MultiheadAttention layer_attention(std::int64_t d_model, std::int64_t nhead, const TransformerLayerOptions& options);
Linear layer_linear(std::int64_t from, std::int64_t to, const TransformerLayerOptions& options);
LayerNorm layer_norm_of(std::int64_t d_model, const TransformerLayerOptions& options);

/// linear2(dropout(activation(linear1(x)))), then dropout.
Tensor feed_forward(const Tensor& x, const Linear& linear1, const Linear& linear2,
                    const TransformerLayerOptions& options, bool training);
/// Dropout of what attention returned, with the numbers drawn in torch's order: rows before batch.
Tensor drop_attended(const Tensor& x, const TransformerLayerOptions& options, bool training);

/// Returns `count` clones of a layer; throws, naming the class, for a count below 1.
template <typename Layer>
ModuleList<Layer> cloned_layers(const char* who, const Layer& layer, std::int64_t count) {
  if (count < 1) throw ValueError(runtime::format("{}: num_layers is {}; it must be 1 or more", who, count));
  ModuleList<Layer> layers;
  for (std::int64_t i = 0; i < count; ++i) layers.push_back(layer.clone());
  return layers;
}

/// Copies parameters, whether they need gradients, and the training switch.
void copy_module(const Module& from, const Module& to);
/// Returns the hint, or without one whether the mask is that of generate_square_subsequent_mask.
bool is_causal_mask(const Tensor& mask, const std::optional<bool>& hint);

}  // namespace attn::nn
