// python/src/jvp.cc: binds forward mode: attention with the tangents of its results.
#include <attn/attention_jvp.h>
#include <attn/autograd.h>
#include <attn/ops.h>

#include "call.h"
#include "errors.h"
#include "gil.h"
#include "passes.h"
#include "terms.h"

#include <algorithm>

namespace attn::python {
namespace {

/// Reads tangents in the order of Call::leaves(); None: the operand does not move.
AttentionTangents direction(Call& call, nb::list given) {
  const char* const function = call.read.function();
  AttentionTangents tangents;
  Tensor* const rows[] = {&tangents.q, &tangents.k, &tangents.v};
  const char* const names[] = {"the tangent of q", "the tangent of k", "the tangent of v"};
  std::size_t at = 0;
  const auto next = [&](const char* name) {
    if (at >= nb::len(given)) throw ValueError(text("{}: {} tangents are given; more are needed", function, at));
    const nb::handle x = given[at++];
    return x.is_none() ? Tensor() : call.read(x, name);
  };
  for (int n = 0; n < 3; ++n) *rows[n] = next(names[n]);
  if (call.options.sinks.defined()) tangents.sinks = next("the tangent of sinks");
  for (std::size_t n = 0; n < call.score.arrays.size(); ++n) next("the tangent of score");
  tangents.bias.resize(call.bias.arrays.size());
  for (std::size_t n = 0; n < call.bias.arrays.size(); ++n)
    if (!call.bias.arrays[n].is_none()) tangents.bias[n] = next("the tangent of bias");
  for (; at < nb::len(given);)
    if (next("a tangent of score_mod").defined())
      throw ValueError(
          text("{}: an array of score_mod has a tangent, which is not there; q, k, v, bias and sinks have "
               "one",
               function));
  return tangents;
}

/// Reads the tangents of q, k, v, sinks and bias; that of bias may be a list with one for each of its terms.
AttentionTangents named(Call& call, const nb::tuple& given) {
  AttentionTangents tangents{.q = call.read.optional(given[0], "q_tangent"),
                             .k = call.read.optional(given[1], "k_tangent"),
                             .v = call.read.optional(given[2], "v_tangent"),
                             .sinks = call.read.optional(given[3], "sinks_tangent"),
                             .bias = {}};
  const nb::object bias = given[4];
  if (PyList_Check(bias.ptr()) || PyTuple_Check(bias.ptr()))
    for (const nb::handle x : bias) tangents.bias.push_back(call.read.optional(x, "bias_tangent"));
  else if (!bias.is_none()) tangents.bias.push_back(call.read(bias, "bias_tangent"));
  return tangents;
}

/// Returns (output, its tangent, logsumexp, its tangent). `tangents`: a list with one for each array of
/// attention_inputs, or a tuple of those of q, k, v, sinks and bias; None: the operand does not move.
nb::tuple jvp(nb::handle q, nb::handle k, nb::handle v, nb::handle options, nb::handle tangents) {
  Call call("attention_jvp", q, k, v, options);
  AttentionTangents along;
  if (PyList_Check(tangents.ptr())) along = direction(call, nb::cast<nb::list>(tangents));
  else if (PyTuple_Check(tangents.ptr()) && nb::len(tangents) == 5) along = named(call, nb::cast<nb::tuple>(tangents));
  else throw type_error("{}: tangents are a list, or a tuple of five", call.read.function());
  AttentionJvp result;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = attention_jvp(call.q, call.k, call.v, along, call.options);
  }
  const auto shown = [&](const Tensor& x) { return to_python(x, call.read.framework()); };
  return nb::make_tuple(shown(result.output), shown(result.tangent.output), shown(result.logsumexp),
                        shown(result.tangent.logsumexp));
}

/// Reads the tangents of q, k, v, bias and sinks of a pass (passes.cc); None: the operand does not move.
AttentionTangents of_pass(Pass& pass, const nb::tuple& tangents) {
  if (nb::len(tangents) != 5) throw type_error("{}: tangents are five", pass.read.function());
  AttentionTangents along{.q = pass.read.optional(tangents[0], "the tangent of q"),
                          .k = pass.read.optional(tangents[1], "the tangent of k"),
                          .v = pass.read.optional(tangents[2], "the tangent of v"),
                          .sinks = pass.read.optional(tangents[4], "the tangent of sinks"),
                          .bias = {}};
  if (const Tensor bias = pass.read.optional(tangents[3], "the tangent of bias"); bias.defined())
    along.bias.push_back(bias);
  return along;
}

/// Reads (output, max, sum), which a pass saved.
AttentionSaved saved_by(Pass& pass, const nb::tuple& saved) {
  if (nb::len(saved) != 3) throw type_error("{}: saved are three", pass.read.function());
  return {.output = pass.read(saved[0], "output"),
          .max = pass.read(saved[1], "max"),
          .sum = pass.read(saved[2], "sum"),
          .dropout_seed = pass.options.dropout_seed.value_or(0)};
}

/// Returns the tangent of the output of a pass, from the (output, max, sum) that it saved. `tangents`: those of q, k,
/// v, bias and sinks, or None.
nb::object tangent_of_pass(nb::tuple operands, nb::tuple numbers, nb::tuple saved, nb::tuple tangents) {
  Pass pass("attention_jvp", operands, numbers);
  const AttentionTangents along = of_pass(pass, tangents);
  const AttentionSaved rows = saved_by(pass, saved);
  Tensor tangent;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    const bool half = pass.q.dtype() == Dtype::bf16 || pass.q.dtype() == Dtype::f16;
    tangent = half ? attention_jvp(pass.q, pass.k, pass.v, along, pass.options).tangent.output
                   : attention_tangent(pass.q, pass.k, pass.v, pass.options, rows, along).output;
  }
  return to_python(tangent, pass.read.framework());
}

