// src/nn/multihead_attention.cc: implements nn::MultiheadAttention: projections, heads, attention, output projection.
#include <attn/autograd.h>
#include <attn/nn/init.h>
#include <attn/nn/multihead_attention.h>

#include "runtime/format.h"

#include "nn/multihead_heads.h"

namespace attn::nn {
namespace {

std::int64_t checked_embed_dim(std::int64_t embed_dim, std::int64_t num_heads,
                               const MultiheadAttentionOptions& options) {
  const std::string given = "embed_dim " + std::to_string(embed_dim) + " and num_heads " + std::to_string(num_heads);
  if (embed_dim <= 0 || num_heads <= 0)
    throw ValueError("MultiheadAttention: " + given + "; both must be greater than 0");
  if (embed_dim % num_heads != 0)
    throw ValueError("MultiheadAttention: " + given + "; num_heads must divide embed_dim");
  if (!(options.dropout >= 0 && options.dropout <= 1))
    throw ValueError(runtime::format("MultiheadAttention: dropout is {}; it must be from 0 to 1", options.dropout));
  return embed_dim;
}

Tensor projection(bool present, std::int64_t rows, std::int64_t columns, const MultiheadAttentionOptions& options) {
  if (!present) return {};
  const Tensor weight = zeros({rows, columns}, options.dtype);
  return options.draw ? init::xavier_uniform_(weight) : weight;
}

Tensor added_row(std::int64_t embed_dim, const MultiheadAttentionOptions& options) {
  if (!options.add_bias_kv) return {};
  const Tensor row = zeros({1, 1, embed_dim}, options.dtype);
  return options.draw ? init::xavier_normal_(row) : row;
}

}  // namespace

MultiheadAttention::MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads,
                                       const MultiheadAttentionOptions& options)
    : embed_dim(checked_embed_dim(embed_dim, num_heads, options)), num_heads(num_heads),
      head_dim(embed_dim / num_heads), kdim(options.kdim.value_or(embed_dim)), vdim(options.vdim.value_or(embed_dim)),
      options(options),
      // Members are initialised in the order in which torch draws their values.
      out_proj(register_module(
          "out_proj",
          Linear(embed_dim, embed_dim, {.bias = options.bias, .dtype = options.dtype, .draw = options.draw}))),
      in_proj_weight(register_parameter(
          "in_proj_weight", projection(kdim == embed_dim && vdim == embed_dim, 3 * embed_dim, embed_dim, options))),
      q_proj_weight(register_parameter("q_proj_weight", projection(!packed(), embed_dim, embed_dim, options))),
      k_proj_weight(register_parameter("k_proj_weight", projection(!packed(), embed_dim, kdim, options))),
      v_proj_weight(register_parameter("v_proj_weight", projection(!packed(), embed_dim, vdim, options))),
      in_proj_bias(register_parameter("in_proj_bias", options.bias ? zeros({3 * embed_dim}, options.dtype) : Tensor())),
      bias_k(register_parameter("bias_k", added_row(embed_dim, options))),
      bias_v(register_parameter("bias_v", added_row(embed_dim, options))) {
  if (options.bias) init::zeros_(out_proj.bias);
}

/// Projects query, key or value (`which` 0, 1, 2) with its part of the in-projection: [N, rows, E].
Tensor MultiheadAttention::project(int which, const Tensor& x) const {
  const Tensor separate[] = {q_proj_weight, k_proj_weight, v_proj_weight};
  const std::int64_t begin = which * embed_dim, end = begin + embed_dim;
  const Tensor weight = packed() ? in_proj_weight.slice(0, begin, end) : separate[which];
  return linear(x, weight, in_proj_bias.defined() ? in_proj_bias.slice(0, begin, end) : Tensor());
}

/// Converts [N, rows, E] to [N, H, rows, E / H].
Tensor MultiheadAttention::split_heads(const Tensor& x) const {
  return x.reshape({x.size(0), x.size(1), num_heads, head_dim}).transpose(1, 2);
}

/// Returns whether torch would use `_native_multi_head_attention` (docs/torch.md), which treats masks, and rows that
/// see no key, differently.
bool MultiheadAttention::takes_fused_path(const Tensor& query, const Tensor& key, const Tensor& value,
                                          const MultiheadAttentionCall& call) const {
  const auto plain_mask = [](const Tensor& mask) { return !mask.defined() || mask.dtype() == Dtype::boolean; };
  if (is_training() || query.impl() != key.impl() || key.impl() != value.impl() || query.dim() != 3) return false;
  if (!options.batch_first || !options.bias || num_heads % 2 != 0 || !packed() || bias_k.defined() ||
      options.add_zero_attn)
    return false;
  if (!plain_mask(call.key_padding_mask) || !plain_mask(call.attn_mask)) return false;
  if (!grad_enabled()) return true;
  if (query.requires_grad()) return false;
  for (const Tensor& parameter : parameters())
    if (parameter.requires_grad()) return false;
  return true;
}

MultiheadAttentionResult MultiheadAttention::forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                     const MultiheadAttentionCall& call) const {
  const MultiheadSizes sizes = check_call(*this, query, key, value, call);
  const bool batched = query.dim() == 3;
  const auto batch_first = [&](const Tensor& x) {
    return !batched ? x.unsqueeze(0) : options.batch_first ? x : x.transpose(0, 1);
  };

  Tensor q = project(0, batch_first(query));
  Tensor k = project(1, batch_first(key));
  Tensor v = project(2, batch_first(value));
  if (bias_k.defined()) {
    k = cat({k, bias_k.expand({sizes.batch, 1, embed_dim})}, 1);
    v = cat({v, bias_v.expand({sizes.batch, 1, embed_dim})}, 1);
  }
  if (options.add_zero_attn) {
    const Tensor zero = zeros({sizes.batch, 1, embed_dim}, k.dtype());
    k = cat({k, zero}, 1);
    v = cat({v, zero}, 1);
  }
  const std::int64_t extra = k.size(1) - sizes.k_rows;
  const bool fused = takes_fused_path(query, key, value, call);
  const bool causal = call.is_causal && !call.need_weights && !call.key_padding_mask.defined() && !fused;

  auto [output, weights] = attend_heads({
      .q = split_heads(q),
      .k = split_heads(k),
      .v = split_heads(v),
      .masks = read_masks(call, sizes, extra, causal),
      .dropout = is_training() ? options.dropout : 0.0,
      .need_weights = call.need_weights,
      .average_weights = call.average_attn_weights,
      .nan_rows = options.exact && (call.need_weights || fused) && k.size(1) > 0,
  });

  // [N, H, L, D] -> [N, L, E] -> the caller's layout
  output = out_proj(output.transpose(1, 2).reshape({sizes.batch, sizes.q_rows, embed_dim}));
  if (!batched) return {output.squeeze(0), weights.defined() ? weights.squeeze(0) : weights};
  return {options.batch_first ? output : output.transpose(0, 1), weights};
}

}  // namespace attn::nn
