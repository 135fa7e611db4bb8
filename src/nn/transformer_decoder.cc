// src/nn/transformer_decoder.cc: implements TransformerDecoderLayer and TransformerDecoder.
#include <attn/nn/transformer.h>

#include "nn/transformer_checks.h"
#include "nn/transformer_layer.h"

#include "runtime/format.h"

namespace attn::nn {
namespace {

constexpr const char* kDecoderLayer = "TransformerDecoderLayer";

}  // namespace

TransformerDecoderLayer::TransformerDecoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 const TransformerLayerOptions& options)
    : d_model(check_layer(kDecoderLayer, d_model, nhead, options)), nhead(nhead), options(options),
      // Members are initialised in the order in which torch draws their values.
      self_attn(register_module("self_attn", layer_attention(d_model, nhead, options))),
      multihead_attn(register_module("multihead_attn", layer_attention(d_model, nhead, options))),
      linear1(register_module("linear1", layer_linear(d_model, options.dim_feedforward, options))),
      linear2(register_module("linear2", layer_linear(options.dim_feedforward, d_model, options))),
      norm1(register_module("norm1", layer_norm_of(d_model, options))),
      norm2(register_module("norm2", layer_norm_of(d_model, options))),
      norm3(register_module("norm3", layer_norm_of(d_model, options))) {}

TransformerDecoderLayer TransformerDecoderLayer::clone() const {
  TransformerLayerOptions same = options;
  same.draw = false;
  const TransformerDecoderLayer layer(d_model, nhead, same);
  copy_module(*this, layer);
  return layer;
}

Tensor TransformerDecoderLayer::forward(const Tensor& tgt, const Tensor& memory,
                                        const TransformerDecoderCall& call) const {
  const LayerRows rows = check_rows(kDecoderLayer, "tgt", tgt, norm1.weight, options.batch_first);
  const LayerRows keys = check_rows(kDecoderLayer, "memory", memory, norm1.weight, options.batch_first);
  if (rows.batched != keys.batched || rows.batch != keys.batch)
    throw ShapeError(runtime::format("{}: memory has shape {}; its rank and batch must match tgt {}", kDecoderLayer,
                                     to_string(memory.sizes()), to_string(tgt.sizes())));
  const bool training = is_training(), causal = call.tgt_is_causal.value_or(false);
  check_layer_masks(kDecoderLayer, {"tgt_mask", call.tgt_mask}, {"tgt_key_padding_mask", call.tgt_key_padding_mask},
                    causal, rows, rows, nhead, tgt.dtype());
  check_layer_masks(kDecoderLayer, {"memory_mask", call.memory_mask},
                    {"memory_key_padding_mask", call.memory_key_padding_mask}, call.memory_is_causal, rows, keys, nhead,
                    tgt.dtype());
  const auto attend = [&](const Tensor& x) {
    const MultiheadAttentionResult result = self_attn(x, x, x,
                                                      {.key_padding_mask = call.tgt_key_padding_mask,
                                                       .need_weights = false,
                                                       .attn_mask = call.tgt_mask,
                                                       .is_causal = causal});
    return drop_attended(result.output, options, training);
  };
  const auto look = [&](const Tensor& x) {
    const MultiheadAttentionResult result = multihead_attn(x, memory, memory,
                                                           {.key_padding_mask = call.memory_key_padding_mask,
                                                            .need_weights = false,
                                                            .attn_mask = call.memory_mask,
                                                            .is_causal = call.memory_is_causal});
    return drop_attended(result.output, options, training);
  };
  const auto feed = [&](const Tensor& x) { return feed_forward(x, linear1, linear2, options, training); };
  if (options.norm_first) {
    Tensor x = tgt + attend(norm1(tgt));
    x = x + look(norm2(x));
    return x + feed(norm3(x));
  }
  Tensor x = norm1(tgt + attend(tgt));
  x = norm2(x + look(x));
  return norm3(x + feed(x));
}

TransformerDecoder::TransformerDecoder(const TransformerDecoderLayer& decoder_layer, std::int64_t num_layers)
    : layers(register_module("layers", cloned_layers("TransformerDecoder", decoder_layer, num_layers))),
      norm_(std::make_shared<std::function<Tensor(const Tensor&)>>()) {}

Tensor TransformerDecoder::forward(const Tensor& tgt, const Tensor& memory, const TransformerDecoderCall& call) const {
  TransformerDecoderCall each = call;
  each.tgt_is_causal = is_causal_mask(call.tgt_mask, call.tgt_is_causal);
  Tensor x = tgt;
  for (const TransformerDecoderLayer& layer : layers) x = layer(x, memory, each);
  return *norm_ ? (*norm_)(x) : x;
}

}  // namespace attn::nn
