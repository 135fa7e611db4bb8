// tests/attention/gradient_trial.h: one call of attention, forward and through the fused backward pass.
#pragma once
#include <attn/ops.h>
#include <attn/random.h>

#include "attention/backward.h"
#include "attention/call/check.h"
#include "attention/schedule/run.h"

#include <memory>

namespace attn::testing {

/// A call and how its results are weighed into one number.
struct Trial {
  Tensor q, k, v;
  AttentionOptions options = {};
  double dropout = 0;
  Tensor doutput = {}, dlogsumexp = {};  // made where they are not given; logsumexp only where rows see something

  Call call() const { return check("test", q, k, v, options); }
};

inline SavedAttention forward(const Trial& s, Call& call, Tensor* logsumexp = nullptr) {
  kernels::AttentionProblem& p = call.problem;
  const Dims rows{p.batch, p.q_heads, p.q_rows};
  Plan plan;
  const AttentionKernel& kernel = plan_attention(p, plan);
  Generator generator(11);
  SavedAttention saved{.output = empty({p.batch, p.q_heads, p.q_rows, p.value_dim}, call.dtype()),
                       .max = empty(rows, call.compute_dtype()),
                       .sum = empty(rows, call.compute_dtype())};
  if (s.dropout > 0)
    saved.dropout = std::make_shared<DropoutTiles>(
        s.dropout, DropoutTiles::Shape{p.batch * p.q_heads, p.q_rows, p.k_rows, kernel.query_tile_rows}, &generator);
  const Tensor lse = empty(rows, call.compute_dtype());
  p.out = saved.output.data(), p.logsumexp = lse.data(), p.max = saved.max.data(), p.sum = saved.sum.data();
  for (int d = 0; d < 3; ++d) p.out_stride[d] = saved.output.stride(d);
  run_attention(call, kernel, saved.dropout.get(), nullptr);
  if (logsumexp != nullptr) *logsumexp = lse;
  return saved;
}

inline AttentionGradients gradients(const Trial& s) {
  Call call = s.call();
  AttentionBackward options;
  options.output = s.doutput;
  options.logsumexp = s.dlogsumexp;
  return attention_backward(call, forward(s, call), options);
}

}  // namespace attn::testing
