// src/attention/saved_state.cc: implements attention_forward, attention_recorded and attention_backward for callers
// that keep the saved state themselves, instead of autograd.
#include <attn/attention_backward.h>
#include <attn/autograd.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/call/check.h"
#include "attention/schedule/returned_weights.h"
#include "attention/score/dropout.h"
#include "attention/backward.h"
#include "attention/internal.h"
#include "attention/lower.h"
#include "runtime/floating_point.h"
#include "tensor/build.h"

#include <algorithm>

namespace attn {
namespace {

constexpr const char* function = "attention_backward";

void check_shape(const Tensor& x, const Dims& sizes, const char* name) {
  if (!x.defined()) throw ValueError(runtime::format("{}: {} is undefined; it is needed", function, name));
  if (!(x.sizes() == sizes))
    throw ShapeError(
        runtime::format("{}: {} has shape {}; it must be {}", function, name, to_string(x.sizes()), to_string(sizes)));
}

void check_dtype(const Tensor& x, Dtype dtype, const char* name) {
  if (x.dtype() != dtype)
    throw DtypeError(
        runtime::format("{}: {} is {}; it must be {}", function, name, name_of(x.dtype()), name_of(dtype)));
}

/// Checks the caller's memory for a gradient: its last dim must be contiguous, because kernels write whole rows.
void check_memory(const Call& call, const Tensor& memory, const Tensor& x, const char* name) {
  if (!memory.defined()) return;
  check_shape(memory, x.sizes(), name);
  check_dtype(memory, call.compute_dtype(), name);
  if (memory.size(-1) > 1 && memory.stride(-1) != 1)
    throw ValueError(runtime::format("{}: {} has strides {}; its last dim must be contiguous", function, name,
                                     to_string(memory.strides())));
}

/// Returns where kernels write a gradient: `given`, or separate memory if the call also reads `given`. `written`: the
/// memory of the other gradients, which `given` must not overlap.
Tensor place_for(const Call& call, const Tensor& given, const std::vector<Tensor>& read,
                 const std::vector<Tensor>& written, const char* name) {
  if (!given.defined()) return {};
  check_in_place(function, given);
  for (const Tensor& x : written)
    if (x.defined() && (x.data() == given.data() ? given.numel() > 0
                                                 : x.is_contiguous() && given.is_contiguous() && overlaps(x, given)))
      throw ValueError(
          runtime::format("{}: {} lies in the memory of another gradient; each needs its own", function, name));
  const bool aside = call.reads_from(given) || std::any_of(read.begin(), read.end(), [&](const Tensor& x) {
                       return x.defined() && share_memory(given, x);
                     });
  return aside ? empty(given.sizes(), given.dtype()) : given;
}

/// Copies a gradient that was computed in separate memory to the caller's memory.
void settle(const Tensor& given, const Tensor& written, Tensor& gradient) {
  if (!gradient.defined() || !given.defined() || written.data() == given.data()) return;
  copy_values(given, written);
  if (gradient.data() == written.data()) gradient = given;
}

}  // namespace

SavedAttention checked_saved(const Call& call, const AttentionSaved& saved) {
  const kernels::AttentionProblem& p = call.problem;
  SavedAttention rows;
  check_shape(saved.output, call.shown_rows(p.value_dim), "saved.output");
  if (!saved.exact || saved.output.dtype() != call.compute_dtype())
    check_dtype(saved.output, call.dtype(), "saved.output");
  rows.output = call.with_heads(saved.output.detach());
  if (p.value_dim > 1 && rows.output.stride(-1) != 1) rows.output = rows.output.contiguous();
  const auto two_numbers = [&](const Tensor& x, const char* name) {
    check_shape(x, {p.batch, p.q_heads, p.q_rows}, name);
    check_dtype(x, call.compute_dtype(), name);
    return x.detach().contiguous();
  };
  rows.max = two_numbers(saved.max, "saved.max");
  rows.sum = two_numbers(saved.sum, "saved.sum");
  if (saved.exact && call.weights == Weights::largest)
    check_shape(saved.weight_keys, returned_sizes(call, call.weights), "saved.weight_keys");
  rows.weight_keys = saved.weight_keys;
  return rows;
}

AttentionResult attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                  AttentionSaved& saved) {
  const NoGrad no_grad;
  // Checked here with the caller's tensors, because the call itself may read copies of them.
  for (const auto& [given, name] : {std::pair{&saved.max, "max"}, {&saved.sum, "sum"}})
    for (const Tensor* x : {&q, &k, &v, &options.out})
      if (given->defined() && x->defined() && share_memory(*given, *x))
        throw ValueError(runtime::format(
            "attention_forward: {} shares memory with an operand or another result; it needs memory of its own", name));
  AttentionResult result = attention_call(q, k, v, options, {.saved = &saved});
  if (!saved.exact) saved.output = result.output.detach();
  saved.dropout_seed = result.dropout_seed;
  return result;
}

