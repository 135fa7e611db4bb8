// python/src/recurrent.cc: binds linear attention with a state and the causal convolution, forward and backward.
#include <attn/autograd.h>
#include <attn/linear_attention.h>

#include "errors.h"
#include "gil.h"
#include "integers.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

/// The arguments of a pass: q, k, v, g, beta, initial_state, lengths and cu_seqlens; the last five may be None.
struct Recurrence {
  Reader read;
  Tensor q, k, v;
  LinearAttentionOptions options;

  Recurrence(const char* function, const nb::tuple& operands, nb::handle scale, nb::handle l2norm) : read(function) {
    if (nb::len(operands) != 8) throw type_error("{}: eight operands are needed", function);
    q = read(operands[0], "q"), k = read(operands[1], "k"), v = read(operands[2], "v");
    options.g = read.optional(operands[3], "g");
    options.beta = read.optional(operands[4], "beta");
    options.initial_state = read.optional(operands[5], "initial_state");
    const nb::object lengths = operands[6], starts = operands[7];
    if (!lengths.is_none()) options.lengths = read.integers(lengths, "lengths");
    if (!starts.is_none()) options.cu_seqlens = read.integers(starts, "cu_seqlens");
    if (!scale.is_none()) options.scale = number(scale, {function, "scale"});
    options.l2norm = flag(l2norm, {function, "l2norm"});
  }
  nb::object shown(const Tensor& x) const { return to_python(x, read.framework()); }
};

/// Returns output and state; with `keeps` also what the backward pass needs, else None.
nb::tuple forward(nb::tuple operands, nb::handle scale, nb::handle l2norm, bool keeps) {
  Recurrence call("linear_attention", operands, scale, l2norm);
  LinearAttentionResult result;
  LinearAttentionSaved saved;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = keeps ? linear_attention_forward(call.q, call.k, call.v, call.options, saved)
                   : linear_attention(call.q, call.k, call.v, call.options);
  }
  return nb::make_tuple(call.shown(result.output), call.shown(result.state), call.shown(saved.states));
}

/// Returns the gradients of q, k, v, g, beta and initial_state; None for those that were not given.
nb::tuple backward(nb::tuple operands, nb::handle scale, nb::handle l2norm, nb::handle states, nb::handle grad_output,
                   nb::handle grad_state) {
  Recurrence call("linear_attention_backward", operands, scale, l2norm);
  const LinearAttentionSaved saved{call.read(states, "states")};
  const Tensor by_output = call.read.optional(grad_output, "grad_output"),
               by_state = call.read.optional(grad_state, "grad_state");
  LinearAttentionGradients g;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    g = linear_attention_backward(call.q, call.k, call.v, call.options, saved, by_output, by_state);
  }
  return nb::make_tuple(call.shown(g.q), call.shown(g.k), call.shown(g.v), call.shown(g.g), call.shown(g.beta),
                        call.shown(g.initial_state));
}

nb::tuple convolve(nb::handle x, nb::handle weight, nb::handle bias, nb::handle initial_state, nb::handle silu) {
  Reader read("causal_conv1d");
  const Tensor rows = read(x, "x"), taps = read(weight, "weight");
  const CausalConvOptions options{.bias = read.optional(bias, "bias"),
                                  .initial_state = read.optional(initial_state, "initial_state"),
                                  .silu = flag(silu, {"causal_conv1d", "silu"})};
  CausalConvResult result;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = causal_conv1d(rows, taps, options);
  }
  return nb::make_tuple(to_python(result.output, read.framework()), to_python(result.state, read.framework()));
}

/// Returns the gradients of x, weight, bias and initial_state from those of output and state, either of which may be
/// None; None for those that were not given.
nb::tuple convolve_backward(nb::handle x, nb::handle weight, nb::handle bias, nb::handle initial_state, nb::handle silu,
                            nb::handle grad_output, nb::handle grad_state) {
  Reader read("causal_conv1d_backward");
  const Tensor rows = read(x, "x"), taps = read(weight, "weight");
  const CausalConvOptions options{.bias = read.optional(bias, "bias"),
                                  .initial_state = read.optional(initial_state, "initial_state"),
                                  .silu = flag(silu, {"causal_conv1d", "silu"})};
  const Tensor by_output = read.optional(grad_output, "grad_output"),
               by_state = read.optional(grad_state, "grad_state");
  CausalConvGradients found;
  {
    const Unlocked unlocked;
    found = causal_conv1d_backward(rows, taps, options, by_output, by_state);
  }
  const auto shown = [&](const Tensor& gradient) { return to_python(gradient, read.framework()); };
  return nb::make_tuple(shown(found.x), shown(found.weight), shown(found.bias), shown(found.initial_state));
}

}  // namespace

void add_recurrent(nb::module_& m) {
  m.def("linear_attention", forward, nb::arg("operands"), nb::arg("scale").none(), nb::arg("l2norm"), nb::arg("keeps"));
  m.def("linear_attention_backward", backward, nb::arg("operands"), nb::arg("scale").none(), nb::arg("l2norm"),
        nb::arg("states"), nb::arg("grad_output").none(), nb::arg("grad_state").none());
  m.def("causal_conv1d", convolve, nb::arg("x"), nb::arg("weight"), nb::arg("bias").none(),
        nb::arg("initial_state").none(), nb::arg("silu"));
  m.def("causal_conv1d_backward", convolve_backward, nb::arg("x"), nb::arg("weight"), nb::arg("bias").none(),
        nb::arg("initial_state").none(), nb::arg("silu"), nb::arg("grad_output").none(), nb::arg("grad_state").none());
}

}  // namespace attn::python