/// Returns the tangents of the gradients of q, k, v, bias and sinks of a pass (None for those that are not requested),
/// from the (output, max, sum) that it saved. `tangents`: those of q, k, v, bias and sinks, or None. `flow`:
/// grad_output and its tangent, or None. `wanted`: flags for bias and sinks.
nb::tuple gradient_tangent_of_pass(nb::tuple operands, nb::tuple numbers, nb::tuple saved, nb::tuple tangents,
                                   nb::tuple flow, nb::tuple wanted) {
  Pass pass("attention_backward", operands, numbers);
  if (nb::len(flow) != 2 || nb::len(wanted) != 2)
    throw type_error("{}: flow are two, wanted two", pass.read.function());
  const AttentionTangents along = of_pass(pass, tangents);
  const AttentionSaved rows = saved_by(pass, saved);
  AttentionBackwardOptions options;
  options.grad_output = pass.read(flow[0], "grad_output");
  const AttentionFlowTangents moves{.grad_output = pass.read.optional(flow[1], "the tangent of grad_output")};
  options.bias = flag(wanted[0], {pass.read.function(), "wanted"});
  options.sinks = flag(wanted[1], {pass.read.function(), "wanted"});
  AttentionGradients found;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    found = attention_backward_tangent(pass.q, pass.k, pass.v, pass.options, rows, options, along, moves);
  }
  const auto shown = [&](const Tensor& x) { return to_python(x, pass.read.framework()); };
  return nb::make_tuple(shown(found.q), shown(found.k), shown(found.v),
                        shown(found.bias.empty() ? Tensor() : found.bias[0]),
                        shown(options.sinks ? found.sinks : Tensor()));
}

/// Whether the fused passes have the second derivatives of a call with these options.
bool has_second(const AttentionOptions& options) {
  const bool dot = options.score.kind == Score::Kind::scaled_dot || options.score.kind == Score::Kind::dot;
  const bool softmax = options.normalizer.kind == Normalizer::Kind::softmax && options.weight_mod.empty();
  const bool products = std::any_of(options.bias.terms().begin(), options.bias.terms().end(),
                                    [](const Bias::Term& term) { return term.kind == Bias::Kind::product; });
  return dot && softmax && !products && options.score_mod.empty() && !options.cu_seqlens_q.defined() &&
         options.weights == Weights::none;
}

/// Returns (tangent of the output, of the logsumexp, [tangents of the gradients of attention_inputs]) of a call, or
/// None where the fused passes do not have them. `grads`: (grad_output, grad_logsumexp), of which one may be None.
/// `tangents`: a list with one for each array of attention_inputs.
nb::object second(nb::handle q, nb::handle k, nb::handle v, nb::handle options, nb::tuple grads, nb::list tangents) {
  Call call("attention", q, k, v, options);
  if (!has_second(call.options)) return nb::none();
  call.options.out = {};
  const AttentionTangents along = direction(call, tangents);
  AttentionBackwardOptions flow;
  flow.grad_output = call.read.optional(grads[0], "grad_output");
  flow.grad_logsumexp = call.read.optional(grads[1], "grad_logsumexp");
  AttentionResultTangents results;
  AttentionGradients found;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    AttentionSaved saved;
    const AttentionResult forward = attention_forward(call.q, call.k, call.v, call.options, saved);
    if (!flow.grad_output.defined()) flow.grad_output = zeros_like(forward.output);
    found = attention_backward_tangent(call.q, call.k, call.v, call.options, saved, flow, along);
    const bool half = forward.output.dtype() == Dtype::bf16 || forward.output.dtype() == Dtype::f16;
    AttentionOptions same = call.options;
    if (call.options.dropout_p > 0) same.dropout_seed = forward.dropout_seed;
    results = half ? attention_jvp(call.q, call.k, call.v, along, same).tangent
                   : attention_tangent(call.q, call.k, call.v, same, saved, along);
  }
  const auto shown = [&](const Tensor& x) { return to_python(x, call.read.framework()); };
  nb::list gradients;
  const auto as = [&](const Tensor& x, const Tensor& like) { return shown(x.reshape(like.sizes())); };
  gradients.append(as(found.q, call.q)), gradients.append(as(found.k, call.k)), gradients.append(as(found.v, call.v));
  if (call.options.sinks.defined()) gradients.append(shown(found.sinks));
  for (std::size_t n = 0; n < call.bias.arrays.size(); ++n)
    if (!call.bias.arrays[n].is_none()) gradients.append(shown(found.bias[n]));
  return nb::make_tuple(shown(results.output), shown(results.logsumexp), gradients);
}

}  // namespace

void add_jvp(nb::module_& m) {
  m.def("attention_jvp", jvp, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(), nb::arg("options").none(),
        nb::arg("tangents"));
  m.def("attention_tangent", tangent_of_pass, nb::arg("operands"), nb::arg("numbers"), nb::arg("saved"),
        nb::arg("tangents"));
  m.def("attention_backward_tangent", gradient_tangent_of_pass, nb::arg("operands"), nb::arg("numbers"),
        nb::arg("saved"), nb::arg("tangents"), nb::arg("flow"), nb::arg("wanted"));
  m.def("attention_second", second, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none(), nb::arg("grads"), nb::arg("tangents"));
}

}  // namespace attn::python