AttentionResult attention_recorded(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                                   const AttentionSaved& saved) {
  AttentionOptions forward = options;
  forward.out = {};
  return attention_call(q, k, v, forward, {.resumed = &saved});
}

AttentionGradients attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                      const AttentionOptions& options, const AttentionSaved& saved,
                                      const AttentionBackwardOptions& wanted) {
  return attention_backward_call(q, k, v, options, saved, wanted, 0);
}

AttentionGradients attention_backward_call(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const AttentionOptions& options, const AttentionSaved& saved,
                                           const AttentionBackwardOptions& wanted, std::int64_t first_head) {
  const runtime::DefaultFloatingPoint floating_point;
  const NoGrad no_grad;
  AttentionOptions forward = options;
  forward.out = {};
  const bool half = q.defined() && (q.dtype() == Dtype::bf16 || q.dtype() == Dtype::f16);
  if (half) forward.bias = in_f32(options.bias);
  Call call = check(function, q, k, v, forward);
  call.problem.first_head = first_head;
  const kernels::AttentionProblem& p = call.problem;
  const bool dot = options.score.kind == Score::Kind::scaled_dot || options.score.kind == Score::Kind::dot;
  if (!dot || p.score_callback.call != nullptr)
    throw ValueError(runtime::format(
        "{}: the score is general, additive or a score_callback; it must be the (scaled) dot product, or a "
        "score_mod of it",
        function));
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, saved.dropout_seed, call.dtype() == Dtype::f64, call.problem);
  const SavedAttention rows = checked_saved(call, saved);
  check_shape(wanted.grad_output, call.shown_rows(p.value_dim), "grad_output");
  check_memory(call, wanted.grad_q, call.q, "grad_q");
  check_memory(call, wanted.grad_k, call.k, "grad_k");
  check_memory(call, wanted.grad_v, call.v, "grad_v");

  AttentionBackward flows;
  flows.output = call.with_heads(wanted.grad_output.detach());
  if (wanted.grad_logsumexp.defined()) {
    if (call.normalizer && call.normalizer->described.op != kernels::NormalizerOp::softmax)
      throw ValueError(runtime::format("{}: grad_logsumexp is given; weights of the normalizer {} have no logsumexp",
                                       function, options.normalizer.to_string()));
    check_shape(wanted.grad_logsumexp, call.shown({p.batch, p.q_heads, p.q_rows}), "grad_logsumexp");
    flows.logsumexp = wanted.grad_logsumexp.detach().reshape({p.batch, p.q_heads, p.q_rows});
  }
  flows.k = wanted.k, flows.v = wanted.v, flows.sinks = wanted.sinks;
  flows.bias.assign(call.bias.values.size(), wanted.bias);
  const std::vector<Tensor> read{wanted.grad_output, wanted.grad_logsumexp, saved.output, saved.max, saved.sum};
  flows.dq = place_for(call, wanted.grad_q, read, {}, "grad_q");
  if (wanted.k) flows.dk = place_for(call, wanted.grad_k, read, {wanted.grad_q}, "grad_k");
  if (wanted.v)
    flows.dv = place_for(call, wanted.grad_v, read, {wanted.grad_q, wanted.k ? wanted.grad_k : Tensor()}, "grad_v");
  const std::vector<Tensor> looked_up = call.looked_up();
  flows.looked_up.assign(looked_up.size(), wanted.score_mod);
  FusedGradients fused = attention_backward(call, rows, flows);
  AttentionGradients gradients = std::move(fused);  // drops the gradients that only recorded calls have
  settle(wanted.grad_q, flows.dq, gradients.q);
  settle(wanted.grad_k, flows.dk, gradients.k);
  settle(wanted.grad_v, flows.dv, gradients.v);
  for (std::size_t n = 0; n < fused.looked_up.size(); ++n)
    gradients.score_mod.emplace_back(looked_up[n], fused.looked_up[n]);
  const std::vector<Tensor> given = half ? tensors_of(options.bias) : std::vector<Tensor>();
  for (std::size_t n = 0; n < given.size(); ++n)
    if (Tensor& values = gradients.bias[n]; values.defined()) values = add(values.to(given[n].dtype()), 0);
  return gradients;
}

}  // namespace attn
