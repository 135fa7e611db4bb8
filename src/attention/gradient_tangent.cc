// src/attention/gradient_tangent.cc: computes the tangents of a call's gradients: products with its second derivatives.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/score/dropout.h"
#include "attention/tangent.h"
#include "runtime/floating_point.h"
#include "runtime/format.h"

namespace attn {
namespace {

constexpr const char* function = "attention_backward_tangent";

BackwardPlan gradient_tangent_plan(const Call& call) {
  const kernels::GradientKernel& reference = kernels::gradient_tangent_reference(kernels::reference());
  const kernels::TangentTarget* const target = tangent_target_here();
  if (target == nullptr) return {"ref tangent", &reference, &reference};
  return {"tangent", call.dtype() == Dtype::f64 ? &target->gradient_f64 : &target->gradient_f32, &reference};
}

void check_flow(const char* name, const Tensor& x, const Dims& sizes, Dtype dtype) {
  if (!(x.sizes() == sizes))
    throw ShapeError(
        runtime::format("{}: {} has shape {}; it must be {}", function, name, to_string(x.sizes()), to_string(sizes)));
  if (x.dtype() != dtype)
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be {}", function, name, name_of(x.dtype()), name_of(dtype)));
}

void check_flows(const Call& call, const AttentionBackwardOptions& wanted, const AttentionFlowTangents& flows) {
  const kernels::AttentionProblem& p = call.problem;
  if (!wanted.grad_output.defined())
    throw ValueError(runtime::format("{}: grad_output is undefined; it is needed", function));
  if (wanted.grad_q.defined() || wanted.grad_k.defined() || wanted.grad_v.defined())
    throw ValueError(runtime::format("{}: memory for gradients is given; the results are always new", function));
  const Dims rows = call.shown({p.batch, p.q_heads, p.q_rows});
  check_flow("grad_output", wanted.grad_output, call.shown_rows(p.value_dim), call.dtype());
  if (wanted.grad_logsumexp.defined()) check_flow("grad_logsumexp", wanted.grad_logsumexp, rows, call.compute_dtype());
  if (flows.grad_output.defined())
    check_flow("the tangent of grad_output", flows.grad_output, call.shown_rows(p.value_dim), call.dtype());
  if (flows.grad_logsumexp.defined())
    check_flow("the tangent of grad_logsumexp", flows.grad_logsumexp, rows, call.compute_dtype());
}

}  // namespace

AttentionGradients gradient_tangent_of(const Call& call, const SavedAttention& saved, const AttentionOptions& options,
                                       AttentionBackward flows, const GradientDirection& direction,
                                       const BackwardPlan* plan) {
  MovingCall moving(call, saved, options, direction.moved);
  const AttentionResultTangents results = moving.run(call);
  kernels::GradientTangent along{.operands = moving.tangent};
  const Tensor output = rows_as_read(call, direction.output, along.dout, along.dout_stride);
  const Tensor logsumexp = direction.logsumexp.defined() ? direction.logsumexp.detach().contiguous() : Tensor();
  if (logsumexp.defined()) along.dlogsumexp = logsumexp.data();
  const BackwardPlan here = plan != nullptr ? *plan : gradient_tangent_plan(call);
  flows.plan = &here;
  flows.along = &along;
  return attention_backward(call, saved, flows);
}

AttentionGradients attention_backward_tangent(const Tensor& q, const Tensor& k, const Tensor& v,
                                              const AttentionOptions& options, const AttentionSaved& saved,
                                              const AttentionBackwardOptions& wanted, const AttentionTangents& tangents,
                                              const AttentionFlowTangents& flows) {
  const runtime::DefaultFloatingPoint floating_point;
  check_supported(function, options);
  Call call = check(function, q, k, v, options);
  check_tangents(function, q, k, v, options, tangents);
  refuse_lost(function, call, tangents);
  if (call.score_mod)
    throw ValueError(
        runtime::format("{}: score_mod is given, whose second derivative this pass does not have; differentiate twice "
                        "(autograd.h)",
                        function));
  check_flows(call, wanted, flows);
  const NoGrad no_grad;
  if (call.dtype() != call.compute_dtype()) {  // 16 bits: in f32, by a forward pass in f32; each result rounded once
    AttentionOptions wide = options;
    wide.bias = in_f32(options.bias);
    if (options.dropout_p > 0) wide.dropout_seed = saved.dropout_seed;
    AttentionBackwardOptions flow = wanted;
    flow.grad_output = detached_f32(wanted.grad_output);
    AttentionSaved rows;
    attention_forward(detached_f32(q), detached_f32(k), detached_f32(v), wide, rows);
    AttentionGradients found =
        attention_backward_tangent(detached_f32(q), detached_f32(k), detached_f32(v), wide, rows, flow,
                                   detached_f32(tangents), {detached_f32(flows.grad_output), flows.grad_logsumexp});
    const auto narrow = [](Tensor& x, Dtype dtype) {
      if (x.defined() && x.dtype() != dtype) x = add(x.to(dtype), 0);  // + 0: values that round to -0 become +0
    };
    for (Tensor* x : {&found.q, &found.k, &found.v}) narrow(*x, call.dtype());
    for (std::size_t n = 0; n < found.bias.size(); ++n) narrow(found.bias[n], options.bias.terms()[n].values.dtype());
    return found;
  }
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, saved.dropout_seed, call.dtype() == Dtype::f64, call.problem);
  const kernels::AttentionProblem& p = call.problem;
  const auto of_rows = [&](const Tensor& x) {
    return x.defined() ? x.detach().reshape({p.batch, p.q_heads, p.q_rows}) : x;
  };
  AttentionBackward backward;
  backward.output = call.with_heads(wanted.grad_output.detach());
  backward.logsumexp = of_rows(wanted.grad_logsumexp);
  backward.k = wanted.k, backward.v = wanted.v, backward.sinks = wanted.sinks;
  backward.bias.assign(static_cast<std::size_t>(p.bias_count), wanted.bias);
  return gradient_tangent_of(call, checked_saved(call, saved), options, backward,
                             {tangents, flows.grad_output, of_rows(flows.grad_logsumexp)});
}

}  // namespace attn
