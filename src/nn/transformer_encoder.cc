// src/nn/transformer_encoder.cc: implements TransformerEncoderLayer and TransformerEncoder.
#include <attn/autograd.h>
#include <attn/nn/transformer.h>

#include "nn/transformer_checks.h"
#include "nn/transformer_layer.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn::nn {
namespace {

constexpr const char* kEncoderLayer = "TransformerEncoderLayer";

/// Returns a bool mask, True where the given mask hides a key.
Tensor hidden_rows(const Tensor& padding) {
  return padding.dtype() == Dtype::boolean ? padding : logical_and(isinf(padding), lt(padding, 0));
}

/// Returns whether the padding of every sample is at its end.
bool is_left_aligned(const Tensor& hidden) {
  const std::vector<double> values = hidden.to_vector();
  const std::int64_t rows = hidden.size(-1);
  for (std::size_t i = 1; i < values.size(); ++i)
    if (static_cast<std::int64_t>(i) % rows != 0 && values[i] < values[i - 1]) return false;
  return true;
}

}  // namespace

TransformerEncoderLayer::TransformerEncoderLayer(std::int64_t d_model, std::int64_t nhead,
                                                 const TransformerLayerOptions& options)
    : d_model(check_layer(kEncoderLayer, d_model, nhead, options)), nhead(nhead), options(options),
      // Members are initialised in the order in which torch draws their values.
      self_attn(register_module("self_attn", layer_attention(d_model, nhead, options))),
      linear1(register_module("linear1", layer_linear(d_model, options.dim_feedforward, options))),
      linear2(register_module("linear2", layer_linear(options.dim_feedforward, d_model, options))),
      norm1(register_module("norm1", layer_norm_of(d_model, options))),
      norm2(register_module("norm2", layer_norm_of(d_model, options))) {}

TransformerEncoderLayer TransformerEncoderLayer::clone() const {
  TransformerLayerOptions same = options;
  same.draw = false;
  const TransformerEncoderLayer layer(d_model, nhead, same);
  copy_module(*this, layer);
  return layer;
}

bool TransformerEncoderLayer::takes_fast_path(const Tensor& src) const {
  if (src.dim() != 3 || is_training() || !options.batch_first || !options.bias || nhead % 2 != 0) return false;
  if (std::holds_alternative<std::function<Tensor(const Tensor&)>>(options.activation)) return false;
  if (!grad_enabled()) return true;
  const std::vector<Tensor> weights = parameters();
  return !src.requires_grad() &&
         std::none_of(weights.begin(), weights.end(), [](const Tensor& weight) { return weight.requires_grad(); });
}

Tensor TransformerEncoderLayer::forward(const Tensor& src, const TransformerEncoderLayerCall& call) const {
  const LayerRows rows = check_rows(kEncoderLayer, "src", src, norm1.weight, options.batch_first);
  check_layer_masks(kEncoderLayer, {"src_mask", call.src_mask}, {"src_key_padding_mask", call.src_key_padding_mask},
                    call.is_causal, rows, rows, nhead, src.dtype());
  const bool training = is_training(), fast = takes_fast_path(src);
  const auto attend = [&](const Tensor& x) {
    // With weights a module that is `exact` gives NaN for rows that see nothing, as torch's fast path does.
    const MultiheadAttentionResult result = self_attn(x, x, x,
                                                      {.key_padding_mask = call.src_key_padding_mask,
                                                       .need_weights = fast && options.exact,
                                                       .attn_mask = call.src_mask,
                                                       .is_causal = call.is_causal && !fast});
    return drop_attended(result.output, options, training);
  };
  const auto feed = [&](const Tensor& x) { return feed_forward(x, linear1, linear2, options, training); };
  if (options.norm_first) {
    const Tensor x = src + attend(norm1(src));
    return x + feed(norm2(x));
  }
  const Tensor x = norm1(src + attend(src));
  return norm2(x + feed(x));
}

TransformerEncoder::TransformerEncoder(const TransformerEncoderLayer& encoder_layer, std::int64_t num_layers,
                                       bool nested_tensor)
    : layers(register_module("layers", cloned_layers("TransformerEncoder", encoder_layer, num_layers))),
      enable_nested_tensor(nested_tensor), norm_(std::make_shared<std::function<Tensor(const Tensor&)>>()) {}

/// Returns whether torch would pack the rows that are not padding, whose others are then 0.
bool TransformerEncoder::packs(const Tensor& src, const TransformerEncoderCall& call) const {
  const TransformerEncoderLayer& first = layers[0];
  if (!enable_nested_tensor || !first.options.exact || first.options.norm_first) return false;
  if (call.mask.defined() || !call.src_key_padding_mask.defined() || !first.takes_fast_path(src)) return false;
  return is_left_aligned(hidden_rows(call.src_key_padding_mask));
}

Tensor TransformerEncoder::forward(const Tensor& src, const TransformerEncoderCall& call) const {
  const TransformerEncoderLayerCall each{.src_mask = call.mask,
                                         .src_key_padding_mask = call.src_key_padding_mask,
                                         .is_causal = is_causal_mask(call.mask, call.is_causal)};
  Tensor x = src;
  for (const TransformerEncoderLayer& layer : layers) x = layer(x, each);
  if (packs(src, call)) x = masked_fill(x, hidden_rows(call.src_key_padding_mask).unsqueeze(-1), 0);
  return *norm_ ? (*norm_)(x) : x;
}

}  // namespace attn::nn
