// src/nn/transformer.cc: implements Transformer: an encoder and a decoder with initial values of their own.
#include <attn/nn/init.h>
#include <attn/nn/transformer.h>

#include "nn/transformer_checks.h"
#include "nn/transformer_layer.h"

#include "runtime/format.h"

#include <limits>

namespace attn::nn {
namespace {

TransformerEncoder encoder_of(std::int64_t d_model, std::int64_t nhead, const TransformerOptions& options) {
  if (options.custom_encoder) return *options.custom_encoder;
  return {TransformerEncoderLayer(d_model, nhead, options.layer), options.num_encoder_layers,
          layer_norm_of(d_model, options.layer)};
}

TransformerDecoder decoder_of(std::int64_t d_model, std::int64_t nhead, const TransformerOptions& options) {
  if (options.custom_decoder) return *options.custom_decoder;
  return {TransformerDecoderLayer(d_model, nhead, options.layer), options.num_decoder_layers,
          layer_norm_of(d_model, options.layer)};
}

}  // namespace

Transformer::Transformer(std::int64_t d_model, std::int64_t nhead, const TransformerOptions& options)
    : d_model(check_layer("Transformer", d_model, nhead, options.layer)), nhead(nhead),
      batch_first(options.layer.batch_first), encoder(register_module("encoder", encoder_of(d_model, nhead, options))),
      decoder(register_module("decoder", decoder_of(d_model, nhead, options))) {
  if (!options.layer.draw) return;
  for (const Tensor& parameter : parameters())
    if (parameter.dim() > 1) init::xavier_uniform_(parameter);
}

Tensor Transformer::forward(const Tensor& src, const Tensor& tgt, const TransformerCall& call) const {
  const Tensor& weight = encoder.layers[0].norm1.weight;
  const LayerRows source = check_rows("Transformer", "src", src, weight, batch_first);
  const LayerRows target = check_rows("Transformer", "tgt", tgt, weight, batch_first);
  if (source.batched != target.batched || source.batch != target.batch)
    throw ShapeError(runtime::format("Transformer: tgt has shape {}; its rank and batch must match src {}",
                                     to_string(tgt.sizes()), to_string(src.sizes())));
  const Tensor memory = encoder(
      src, {.mask = call.src_mask, .src_key_padding_mask = call.src_key_padding_mask, .is_causal = call.src_is_causal});
  return decoder(tgt, memory,
                 {.tgt_mask = call.tgt_mask,
                  .memory_mask = call.memory_mask,
                  .tgt_key_padding_mask = call.tgt_key_padding_mask,
                  .memory_key_padding_mask = call.memory_key_padding_mask,
                  .tgt_is_causal = call.tgt_is_causal,
                  .memory_is_causal = call.memory_is_causal});
}

Tensor Transformer::generate_square_subsequent_mask(std::int64_t rows, Dtype dtype) {
  return triu(full({rows, rows}, -std::numeric_limits<double>::infinity(), dtype), 1);
}

}  // namespace attn::nn
