// python/src/attention.cc: binds attention, scaled_dot_product_attention and attention_scores; it converts their
// arguments and results.
#include <attn/attention_backward.h>
#include <attn/autograd.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "errors.h"
#include "gil.h"
#include "scalars.h"
#include "tape.h"
#include "terms.h"

namespace attn::python {
namespace {

/// Returns the sizes of attention's output: those of q, with the last dim of v.
std::optional<Dims> output_sizes(const Tensor& q, const Tensor& v) {
  if (q.dim() < 2 || v.dim() != q.dim()) return std::nullopt;
  Dims sizes = q.sizes();
  sizes[sizes.size() - 1] = v.sizes().back();
  return sizes;
}

/// Runs the call without gradient history; with `saved` it also fills `*saved` with what a recorded call would keep.
nb::tuple run(Call& call, nb::handle q, AttentionSaved* saved) {
  NewArray output;  // memory of the framework if the output's sizes are known in advance; else the library allocates
  if (!call.out.is_none()) {
    output.array = nb::borrow(call.out);
    output.tensor = call.read.writable(call.out, "out");
  } else if (const auto sizes = output_sizes(call.q, call.v); sizes && saved == nullptr) {
    output = empty_array(call.q, q, *sizes, call.read.framework());
  }
  call.options.out = output.tensor;
  AttentionResult result;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = saved ? attention_forward(call.q, call.k, call.v, call.options, *saved)
                   : attention(call.q, call.k, call.v, call.options);
  }
  return shown(result, output.array, call);
}

nb::tuple attention_of(nb::handle q, nb::handle k, nb::handle v, nb::handle options) {
  Call call("attention", q, k, v, options);
  return run(call, q, nullptr);
}

/// Runs attention and also returns what attention_resumed needs: (results, (output, max, sum, keys)). `output` is None
/// if the output among the results serves; `keys` is None if there are none.
nb::tuple attention_kept(nb::handle q, nb::handle k, nb::handle v, nb::handle options) {
  Call call("attention", q, k, v, options);
  AttentionSaved saved{.output = {}, .max = {}, .sum = {}, .exact = true};
  nb::tuple results = run(call, q, &saved);
  const auto array = [&](const Tensor& x) { return to_python(x, call.read.framework()); };
  if (saved.output.dtype() == call.q.dtype()) saved.output = {};
  return nb::make_tuple(
      results, nb::make_tuple(array(saved.output), array(saved.max), array(saved.sum), array(saved.weight_keys)));
}

/// Makes the inputs that need a gradient require it, and returns them. Their order is q, k, v, sinks, then the arrays
/// of the score, of the bias and of score_mod; those that are not given are left out. `needs`: one flag for each input,
/// or None for all.
std::vector<Tensor> begin_history(Call& call, nb::handle q, nb::handle k, nb::handle v, nb::handle needs) {
  std::vector<Tensor> inputs;
  const std::vector<Leaf> leaves = call.leaves(q, k, v);
  const auto wanted = needs.is_none() ? std::vector<bool>(leaves.size(), true) : nb::cast<std::vector<bool>>(needs);
  if (wanted.size() != leaves.size())
    throw ValueError(text("attention: needs has {} entries; the call has {} inputs", wanted.size(), leaves.size()));
  for (std::size_t n = 0; n < leaves.size(); ++n) {
    if (!wanted[n]) continue;
    leaves[n].tensor->requires_grad_();
    inputs.push_back(*leaves[n].tensor);
  }
  call.join();
  return inputs;
}

/// Runs attention and records the call: returns (results, tape).
nb::tuple attention_recorded(nb::handle q, nb::handle k, nb::handle v, nb::handle options, nb::handle needs) {
  Call call("attention", q, k, v, options, true);
  Tape tape{.inputs = begin_history(call, q, k, v, needs), .outputs = {}, .framework = call.read.framework()};
  AttentionResult result;
  {
    const Unlocked unlocked;
    result = attention(call.q, call.k, call.v, call.options);
  }
  tape.outputs = {result.output, result.weights, result.logsumexp};
  return nb::make_tuple(shown(result, {}, call), std::move(tape));
}

/// Returns the tape of a call that attention_kept ran. The options must hold the dropout seed that the call returned.
Tape attention_resumed(nb::handle q, nb::handle k, nb::handle v, nb::handle options, nb::handle needs, nb::tuple kept) {
  constexpr const char* function = "attention_resumed";
  Call call("attention", q, k, v, options, true);
  if (nb::len(kept) != 4) throw type_error("{}: kept are four", function);
  Tape tape{.inputs = begin_history(call, q, k, v, needs), .outputs = {}, .framework = call.read.framework()};
  AttentionSaved saved{.output = keep(kept[0], {function, "output"}),
                       .max = keep(kept[1], {function, "max"}),
                       .sum = keep(kept[2], {function, "sum"}),
                       .dropout_seed = call.options.dropout_seed.value_or(0),
                       .exact = true};
  if (const nb::object keys = kept[3]; !keys.is_none()) saved.weight_keys = keep(keys, {function, "keys"});
  AttentionResult result;
  {
    const Unlocked unlocked;
    result = attn::attention_recorded(call.q, call.k, call.v, call.options, saved);
  }
  tape.outputs = {result.output, result.weights, result.logsumexp};
  return tape;
}

/// Returns the arrays of a call that can have gradients, in the order of `needs`.
nb::list inputs_of(nb::handle q, nb::handle k, nb::handle v, nb::handle options) {
  Call call("attention", q, k, v, options);
  nb::list arrays;
  for (const Leaf& leaf : call.leaves(q, k, v)) arrays.append(leaf.array);
  return arrays;
}

nb::object scores_of(nb::handle q, nb::handle k, nb::handle score, nb::handle scale) {
  Reader read("attention_scores");
  const Tensor query = read(q, "q"), key = read(k, "k");
  AttentionOptions options;
  if (!score.is_none()) options.score = score_of(score, read.function()).score;
  if (!scale.is_none()) options.scale = number(scale, {read.function(), "scale"});
  Tensor scores;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    scores = attention_scores(query, key, options);
  }
  return to_python(scores, read.framework());
}

