// src/verify/backward.cc: a checked call run forward, then backward.
#include "verify/backward.h"

#include "attention/run.h"
#include "verify/attended.h"

namespace attn::cases {

Results gradients_by(const GradientPlan* plan, const Inputs& in) {
  const Attended a(in);
  const kernels::AttentionProblem& p = a.call.problem;
  const Dims rows{p.batch, p.q_heads, p.q_rows};
  const SavedAttention saved{.output = a.results[0].values, .max = empty(rows, a.call.compute_dtype()), .sum = empty(rows, a.call.compute_dtype()), .dropout = nullptr};
  attn::Results to{.out = p.out, .max = saved.max.data(), .sum = saved.sum.data()};
  for (int d = 0; d < 3; ++d) to.out_stride[d] = p.out_stride[d];
  Plan forward;
  run_attention(a.call, plan_attention(p, {}, forward), DropoutStrips(0, {}, nullptr), to);

  const AttentionGradients g = attention_backward(a.call, saved, {.output = in.doutput, .logsumexp = {}, .bias = {}, .plan = plan});
  Results results{{"dq", g.q}, {"dk", g.k}, {"dv", g.v}};
  if (g.sinks.defined()) results.push_back({"dsinks", g.sinks});
  for (const Tensor& bias : g.bias) results.push_back({"dbias", bias});
  return results;
}

}  // namespace attn::cases
