// src/explain/backward.cc: the fused backward pass for q, k, v; what lies between them by its definition.
#include "explain/backward.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include <fmt/format.h>

namespace attn::explain_detail {
namespace {

/// How q and k come out of the scores' gradient.
struct Formulas {
  std::string q, k;
};
Formulas formulas_of(const Forward& forward) {
  const char* turned = forward.turned ? "turned " : "";
  switch (forward.options.score.kind) {
    case Score::Kind::dot: return {fmt::format("dS {}k", turned), fmt::format("dSᵀ {}q", turned)};
    case Score::Kind::general: return {"dS k Wᵀ", "dSᵀ q W"};
    case Score::Kind::additive: return {"Σ dS w (1 - tanh²) S_q", "Σ dS w (1 - tanh²) S_k"};
    default: break;
  }
  return {fmt::format("dS {}k / √{}", turned, forward.q.size(-1)), fmt::format("dSᵀ {}q / √{}", turned, forward.q.size(-1))};
}

}  // namespace

WayBack way_back(const Forward& forward) {
  using Kind = ExplainStep::Kind;
  const Tensor dout = forward.context.detach();
  std::vector<Tensor> inputs;
  for (const Tensor& x : {forward.q, forward.k, forward.v}) inputs.push_back(x.detach().clone().requires_grad_());
  std::vector<Tensor> gradients;
  {
    const EnableGrad recorded;
    AttentionOptions call = forward.options;
    call.weights = Weights::none;
    gradients = grad({attention(inputs[0], inputs[1], inputs[2], call).output}, inputs, {.grad_outputs = {dout}});
  }
  const NoGrad no_grad;
  const Tensor dp = matmul(dout, forward.v.detach().transpose(-1, -2)), weights = forward.weights.detach();
  const Tensor ds = weights * (dp - sum(weights * dp, {-1}, /*keepdim=*/true));
  const Formulas formulas = formulas_of(forward);
  return {0.5 * sum((dout * dout).to(Dtype::f64)).item(),
          {{Kind::table, "d_context", Phrase::d_context, Phrase::note_d_context, "∂L / ∂context", dout},
           {Kind::table, "d_v", Phrase::d_value, Phrase::note_d_value, "weightsᵀ dO", gradients[2], true},
           {Kind::pairs, "d_weights", Phrase::d_weights, Phrase::note_d_weights, "dO · v", dp},
           {Kind::pairs, "d_scores", Phrase::d_scores, Phrase::note_d_scores, "weights (dP - Σ weights dP)", ds},
           {Kind::table, "d_q", Phrase::d_query, Phrase::note_d_query, formulas.q, gradients[0]},
           {Kind::table, "d_k", Phrase::d_key, Phrase::note_d_key, formulas.k, gradients[1], true}}};
}

}  // namespace attn::explain_detail
