// src/explain/backward.cc: computes the fused backward pass for q, k, v; and the gradients in between by their
// definitions, option by option.
#include "explain/backward.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/unfused/unfused_score.h"

#include "runtime/format.h"

#include <array>
#include <cmath>

namespace attn::explain_detail {
namespace {

/// Holds the formulas that compute dq and dk from the scores' gradient.
struct Formulas {
  std::string q, k;
};
Formulas formulas_of(const Forward& forward) {
  const char* rotated = forward.rotated ? "rotated " : "";
  switch (forward.options.score.kind) {
    case Score::Kind::dot: return {runtime::format("dS {}k", rotated), runtime::format("dSᵀ {}q", rotated)};
    case Score::Kind::general: return {"dS k Wᵀ", "dSᵀ q W"};
    case Score::Kind::additive: return {"Σ dS w (1 - tanh²) S_q", "Σ dS w (1 - tanh²) S_k"};
    default: break;
  }
  return {runtime::format("dS {}k / √{}", rotated, forward.divisor()),
          runtime::format("dSᵀ {}q / √{}", rotated, forward.divisor())};
}

/// Returns the operations that compute dq and dk from the step `ds`.
std::array<ExplainStep::Operation, 2> operations_of(const Forward& forward, const std::string& ds) {
  const bool rotated = forward.rotated && forward.run != nullptr &&
                       forward.run->q_rotated.defined();  // else the steps q and k hold the rotated rows
  const std::string q = rotated ? "q_rotated" : "q", k = rotated ? "k_rotated" : "k";
  switch (forward.options.score.kind) {
    case Score::Kind::dot: return {{{"matmul", {ds, k}}, {"matmul_transposed", {ds, q}}}};
    case Score::Kind::general:
      return {{{"bilinear_backward_q", {ds, k, "score_w"}}, {"bilinear_backward_k", {ds, q, "score_w"}}}};
    case Score::Kind::additive: {
      const std::vector<std::string> inputs{ds, q, k, "score_w_query", "score_w_key", "score_w"};
      return {{{"additive_backward_q", inputs}, {"additive_backward_k", inputs}}};
    }
    default: break;
  }
  const double divisor = std::sqrt(forward.divisor());
  return {{{"matmul", {ds, k}, divisor}, {"matmul_transposed", {ds, q}, divisor}}};
}

/// Returns 1 / (1 - p) where dropout keeps a weight, else 0. A call with the same dropout draws and equal scores shows
/// which weights are kept.
Tensor kept_by_dropout(const Forward& forward) {
  AttentionOptions even = forward.options;
  even.softcap = 0;
  even.temperature = 1;
  even.bias = {};
  even.score_mod = {};
  even.sinks = {};
  even.weights = Weights::full;
  const Tensor weights = attention(zeros_like(forward.q), zeros_like(forward.k), forward.v, even).weights;
  return gt(weights, 0).to(weights.dtype()) / (1 - forward.options.dropout_p);
}

/// Passes `ds` back through the score_mod expression at each score; 0 where a pair is masked.
Tensor through_expression(const Run& run, const Tensor& scores, const Tensor& ds) {
  const EnableGrad recorded;
  const Call call = check("explain", run.q_used(), run.k_used(), run.v, run.call);
  const Tensor hidden = zeros(scores.sizes(), Dtype::boolean);
  for (std::size_t n = 0; n < run.hidden.size(); ++n)
    hidden.data<bool>()[n] = run.hidden[n] != Hidden::visible && run.hidden[n] != Hidden::score;
  const Tensor s = scores.detach().clone().requires_grad_();
  const Tensor modified = modified_scores(call, call.score_expression, call.score_mod->any_rows, s,
                                          call.score_mod->any_rows.values, hidden);
  if (!modified.requires_grad()) return zeros_like(ds);  // the expression does not use s
  const Tensor gradient = grad(modified, s, {.grad_outputs = {ds}, .allow_unused = true});
  return gradient.defined() ? masked_fill(gradient, hidden, 0) : zeros_like(ds);
}

/// Passes `ds` back through the score modifiers, last first: after each one, `ds` is the gradient of the scores before
/// it.
void through_stages(const Run& run, Tensor& ds, std::vector<BackwardStep>& steps) {
  const auto add = [&](const char* name, Phrase title, Phrase note, std::string formula,
                       ExplainStep::Operation operation, const Tensor& values) {
    ds = values;
    steps.push_back({ExplainStep::Kind::pairs, name, title, note, std::move(formula), std::move(operation), values});
  };
  for (std::size_t n = run.stages.size(); n-- > 0;) {
    const std::string_view name = run.stages[n].name;
    const std::string after = steps.back().name;
    if (name == "tempered")
      add("d_untempered", Phrase::d_untempered, Phrase::note_d_untempered,
          runtime::format("dS / {}", run.call.temperature), {"divide", {after}, run.call.temperature},
          div(ds, run.call.temperature));
    if (name == "modified") {
      const Tensor& before = n > 0 ? run.stages[n - 1].values : run.scaled.defined() ? run.scaled : run.scores;
      add("d_unmodified", Phrase::d_unmodified, Phrase::note_d_unmodified,
          runtime::format("dS ∂({}) / ∂s", run.call.score_mod.to_string()),
          {"score_mod_backward", {after, run.stages[n].operation.inputs[0]}}, through_expression(run, before, ds));
    }
    if (name == "capped") {
      const Tensor level = div(run.stages[n].values, run.call.softcap);
      add("d_uncapped", Phrase::d_uncapped, Phrase::note_d_uncapped,
          runtime::format("dS (1 − (capped / {})²)", run.call.softcap),
          {"softcap_backward", {after, "capped"}, run.call.softcap}, ds * (1 - level * level));
    }
  }
}

/// Returns the gradient of the context [B, H, T, D] for that of the output, which is the output itself.
Tensor before_output(const Forward& forward) {
  const Tensor& c = forward.context;
  const Tensor joined = matmul(forward.output, forward.w_output.t());
  return joined.reshape({c.size(0), c.size(2), c.size(1), c.size(3)}).transpose(1, 2).contiguous();
}

}  // namespace

WayBack way_back(const Forward& forward) {
  using Kind = ExplainStep::Kind;
  const bool projects = forward.output.defined();
  const Tensor dout = projects ? before_output(forward) : forward.context.detach();
  std::vector<Tensor> inputs;
  for (const Tensor& x : {forward.q, forward.k, forward.v}) inputs.push_back(x.detach().clone().requires_grad_());
  std::vector<Tensor> gradients;
  {
    const EnableGrad recorded;
    AttentionOptions call = forward.options;
    call.weights = Weights::none;
    gradients = grad({attention(inputs[0], inputs[1], inputs[2], call).output}, inputs,
                     {.grad_outputs = {dout}, .allow_unused = true});
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)  // undefined for an expression without s: it does not use q and k
    if (!gradients[i].defined()) gradients[i] = zeros_like(inputs[i].detach());
  const NoGrad no_grad;
  const bool drops = forward.options.dropout_p != 0;
  const Tensor weights = forward.weights.detach(), met = matmul(dout, forward.v.detach().transpose(-1, -2)),
               dp = drops ? met * kept_by_dropout(forward) : met;
  Tensor ds = weights * (dp - sum(weights * dp, {-1}, /*keepdim=*/true));
  const Formulas formulas = formulas_of(forward);
  const Tensor last = projects ? forward.output : dout;
  WayBack back{0.5 * sum((last * last).to(Dtype::f64)).item(), {}};
  const auto add = [&](Kind kind, const char* name, Phrase title, Phrase note, std::string formula,
                       ExplainStep::Operation operation, const Tensor& values, bool key_rows = false) {
    back.steps.push_back({kind, name, title, note, std::move(formula), std::move(operation), values, key_rows});
  };
  if (projects) {
    add(Kind::table, "d_output", Phrase::d_output, Phrase::note_d_output, "∂L / ∂output", {"copy", {"output"}}, last);
    add(Kind::table, "d_context", Phrase::d_context, Phrase::note_d_context_output, "dY W_Oᵀ",
        {"project_backward", {"d_output", "w_output"}, static_cast<double>(dout.size(-1))}, dout);
  } else {
    add(Kind::table, "d_context", Phrase::d_context, Phrase::note_d_context, "∂L / ∂context", {"copy", {"context"}},
        dout);
  }
  add(Kind::table, "d_v", Phrase::d_value, Phrase::note_d_value, drops ? "droppedᵀ dO" : "weightsᵀ dO",
      {"matmul_transposed", {drops ? "dropped" : "weights", "d_context"}}, gradients[2], true);
  const ExplainStep::Operation from_values{"dot", {"d_context", "v"}};
  if (drops) {
    add(Kind::pairs, "d_dropped", Phrase::d_dropped, Phrase::note_d_dropped, "dO · v", from_values, met);
    add(Kind::pairs, "d_weights", Phrase::d_weights, Phrase::note_d_weights,
        runtime::format("dP dropped / (1 − {}), 0 where dropped", forward.options.dropout_p),
        {"dropout_backward", {"d_dropped", "dropped"}, forward.options.dropout_p}, dp);
  } else {
    add(Kind::pairs, "d_weights", Phrase::d_weights, Phrase::note_d_weights, "dO · v", from_values, dp);
  }
  add(Kind::pairs, "d_scores", Phrase::d_scores, Phrase::note_d_scores, "weights (dP - Σ weights dP)",
      {"softmax_backward", {"weights", "d_weights"}}, ds);
  if (forward.run != nullptr) through_stages(*forward.run, ds, back.steps);
  const auto operations = operations_of(forward, back.steps.back().name);
  add(Kind::table, "d_q", Phrase::d_query, Phrase::note_d_query, formulas.q, operations[0], gradients[0]);
  add(Kind::table, "d_k", Phrase::d_key, Phrase::note_d_key, formulas.k, operations[1], gradients[1], true);
  return back;
}

}  // namespace attn::explain_detail
