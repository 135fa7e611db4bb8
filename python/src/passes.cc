// python/src/passes.cc: binds the forward and the backward pass of attention, and the matrix products, on memory of the
// caller; attn.torch builds its operators on them.
#include <attn/attention_backward.h>
#include <attn/autograd.h>
#include <attn/ops.h>

#include "errors.h"
#include "gil.h"
#include "passes.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

/// Returns the array's memory for a result; undefined for None.
Tensor memory_of(Reader& read, nb::handle x, const char* name) {
  return x.is_none() ? Tensor() : read.writable(x, name);
}

/// Writes output, max and sum (max and sum may both be None) and returns the requested weights, or None.
nb::object forward(nb::tuple operands, nb::tuple numbers, nb::handle weights, nb::handle output, nb::handle max,
                   nb::handle sum) {
  constexpr const char* function = "attention";
  Pass pass(function, operands, numbers);
  constexpr Weights::Kind all[] = {Weights::none, Weights::full, Weights::head_average};
  pass.options.weights = all[choice(weights, {function, "weights"}, {"none", "full", "head_average"})];
  pass.options.out = pass.read.writable(output, "out");
  AttentionSaved saved{.output = {}, .max = memory_of(pass.read, max, "max"), .sum = memory_of(pass.read, sum, "sum")};
  Tensor result;
  {
    const Unlocked unlocked;
    if (saved.max.defined()) {
      result = attention_forward(pass.q, pass.k, pass.v, pass.options, saved).weights;
    } else {
      const NoGrad unrecorded;
      result = attention(pass.q, pass.k, pass.v, pass.options).weights;
    }
  }
  return to_python(result, pass.read.framework());
}

/// Returns the gradients of q, k, v, bias and sinks; None for those that are not requested. `saved`: output, max, sum.
/// `wanted`: flags for k, v, bias, sinks.
nb::tuple backward(nb::tuple operands, nb::tuple numbers, nb::tuple saved, nb::handle grad_output, nb::tuple wanted) {
  constexpr const char* function = "attention_backward";
  Pass pass(function, operands, numbers);
  if (nb::len(saved) != 3 || nb::len(wanted) != 4) throw type_error("{}: saved are three, wanted four", function);
  const AttentionSaved rows{.output = pass.read(saved[0], "output"),
                            .max = pass.read(saved[1], "max"),
                            .sum = pass.read(saved[2], "sum"),
                            .dropout_seed = pass.options.dropout_seed.value_or(0)};
  AttentionBackwardOptions options;
  options.grad_output = pass.read(grad_output, "grad_output");
  bool* const flags[] = {&options.k, &options.v, &options.bias, &options.sinks};
  for (int n = 0; n < 4; ++n) *flags[n] = flag(wanted[n], {function, "wanted"});
  AttentionGradients gradients;
  {
    const Unlocked unlocked;
    gradients = attention_backward(pass.q, pass.k, pass.v, pass.options, rows, options);
  }
  if (!options.sinks) gradients.sinks = {};
  const Tensor bias = gradients.bias.empty() ? Tensor() : gradients.bias[0];
  const auto shown = [&](const Tensor& x) { return to_python(x, pass.read.framework()); };
  return nb::make_tuple(shown(gradients.q), shown(gradients.k), shown(gradients.v), shown(bias),
                        shown(gradients.sinks));
}

/// Writes x weight^T + bias into `out`.
void linear_into(nb::handle x, nb::handle weight, nb::handle bias, nb::handle out) {
  Reader read("linear");
  const Tensor rows = read(x, "input"), matrix = read(weight, "weight"), added = read.optional(bias, "bias"),
               memory = read.writable(out, "out");
  const Unlocked unlocked;
  const NoGrad unrecorded;
  linear(rows, matrix, added, memory);
}

/// Writes the product a b into `out`.
void matmul_into(nb::handle a, nb::handle b, nb::handle out) {
  Reader read("matmul");
  const Tensor left = read(a, "a"), right = read(b, "b"), memory = read.writable(out, "out");
  const Unlocked unlocked;
  const NoGrad unrecorded;
  matmul(left, right, memory);
}

}  // namespace

void add_passes(nb::module_& m) {
  m.def("attention_forward", forward, nb::arg("operands"), nb::arg("numbers"), nb::arg("weights"),
        nb::arg("output").none(), nb::arg("max").none(), nb::arg("sum").none());
  m.def("attention_backward", backward, nb::arg("operands"), nb::arg("numbers"), nb::arg("saved"),
        nb::arg("grad_output").none(), nb::arg("wanted"));
  m.def("linear_into", linear_into, nb::arg("input"), nb::arg("weight"), nb::arg("bias").none(), nb::arg("out"));
  m.def("matmul_into", matmul_into, nb::arg("a"), nb::arg("b"), nb::arg("out"));
}

}  // namespace attn::python
