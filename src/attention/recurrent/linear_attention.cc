// src/attention/recurrent/linear_attention.cc: implements linear_attention, gated_delta_rule, and the two passes for
// callers that record gradients themselves.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "attention/recurrent/call.h"
#include "kernels/recurrent/target.h"
#include "runtime/format.h"
#include "tensor/record.h"

namespace attn {
namespace {

/// Returns the options whose tensors have gradients, in the order of the recorded inputs.
std::vector<Tensor> recorded_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const LinearAttentionOptions& options) {
  return {q, k, v, options.g, options.beta, options.initial_state};
}

void record_recurrent(const std::vector<Tensor>& inputs, const LinearAttentionOptions& options, const Tensor& states,
                      const LinearAttentionResult& result) {
  Operation operation{"LinearAttentionBackward0", {}, {}};
  for (const Tensor& x : inputs)
    if (x.defined()) operation.inputs.push_back(x);
  operation.saved = operation.inputs;
  LinearAttentionOptions numbers = options;
  numbers.g = numbers.beta = numbers.initial_state = {};
  std::vector<bool> given;
  for (const Tensor& x : inputs) given.push_back(x.defined());
  record(operation, {result.output, result.state}, [numbers, given, states](const Backward& at) {
    if (grad_enabled()) throw ValueError("linear_attention: its gradient has no gradient; create_graph must be false");
    std::vector<Tensor> x(6);
    int saved = 0;
    for (std::size_t n = 0; n < x.size(); ++n)
      if (given[n]) x[n] = at.saved(saved++).detach();
    LinearAttentionOptions whole = numbers;
    whole.g = x[3];
    whole.beta = x[4];
    whole.initial_state = x[5];
    const LinearAttentionGradients g =
        linear_attention_backward(x[0], x[1], x[2], whole, {states}, at.grad(0), at.grad(1));
    Gradients gradients;
    const Tensor* const all[] = {&g.q, &g.k, &g.v, &g.g, &g.beta, &g.initial_state};
    for (std::size_t n = 0; n < x.size(); ++n)
      if (given[n]) gradients.push_back(*all[n]);
    return gradients;
  });
}

}  // namespace

LinearAttentionResult linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const LinearAttentionOptions& options) {
  const RecurrentCall call = check_recurrent("linear_attention", q, k, v, options);
  const std::vector<Tensor> inputs = recorded_inputs(q, k, v, options);
  const bool records = grad_enabled() && wants_grad(inputs);
  const Tensor states = records ? kept_states(call) : Tensor();
  LinearAttentionResult result = run_recurrent(call, kernels::recurrent_kernels(), states);
  if (records) record_recurrent(inputs, options, states, result);
  return result;
}

LinearAttentionResult gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g,
                                       const Tensor& beta, LinearAttentionOptions options) {
  options.g = g;
  options.beta = beta;
  return linear_attention(q, k, v, options);
}

LinearAttentionResult linear_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const LinearAttentionOptions& options, LinearAttentionSaved& saved) {
  const RecurrentCall call = check_recurrent("linear_attention", q, k, v, options);
  saved.states = kept_states(call);
  return run_recurrent(call, kernels::recurrent_kernels(), saved.states);
}

LinearAttentionGradients linear_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                   const LinearAttentionOptions& options,
                                                   const LinearAttentionSaved& saved, const Tensor& grad_output,
                                                   const Tensor& grad_state) {
  const char* const function = "linear_attention_backward";
  const RecurrentCall call = check_recurrent(function, q, k, v, options);
  const auto check = [&](const char* name, const Tensor& x, const Dims& sizes, Dtype dtype) {
    if (!(x.sizes() == sizes))
      throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}", function, name, to_string(x.sizes()),
                                       to_string(sizes)));
    if (x.dtype() != dtype)
      throw DtypeError(
          runtime::format("{}: {} is {}; it must be {}", function, name, name_of(x.dtype()), name_of(dtype)));
  };
  if (!saved.states.defined())
    throw ValueError(runtime::format("{}: saved.states is undefined; linear_attention_forward fills it", function));
  check("saved.states", saved.states, {call.chunks, call.v_heads, call.dim, call.value_dim}, call.compute);
  if (grad_output.defined()) check("grad_output", grad_output, v.sizes(), grad_output.dtype());
  if (grad_state.defined()) check("grad_state", grad_state, call.state_sizes(), grad_state.dtype());
  LinearAttentionGradients gradients =
      run_recurrent_backward(call, kernels::recurrent_kernels(), saved.states.contiguous(), grad_output, grad_state);
  // one number for all rows of a head: the rows' sum
  if (options.g.defined() && options.g.dim() == 1) gradients.g = sum(gradients.g, {0, 2});
  const auto as_given = [](Tensor& gradient, const Tensor& x) {
    if (x.defined()) gradient = gradient.to(x.dtype());
  };
  as_given(gradients.g, options.g);
  as_given(gradients.beta, options.beta);
  as_given(gradients.initial_state, options.initial_state);
  return gradients;
}

}  // namespace attn
