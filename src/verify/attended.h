// src/verify/attended.h: holds a checked call of attention and memory for its results, for kernels to run on.
#pragma once
#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/score/dropout.h"
#include "verify/inputs.h"
#include "verify/results.h"

namespace attn::cases {

struct Attended {
  Call call;
  Results results;
  // all weights [B, Hq, Tq, Tk], allocated if the call returns some of them; only the reference code fills them
  Tensor weights;

  explicit Attended(const Inputs& in) : call(check("verify", in.q, in.k, in.v, in.options)) {
    kernels::AttentionProblem& p = call.problem;
    describe_dropout(in.options.dropout_p, in.options.dropout_seed.value_or(0), call.dtype() == Dtype::f64, p);
    const Tensor output = zeros({p.batch, p.q_heads, p.q_rows, p.value_dim}, call.dtype());
    const Tensor logsumexp = zeros({p.batch, p.q_heads, p.q_rows}, call.compute_dtype());
    p.out = output.data();
    for (int d = 0; d < 3; ++d) p.out_stride[d] = output.stride(d);
    p.logsumexp = logsumexp.data();
    results = {{"output", output}, {"logsumexp", logsumexp}};
    if (in.options.weights == Weights::none) return;
    weights = zeros({p.batch, p.q_heads, p.q_rows, p.k_rows}, call.compute_dtype());
    p.weights = weights.data();
    for (int d = 0; d < 3; ++d) p.weights_stride[d] = weights.stride(d);
  }
};

}  // namespace attn::cases
