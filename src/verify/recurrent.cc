// src/verify/recurrent.cc: linear attention with a state by the kernels of a target, by the reference code and by the
// library.
#include "verify/recurrent.h"

#include <attn/ops.h>

#include "attention/recurrent/call.h"

#include <vector>

namespace attn::cases {
namespace {

bool is_convolution(const Case& c) { return c.op == "causal_conv"; }

Results gradients_of(const LinearAttentionGradients& g) {
  Results results{{"dq", g.q}, {"dk", g.k}, {"dv", g.v}};
  if (g.g.defined()) results.push_back({"dg", g.g});
  if (g.beta.defined()) results.push_back({"dbeta", g.beta});
  return results;
}

/// Each channel: its sums, then silu.
Results convolution_by(const kernels::RecurrentKernels& kernels, UnaryFunction unary, const Case& c, const Inputs& in) {
  const Tensor x = in.x.contiguous(), y = empty(x.sizes(), x.dtype());
  const Tensor padded = cat({zeros({c.batch, c.n, c.k - 1}, x.dtype()), x}, 2);
  const auto size = static_cast<std::int64_t>(size_of(x.dtype()));
  const kernels::Element element = c.dtype == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
  std::vector<const void*> taps(static_cast<std::size_t>(c.k));
  for (std::int64_t line = 0; line < c.batch * c.n; ++line) {
    const std::int64_t channel = line % c.n;
    const char* from = static_cast<const char*>(padded.data()) + line * (c.q_rows + c.k - 1) * size;
    char* to = static_cast<char*>(y.data()) + line * c.q_rows * size;
    for (std::int64_t j = 0; j < c.k; ++j) taps[static_cast<std::size_t>(j)] = from + j * size;
    kernels.convolve({.element = element,
                      .n = c.q_rows,
                      .taps = c.k,
                      .x = taps.data(),
                      .weight = static_cast<const char*>(in.weight.data()) + channel * c.k * size,
                      .bias = static_cast<const char*>(in.bias.data()) + channel * size,
                      .y = to});
    unary(kernels::Unary::silu, element, to, to, c.q_rows);
  }
  return {{"output", y}};
}

}  // namespace

Results recurrent_by(const kernels::RecurrentKernels& kernels, UnaryFunction unary, const Case& c, const Inputs& in) {
  if (size_of(c.dtype) == 2) return {};
  if (is_convolution(c)) return convolution_by(kernels, unary, c, in);
  const RecurrentCall call = check_recurrent("case", in.q, in.k, in.v, in.recurrent);
  const Tensor states = c.is_recurrent_backward() ? kept_states(call) : Tensor();
  const LinearAttentionResult result = run_recurrent(call, kernels, states);
  if (!c.is_recurrent_backward()) return {{"output", result.output}, {"state", result.state}};
  return gradients_of(run_recurrent_backward(call, kernels, states, in.doutput, {}));
}

Results recurrent_by_library(const Case& c, const Inputs& in) {
  if (is_convolution(c)) return {{"output", causal_conv1d(in.x, in.weight, {.bias = in.bias, .silu = true}).output}};
  LinearAttentionSaved saved;
  const LinearAttentionResult result = c.is_recurrent_backward()
                                           ? linear_attention_forward(in.q, in.k, in.v, in.recurrent, saved)
                                           : linear_attention(in.q, in.k, in.v, in.recurrent);
  if (!c.is_recurrent_backward()) return {{"output", result.output}, {"state", result.state}};
  return gradients_of(linear_attention_backward(in.q, in.k, in.v, in.recurrent, saved, in.doutput, {}));
}

}  // namespace attn::cases
