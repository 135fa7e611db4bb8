// src/nn/multihead_heads.cc: from heads to their outputs and weights: one attention call, dropout beside it.
#include "nn/multihead_heads.h"

#include <attn/ops.h>

#include <limits>

namespace attn::nn {
namespace {

/// NaN where no key was seen: `rows` [N, H, L] is true there.
Tensor with_nan(const Tensor& x, const Tensor& rows) {
  return where(rows.unsqueeze(-1), std::numeric_limits<double>::quiet_NaN(), x);
}

/// The weights exist as a whole because the caller asked for them, so dropout takes them as they are.
HeadsResult attend_with_dropped_weights(const HeadsCall& call, const Tensor& weights) {
  const Tensor dropped = dropout(weights, call.dropout, true);
  return {matmul(dropped, call.v), call.average_weights ? mean(dropped, {1}) : dropped};
}

}  // namespace

HeadsResult attend_heads(const HeadsCall& call) {
  if (call.dropout > 0 && !call.need_weights)
    return {scaled_dot_product_attention(call.q, call.k, call.v,
                                         {.attn_mask = call.masks.joined(call.q.dtype()), .dropout_p = call.dropout, .is_causal = call.masks.causal}),
            {}};
  const bool whole = call.need_weights && (!call.average_weights || call.nan_rows || call.dropout > 0);
  AttentionOptions options;
  options.weights = whole ? Weights::full : call.need_weights ? Weights::head_average : Weights::none;
  call.masks.apply(options);
  AttentionResult result = attention(call.q, call.k, call.v, options);
  if (call.nan_rows) {
    const Tensor rows = eq(result.logsumexp, -std::numeric_limits<double>::infinity());
    result.output = with_nan(result.output, rows);
    if (result.weights.defined()) result.weights = with_nan(result.weights, rows);
  }
  if (call.dropout > 0) return attend_with_dropped_weights(call, result.weights);
  return {result.output, whole && call.average_weights ? mean(result.weights, {1}) : result.weights};
}

}  // namespace attn::nn
