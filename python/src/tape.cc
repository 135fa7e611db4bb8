// python/src/tape.cc: runs the backward pass of a recorded call.
#include "tape.h"

#include <attn/autograd.h>

#include "errors.h"
#include "gil.h"
#include "terms.h"

namespace attn::python {
namespace {

/// Returns the gradients of the inputs. `grads`: one for each output, or None. With `record` the gradients have a tape
/// of their own, whose inputs are the inputs and `grads`.
nb::object backward(const Tape& self, nb::list grads, bool record) {
  constexpr const char* function = "Tape.backward";
  if (nb::len(grads) != self.outputs.size())
    throw ValueError(
        text("{}: {} gradients are given; there are {} outputs", function, nb::len(grads), self.outputs.size()));
  Reader read(function);
  std::vector<Tensor> outputs, given;
  Tape next{.inputs = self.inputs, .outputs = {}, .framework = self.framework};
  for (std::size_t n = 0; n < self.outputs.size(); ++n) {
    const nb::handle grad = grads[n];
    if (grad.is_none() || !self.outputs[n].defined()) continue;
    Tensor x = record ? keep(grad, {function, "a gradient"}) : read(grad, "a gradient");
    if (record) x.requires_grad_();
    if (record) next.inputs.push_back(x);
    if (!self.outputs[n].requires_grad()) continue;  // an output that has no row or no key depends on no input
    outputs.push_back(self.outputs[n]);
    given.push_back(x);
  }
  std::vector<Tensor> gradients(self.inputs.size());
  if (!outputs.empty()) {
    const Unlocked unlocked;
    gradients = grad(outputs, self.inputs,
                     {.grad_outputs = given, .retain_graph = true, .create_graph = record, .allow_unused = true});
  }
  nb::list result;
  for (const Tensor& gradient : gradients)
    result.append(to_python(gradient.defined() ? gradient.detach() : gradient, self.framework));
  if (!record) return result;
  next.outputs = std::move(gradients);
  return nb::make_tuple(result, std::move(next));
}

}  // namespace

void add_tape(nb::module_& m) {
  nb::class_<Tape>(m, "Tape", "A recorded call, for a framework's autograd.")
      .def("backward", backward, nb::arg("grads"), nb::arg("record") = false);
}

}  // namespace attn::python
