// tests/attention/calls.h: normal q, k and v, and all that a call returns in one tensor, to be compared as bits.
#pragma once
#include "attention/truth.h"

namespace attn::testing {

struct Inputs {
  Tensor q, k, v;
};
/// `width`: columns of v.
inline Inputs inputs(const Dims& q, const Dims& k, std::int64_t width, Dtype dtype = Dtype::f32) {
  return {normal(q, 1, dtype), normal(k, 2, dtype), normal({k[0], k[1], k[2], width}, 3, dtype)};
}

/// Output and logsumexp side by side: [B, H, T, Dv + 1].
inline Tensor run(const Inputs& in, const AttentionOptions& options) {
  const AttentionResult r = attention(in.q, in.k, in.v, options);
  return cat({r.output.to(Dtype::f64), r.logsumexp.unsqueeze(-1).to(Dtype::f64)}, -1);
}

}  // namespace attn::testing
