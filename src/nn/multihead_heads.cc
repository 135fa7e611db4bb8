// src/nn/multihead_heads.cc: computes the outputs and weights of all heads in one attention call.
#include "nn/multihead_heads.h"

#include <attn/ops.h>

#include "attention/internal.h"

#include <limits>

namespace attn::nn {
namespace {

/// Returns x, but NaN in the rows for which `rows` [N, H, L] is true, because they attend to no key.
Tensor with_nan(const Tensor& x, const Tensor& rows) {
  return where(rows.unsqueeze(-1), std::numeric_limits<double>::quiet_NaN(), x);
}

}  // namespace

HeadsResult attend_heads(const HeadsCall& call) {
  // Normally the attention call averages the weights over the heads. If some rows must become NaN, that must come
  // first, so the average is computed here.
  const bool average_after = call.average_weights && call.nan_rows;
  AttentionOptions options;
  if (call.need_weights)
    options.weights = call.average_weights && !average_after ? Weights::head_average : Weights::full;
  call.masks.apply(options);
  AttentionResult result = attention_call(
      call.q, call.k, call.v, options,
      {.function = "MultiheadAttention", .dropout_p = call.dropout, .generator = nullptr, .logsumexp = call.nan_rows});
  if (call.nan_rows) {
    const Tensor rows = eq(result.logsumexp, -std::numeric_limits<double>::infinity());
    result.output = with_nan(result.output, rows);
    if (result.weights.defined()) result.weights = with_nan(result.weights, rows);
  }
  return {result.output, average_after && result.weights.defined() ? mean(result.weights, {1}) : result.weights};
}

}  // namespace attn::nn
