// python/src/latent.cc: binds latent attention, alone and recorded for a framework's autograd.
#include "latent.h"

#include <attn/autograd.h>

#include <nanobind/stl/vector.h>

#include <utility>

#include "errors.h"
#include "gil.h"
#include "scalars.h"
#include "tape.h"
#include "terms.h"

namespace attn::python {
namespace {

constexpr const char* names[] = {"q_nope", "q_rope", "latent", "k_rope", "w_uk", "w_uv"};
constexpr Tensor LatentOperands::* parts[] = {&LatentOperands::q_nope, &LatentOperands::q_rope, &LatentOperands::latent,
                                              &LatentOperands::k_rope, &LatentOperands::w_uk,   &LatentOperands::w_uv};

}  // namespace

LatentCall::LatentCall(const char* function, nb::tuple arrays, nb::handle options, nb::handle its_form, bool keeps)
    : call(function, arrays[0], nb::handle(), nb::handle(), options, keeps, names[0]),
      form(choice(its_form, {function, "form"}, {"expanded", "absorbed"}) == 0 ? LatentForm::expanded
                                                                               : LatentForm::absorbed),
      arrays_(std::move(arrays)) {
  operands.q_nope = call.q;
  for (std::size_t n = 1; n < std::size(parts); ++n) operands.*parts[n] = call.read.optional(arrays_[n], names[n]);
  if (!call.out.is_none())
    throw ValueError(text("{}: out is given; the output of latent attention is always new", function));
}

std::vector<Leaf> LatentCall::leaves() {
  std::vector<Leaf> leaves = call.leaves(nb::none(), nb::none(), nb::none());
  leaves.erase(leaves.begin(), leaves.begin() + 3);  // q, k and v of attention
  std::vector<Leaf> all;
  for (std::size_t n = 0; n < std::size(parts); ++n) all.push_back({&(operands.*parts[n]), arrays_[n]});
  all.insert(all.end(), leaves.begin(), leaves.end());
  return all;
}

namespace {

constexpr const char* function = "latent_attention";

nb::tuple latent(nb::tuple arrays, nb::handle options, nb::handle form) {
  LatentCall given(function, std::move(arrays), options, form, false);
  AttentionResult result;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = latent_attention(given.operands, given.call.options, given.form);
  }
  return shown(result, nb::object(), given.call);
}

/// Computes and records the call: returns (results, tape). `needs`: which of latent_attention_inputs need a gradient.
nb::tuple recorded(nb::tuple arrays, nb::handle options, nb::handle form, const std::vector<bool>& needs) {
  LatentCall given(function, std::move(arrays), options, form, true);
  const std::vector<Leaf> leaves = given.leaves();
  if (needs.size() != leaves.size())
    throw ValueError(text("{}: needs has {} entries; the call has {} inputs", function, needs.size(), leaves.size()));
  Tape tape{.inputs = {}, .outputs = {}, .framework = given.call.read.framework()};
  for (std::size_t n = 0; n < leaves.size(); ++n) {
    if (!needs[n]) continue;
    leaves[n].tensor->requires_grad_();
    tape.inputs.push_back(*leaves[n].tensor);
  }
  given.call.join();
  AttentionResult result;
  {
    const Unlocked unlocked;
    result = latent_attention(given.operands, given.call.options, given.form);
  }
  tape.outputs = {result.output, result.weights, result.logsumexp};
  return nb::make_tuple(shown(result, {}, given.call), std::move(tape));
}

nb::list inputs(nb::tuple arrays, nb::handle options, nb::handle form) {
  LatentCall given(function, std::move(arrays), options, form, false);
  nb::list result;
  for (const Leaf& leaf : given.leaves()) result.append(leaf.array);
  return result;
}

}  // namespace

void add_latent(nb::module_& m) {
  m.def("latent_attention", latent, nb::arg("operands"), nb::arg("options"), nb::arg("form").none());
  m.def("latent_attention_recorded", recorded, nb::arg("operands"), nb::arg("options"), nb::arg("form").none(),
        nb::arg("needs"));
  m.def("latent_attention_inputs", inputs, nb::arg("operands"), nb::arg("options"), nb::arg("form").none());
}

}  // namespace attn::python