nb::object sdpa(nb::handle query, nb::handle key, nb::handle value, nb::handle attn_mask, nb::handle dropout_p,
                nb::handle is_causal, nb::handle scale, nb::handle enable_gqa) {
  constexpr const char* function = "scaled_dot_product_attention";
  Reader read(function);
  const Tensor q = read(query, "query"), k = read(key, "key"), v = read(value, "value");
  SdpaOptions options;
  options.attn_mask = read.optional(attn_mask, "attn_mask");
  options.dropout_p = number(dropout_p, {function, "dropout_p"});
  options.is_causal = flag(is_causal, {function, "is_causal"});
  if (!scale.is_none()) options.scale = number(scale, {function, "scale"});
  options.enable_gqa = flag(enable_gqa, {function, "enable_gqa"});
  NewArray output;
  const auto sizes = output_sizes(q, v);
  if (sizes && k.dim() == q.dim()) output = empty_array(q, query, *sizes, read.framework());
  options.out = output.tensor;
  Tensor result;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    result = scaled_dot_product_attention(q, k, v, options);
  }
  if (output.array.is_valid() && result.data() == output.tensor.data()) return output.array;
  return to_python(result, read.framework());
}

nb::list steps_of(const PyPlan& self) {
  nb::list steps;
  for (const PlanStep& step : self.steps()) steps.append(nb::make_tuple(step.kernel, step.taken, step.reason));
  return steps;
}

}  // namespace

void add_attention(nb::module_& m) {
  nb::class_<PyPlan> plan(m, "Plan", nb::is_weak_referenceable(),
                          "Which kernel ran, and why not the others: kernel, and steps of (kernel, taken, reason).");
  plan.attr("__module__") = "attn";
  plan.def_prop_ro("kernel",
                   [](const PyPlan& self) {
                     const std::vector<PlanStep> steps = self.steps();
                     return steps.empty() ? std::string() : steps.back().kernel;
                   })
      .def_prop_ro("steps", steps_of)
      .def("__getstate__", steps_of)
      .def("__setstate__",
           [](PyPlan& self, const std::vector<std::tuple<std::string, bool, std::string>>& steps) {
             new (&self) PyPlan();
             for (const auto& [kernel, taken, reason] : steps) self.told.push_back({kernel, taken, reason});
           })
      .def("__repr__", [](const PyPlan& self) {
        std::string all;
        for (const PlanStep& step : self.steps())
          all += text("{}{}: {}", all.empty() ? "" : "; ", step.kernel, step.reason);
        return text("attn.Plan({})", all.empty() ? "no kernel" : all);
      });
  m.attr("attention_options") = option_names();
  m.def("attention", attention_of, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none());
  m.def("attention_recorded", attention_recorded, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none(), nb::arg("needs") = nb::none());
  m.def("attention_kept", attention_kept, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none());
  m.def("attention_resumed", attention_resumed, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none(), nb::arg("needs").none(), nb::arg("kept"));
  m.def("attention_inputs", inputs_of, nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none());
  m.def("attention_scores", scores_of, nb::arg("q").none(), nb::arg("k").none(), nb::arg("score") = nb::none(),
        nb::arg("scale") = nb::none());
  m.def("scaled_dot_product_attention", sdpa, nb::arg("query").none(), nb::arg("key").none(), nb::arg("value").none(),
        nb::arg("attn_mask") = nb::none(), nb::arg("dropout_p").none() = 0.0, nb::arg("is_causal").none() = false,
        nb::arg("scale") = nb::none(), nb::arg("enable_gqa").none() = false);
}

}  // namespace attn::python
