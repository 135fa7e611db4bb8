// src/attention/record_attention.cc: records an attention call for autograd: what is saved, and where its gradients go.
#include <attn/autograd.h>

#include "attention/backward.h"
#include "attention/unfused/unfused_attention.h"
#include "tensor/record.h"

namespace attn {
namespace {

constexpr const char* name = "AttentionBackward0";

/// Computes the gradients of a recorded call, in the order of Call::inputs().
Gradients backward_of(const Call& call, const SavedAttention& saved, const Backward& at) {
  for (int n = 0; n < saved.checked; ++n) at.saved(n);  // throws if one of them was changed in place
  if (grad_enabled() || at.grad(1).defined())
    return unfused_gradients(call, {saved.dropout.get(), saved.weight_keys}, at);
  const kernels::AttentionProblem& p = call.problem;
  AttentionBackward wanted;
  wanted.output = call.with_heads(at.grad_or_zeros(0));
  wanted.logsumexp = at.grad(2);
  if (wanted.logsumexp.defined()) wanted.logsumexp = wanted.logsumexp.reshape({p.batch, p.q_heads, p.q_rows});
  int input = 3;
  wanted.k = at.needs(1);
  wanted.v = at.needs(2);
  wanted.sinks = call.sinks.defined() && at.needs(input++);
  wanted.additive_w = call.additive_w.defined() && at.needs(input++);
  for (std::size_t n = 0; n < call.bias.values.size(); ++n) wanted.bias.push_back(at.needs(input++));
  for (std::size_t n = 0, count = call.looked_up().size(); n < count; ++n)
    wanted.looked_up.push_back(at.needs(input++));

  const FusedGradients g = attention_backward(call, saved, wanted);
  Gradients gradients{g.q, g.k, g.v};
  if (call.sinks.defined()) gradients.push_back(g.sinks);
  if (call.additive_w.defined()) gradients.push_back(g.additive_w);
  gradients.insert(gradients.end(), g.bias.begin(), g.bias.end());
  gradients.insert(gradients.end(), g.looked_up.begin(), g.looked_up.end());
  return gradients;
}

}  // namespace

void record_attention(Call call, SavedAttention saved, const AttentionResult& result) {
  Operation operation{name, call.inputs(), call.inputs()};
  operation.saved.push_back(result.output);
  // The backward pass reads these again: lengths, masks, the indices of returned weights, integer lookup tables.
  for (Tensor& x : call.constants()) operation.saved.push_back(std::move(x));
  for (const Tensor& x : {call.weights.indices, saved.weight_keys})
    if (x.defined()) operation.saved.push_back(x);
  saved.checked = static_cast<int>(operation.saved.size());
  call.forget_history();
  const auto kept = std::make_shared<const std::pair<Call, SavedAttention>>(std::move(call), std::move(saved));
  record(operation, {result.output, result.weights, result.logsumexp},
         [kept](const Backward& at) { return backward_of(kept->first, kept->second, at); });
}

}  // namespace attn
