// src/verify/backward.cc: runs a checked call forward, then backward.
#include "verify/backward.h"

#include "attention/relative/relative_terms.h"
#include "attention/schedule/run.h"
#include "kernels/relative/relative_product.h"

namespace attn::cases {

Differentiated::Differentiated(const Inputs& in) : attended_(in), doutput_(in.doutput) {
  Call& call = attended_.call;
  kernels::AttentionProblem& p = call.problem;
  const Dims rows{p.batch, p.q_heads, p.q_rows};
  saved_ = {.output = attended_.results[0].values,
            .max = empty(rows, call.compute_dtype()),
            .sum = empty(rows, call.compute_dtype())};
  p.max = saved_.max.data();
  p.sum = saved_.sum.data();
  Plan forward;
  run_attention(call, plan_attention(p, forward), nullptr, nullptr);
}

FusedGradients Differentiated::backward(AttentionBackward options) const {
  options.output = doutput_;
  return attention_backward(attended_.call, saved_, options);
}

void Differentiated::define_products(const kernels::Reference& build) {
  if (attended_.call.bias.products != nullptr) attended_.call.bias.products->use(kernels::relative_reference(build));
}

Results gradients_by(const BackwardPlan* plan, const Inputs& in, const Tensor& dlogsumexp,
                     const kernels::Reference* build) {
  AttentionBackward options;
  options.logsumexp = dlogsumexp;
  options.plan = plan;
  Differentiated passed(in);
  if (build != nullptr) passed.define_products(*build);
  const FusedGradients g = passed.backward(options);
  Results results{{"dq", g.q}, {"dk", g.k}, {"dv", g.v}};
  if (g.sinks.defined()) results.push_back({"dsinks", g.sinks});
  if (g.additive_w.defined()) results.push_back({"dw", g.additive_w});
  for (const Tensor& bias : g.bias) results.push_back({"dbias", bias});
  for (const Tensor& values : g.looked_up) results.push_back({"dlooked_up", values});
  return results;
}

}  // namespace attn::cases
