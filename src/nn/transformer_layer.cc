// src/nn/transformer_layer.cc: implements what the layers of encoder and decoder share.
#include "nn/transformer_layer.h"

#include <attn/autograd.h>
#include <attn/error.h>
#include <attn/random.h>

#include "runtime/format.h"

#include <limits>

namespace attn::nn {

std::int64_t check_layer(const char* who, std::int64_t d_model, std::int64_t nhead,
                         const TransformerLayerOptions& options) {
  if (d_model <= 0 || nhead <= 0 || d_model % nhead != 0)
    throw ValueError(runtime::format(
        "{}: d_model {} and nhead {}; both must be greater than 0, and nhead divide d_model", who, d_model, nhead));
  if (options.dim_feedforward <= 0)
    throw ValueError(
        runtime::format("{}: dim_feedforward is {}; it must be greater than 0", who, options.dim_feedforward));
  if (!(options.dropout >= 0 && options.dropout <= 1))
    throw ValueError(runtime::format("{}: dropout is {}; it must be from 0 to 1", who, options.dropout));
  if (const auto* function = std::get_if<1>(&options.activation); function && !*function)
    throw ValueError(runtime::format("{}: activation is an empty function", who));
  return d_model;
}

MultiheadAttention layer_attention(std::int64_t d_model, std::int64_t nhead, const TransformerLayerOptions& options) {
  return {d_model,
          nhead,
          {.dropout = options.dropout,
           .bias = options.bias,
           .batch_first = options.batch_first,
           .exact = options.exact,
           .dtype = options.dtype,
           .draw = options.draw}};
}

Linear layer_linear(std::int64_t from, std::int64_t to, const TransformerLayerOptions& options) {
  return {from, to, {.bias = options.bias, .dtype = options.dtype, .draw = options.draw}};
}

LayerNorm layer_norm_of(std::int64_t d_model, const TransformerLayerOptions& options) {
  return LayerNorm(d_model, {.eps = options.layer_norm_eps, .bias = options.bias, .dtype = options.dtype});
}

Tensor feed_forward(const Tensor& x, const Linear& linear1, const Linear& linear2,
                    const TransformerLayerOptions& options, bool training) {
  const Tensor up = linear1(x);
  const auto* name = std::get_if<0>(&options.activation);
  const Tensor active = !name ? std::get<1>(options.activation)(up) : *name == Activation::relu ? relu(up) : gelu(up);
  return dropout(linear2(dropout(active, options.dropout, training)), options.dropout, training);
}

Tensor drop_attended(const Tensor& x, const TransformerLayerOptions& options, bool training) {
  if (!training || options.dropout == 0) return x;
  // torch's attention computes [rows, batch, d_model] in either layout, and dropout draws in memory order
  if (!options.batch_first || x.dim() == 2) return dropout(x.contiguous(), options.dropout, true);
  return dropout(x.transpose(0, 1).contiguous(), options.dropout, true).transpose(0, 1);
}

void copy_module(const Module& from, const Module& to) {
  to.load_state_dict(from.state_dict());
  const std::vector<Tensor> given = from.parameters();
  std::vector<Tensor> own = to.parameters();
  for (std::size_t i = 0; i < own.size(); ++i) own[i].requires_grad_(given[i].requires_grad());
  to.train(from.is_training());
}

bool is_causal_mask(const Tensor& mask, const std::optional<bool>& hint) {
  if (hint || !mask.defined()) return hint.value_or(false);
  // a mask with a gradient must stay a term of the scores
  if (mask.dim() != 2 || mask.size(0) != mask.size(1) || (grad_enabled() && mask.requires_grad())) return false;
  const NoGrad guard;
  const Tensor causal = mask.dtype() == Dtype::boolean
                            ? triu(ones(mask.sizes(), Dtype::boolean), 1)
                            : Transformer::generate_square_subsequent_mask(mask.size(0), mask.dtype());
  return all(eq(mask, causal));
}

}  // namespace attn::nn
