// src/verify/jvp.cc: forward mode by given kernels and by the library.
#include "verify/jvp.h"

#include "attention/tangent.h"
#include "verify/backward.h"

namespace attn::cases {
namespace {

Results tangents_of(const AttentionResultTangents& t) { return {{"output", t.output}, {"logsumexp", t.logsumexp}}; }
Results tangents_of(const AttentionGradients& g) {
  Results results{{"dq", g.q}, {"dk", g.k}, {"dv", g.v}};
  if (g.sinks.defined()) results.push_back({"dsinks", g.sinks});
  for (const Tensor& bias : g.bias) results.push_back({"dbias", bias});
  return results;
}

}  // namespace

Results jvp_by(const kernels::TangentKernel& kernel, const kernels::GradientKernel& of_gradients, const Case& c,
               const Inputs& in) {
  if (size_of(c.dtype) == 2) return {};
  const Differentiated passed(in);
  if (!c.is_backward_tangent())
    return tangents_of(tangent_of(passed.call(), passed.saved(), in.options, in.tangents, &kernel));
  const BackwardPlan plan{"tangent", &of_gradients, &kernels::gradient_tangent_reference(kernels::reference())};
  AttentionBackward flows;
  flows.output = passed.call().with_heads(in.doutput);
  return tangents_of(gradient_tangent_of(passed.call(), passed.saved(), in.options, flows,
                                         {in.tangents, in.doutput_tangent, {}}, &plan));
}

Results jvp_by_library(const Case& c, const Inputs& in) {
  if (!c.is_backward_tangent()) return tangents_of(attention_jvp(in.q, in.k, in.v, in.tangents, in.options).tangent);
  AttentionSaved saved;
  attention_forward(in.q, in.k, in.v, in.options, saved);
  return tangents_of(attention_backward_tangent(in.q, in.k, in.v, in.options, saved, {.grad_output = in.doutput},
                                                in.tangents, {.grad_output = in.doutput_tangent}));
}

std::function<Tensor()> jvp_pass(const Case& c, const Inputs& in) {
  AttentionSaved saved;
  attention_forward(in.q, in.k, in.v, in.options, saved);
  if (!c.is_backward_tangent() && size_of(c.dtype) == 2)
    return [in] { return attention_jvp(in.q, in.k, in.v, in.tangents, in.options).tangent.output; };
  if (!c.is_backward_tangent())
    return [in, saved] { return attention_tangent(in.q, in.k, in.v, in.options, saved, in.tangents).output; };
  return [in, saved] {
    return attention_backward_tangent(in.q, in.k, in.v, in.options, saved, {.grad_output = in.doutput}, in.tangents,
                                      {.grad_output = in.doutput_tangent})
        .q;
  };
}

}  // namespace attn::cases
