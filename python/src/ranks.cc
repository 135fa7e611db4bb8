// python/src/ranks.cc: binds the ranks of a job and attention on them; attn.mpi is built on it.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/rank_attention.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "call.h"
#include "errors.h"
#include "gil.h"
#include "scalars.h"

#include <cstring>
#include <exception>
#include <optional>

namespace attn::python {
namespace {

constexpr const char* attention_name = "mpi.attention";
constexpr const char* backward_name = "mpi.attention_backward";

/// Calls `work` at every rank; the error of one of them, a Python error too, is raised at all.
template <typename Work>
void at_every_rank(const Ranks& ranks, const Work& work) {
  std::exception_ptr failure;
  try {
    work();
  } catch (const nb::python_error& error) {
    if (ranks.size() == 1) throw;
    failure = std::make_exception_ptr(Error(nb::cast<std::string>(nb::str(error.value()))));
  } catch (...) { failure = std::current_exception(); }
  const Unlocked unlocked;
  ranks.agree(failure);
}

RankLayout layout_of(nb::handle x, const char* function) {
  return choice(x, {function, "layout"}, {"heads", "stripes"}) == 0 ? RankLayout::heads : RankLayout::stripes;
}

/// Returns the number of rows of all ranks; `own`: of this one. Collective.
std::int64_t rows_of_all(const Ranks& ranks, std::int64_t own) {
  std::int64_t total = 0;
  for (const std::string& each : ranks.gather({reinterpret_cast<const char*>(&own), sizeof own})) {
    std::int64_t rows = 0;
    std::memcpy(&rows, each.data(), sizeof rows);
    total += rows;
  }
  return total;
}

/// A call on ranks, as it is read from Python.
struct RankCall {
  std::optional<Call> call;
  RankLayout layout = RankLayout::heads;
  std::int64_t length = 0;

  /// Reads the arguments. Collective. `more` reads what else the call needs.
  template <typename More>
  RankCall(const Ranks& ranks, const char* function, nb::handle q, nb::handle k, nb::handle v, nb::handle options,
           nb::handle layout_name, nb::handle rows, const More& more) {
    at_every_rank(ranks, [&] {
      call.emplace(function, q, k, v, options);
      if (call->q.dim() != 4)
        throw ShapeError(
            text("{}: q has shape {}; it must be [B, H, rows of this rank, D]", function, to_string(call->q.sizes())));
      layout = layout_of(layout_name, function);
      if (!rows.is_none()) length = whole(rows, {function, "length"});
      more(*call);
    });
    const Unlocked unlocked;
    const AttentionOptions& o = call->options;  // what decides which messages follow
    ranks.same(function,
               text("layout {}, length {}, dropout_p {:.17g}{}", layout == RankLayout::heads ? "heads" : "stripes",
                    rows.is_none() ? std::string("not given") : std::to_string(length), o.dropout_p,
                    o.dropout_seed ? text(", dropout_seed {}", *o.dropout_seed) : std::string()));
    if (rows.is_none()) length = rows_of_all(ranks, call->q.size(2));
  }
};

/// Draws a dropout seed as attention does. Every rank draws, so that generators stay alike.
std::uint64_t draw_seed(double p) {
  if (p == 1) return 0;  // every weight is dropped
  const std::lock_guard lock(default_generator_mutex());
  return default_generator().u64();
}

/// Returns (results, kept): the results as attention has them, and with `saves` (output, max, sum) for the backward
/// pass; `output` is None if the output among the results serves. `drawn`: the dropout seed that this rank has drawn,
/// or None; that of rank 0 is used.
nb::tuple attention_of(const Ranks& ranks, nb::handle q, nb::handle k, nb::handle v, nb::handle options,
                       nb::handle layout, nb::handle length, bool saves, nb::handle drawn) {
  std::optional<std::uint64_t> seed_here;
  RankCall read(ranks, attention_name, q, k, v, options, layout, length, [&](Call& call) {
    if (!call.out.is_none()) call.options.out = call.read.writable(call.out, "out");
    if (!drawn.is_none()) seed_here = seed(drawn, {attention_name, "the seed"});
  });
  Call& call = *read.call;
  AttentionSaved saved{.output = {}, .max = {}, .sum = {}, .exact = true};
  AttentionResult result;
  {
    const Unlocked unlocked;
    const NoGrad unrecorded;
    if (call.options.dropout_p > 0 && !call.options.dropout_seed) {
      const std::uint64_t own = seed_here ? *seed_here : draw_seed(call.options.dropout_p);
      const std::string first = ranks.from_first({reinterpret_cast<const char*>(&own), sizeof own});
      std::memcpy(&call.options.dropout_seed.emplace(), first.data(), sizeof own);
    }
    result = saves
                 ? rank_attention_forward(call.q, call.k, call.v, read.length, read.layout, ranks, call.options, saved)
                 : rank_attention(call.q, call.k, call.v, read.length, read.layout, ranks, call.options);
  }
  const nb::object output = call.out.is_none() ? nb::object() : nb::borrow(call.out);
  const nb::tuple results = shown(result, output, call);
  if (!saves) return nb::make_tuple(results, nb::none());
  const auto array = [&](const Tensor& x) { return to_python(x, call.read.framework()); };
  if (saved.output.dtype() == call.q.dtype()) saved.output = {};
  return nb::make_tuple(results, nb::make_tuple(array(saved.output), array(saved.max), array(saved.sum)));
}

/// The inputs of a call that can have gradients, in the order of Call::leaves.
struct Wanted {
  std::vector<bool> needs;
  std::vector<Leaf> leaves;
  std::size_t scores = 0;  // arrays of the score

  Wanted(Call& call, nb::handle q, nb::handle k, nb::handle v, nb::handle given)
      : leaves(call.leaves(q, k, v)), scores(call.score.arrays.size()) {
    needs = given.is_none() ? std::vector<bool>(leaves.size(), true) : nb::cast<std::vector<bool>>(given);
    if (needs.size() != leaves.size())
      throw ValueError(
          text("{}: needs has {} entries; the call has {} inputs", backward_name, needs.size(), leaves.size()));
  }
};

/// Returns the gradient of each input that is needed, else None. `kept`: output, max and sum. `needs`: a flag for each
/// input, in the order of attention_inputs.
nb::list backward_of(const Ranks& ranks, nb::handle q, nb::handle k, nb::handle v, nb::handle options,
                     nb::handle layout, nb::handle length, nb::tuple kept, nb::handle grad_output,
                     nb::handle grad_logsumexp, nb::handle needs) {
  AttentionSaved saved;
  AttentionBackwardOptions wanted;
  std::optional<Wanted> inputs;
  RankCall read(ranks, backward_name, q, k, v, options, layout, length, [&](Call& call) {
    if (nb::len(kept) != 3) throw type_error("{}: kept are three", backward_name);
    saved = {.output = call.read(kept[0], "output"),
             .max = call.read(kept[1], "max"),
             .sum = call.read(kept[2], "sum"),
             .dropout_seed = call.options.dropout_seed.value_or(0),
             .exact = true};
    wanted.grad_output = call.read(grad_output, "grad_output");
    wanted.grad_logsumexp = call.read.optional(grad_logsumexp, "grad_logsumexp");
    inputs.emplace(call, q, k, v, needs);
    const std::vector<bool>& need = inputs->needs;
    wanted.k = need[1], wanted.v = need[2];
    std::size_t at = 3;
    wanted.sinks = call.options.sinks.defined() && need[at++];
    for (std::size_t n = 0; n < inputs->scores; ++n)
      if (need[at++])
        throw ValueError(text("{}: an array of the score needs a gradient, which ranks do not compute", backward_name));
    wanted.bias = wanted.score_mod = false;
    for (const nb::object& array : call.bias.arrays)
      if (!array.is_none() && need[at++]) wanted.bias = true;
    while (at < need.size())
      if (need[at++]) wanted.score_mod = true;
  });
  Call& call = *read.call;
  AttentionGradients gradients;
  {
    const Unlocked unlocked;
    gradients =
        rank_attention_backward(call.q, call.k, call.v, read.length, read.layout, ranks, call.options, saved, wanted);
  }
  std::vector<Tensor> all{gradients.q, gradients.k, gradients.v};
  if (call.options.sinks.defined()) all.push_back(gradients.sinks);
  all.resize(all.size() + inputs->scores);
  for (std::size_t n = 0; n < call.bias.arrays.size(); ++n)
    if (!call.bias.arrays[n].is_none()) all.push_back(gradients.bias.empty() ? Tensor() : gradients.bias[n]);
  for (std::size_t n = all.size(); n < inputs->leaves.size(); ++n) {
    Tensor found;
    for (const auto& [values, gradient] : gradients.score_mod)
      if (values.impl() == inputs->leaves[n].tensor->impl()) found = gradient;
    all.push_back(found);
  }
  nb::list result;
  for (std::size_t n = 0; n < all.size(); ++n)
    result.append(inputs->needs[n] && all[n].defined() ? to_python(all[n], call.read.framework()) : nb::none());
  return result;
}

nb::object rows_of(const Ranks& ranks, nb::handle length, nb::handle layout) {
  constexpr const char* function = "mpi.Ranks.rows";
  const std::int64_t rows = whole(length, {function, "length"});
  if (rows < 0) throw ValueError(text("{}: length is {}; it must be at least 0", function, rows));
  const std::vector<std::int64_t> mine = rank_rows(ranks, layout_of(layout, function), rows);
  return to_python(tensor<std::int64_t>(mine, {static_cast<std::int64_t>(mine.size())}), Framework::numpy);
}

}  // namespace

void add_ranks(nb::module_& m) {
  nb::class_<MpiLibrary>(m, "MpiLibrary")
      .def(nb::init<const std::vector<std::string>&, const std::string&>(), nb::arg("files"), nb::arg("version"));
  nb::class_<Ranks>(m, "Ranks")
      .def(
          "__init__",
          [](Ranks* self, const MpiLibrary* library, int communicator) {
            const Unlocked unlocked;
            library == nullptr ? new (self) Ranks() : new (self) Ranks(library->open(communicator));
          },
          nb::arg("library").none() = nb::none(), nb::arg("communicator") = 0)
      .def_prop_ro("rank", &Ranks::rank)
      .def_prop_ro("size", &Ranks::size)
      .def("set_timeout", &Ranks::set_timeout, nb::arg("seconds"))
      .def(
          "agree",
          [](const Ranks& self, const std::string& error) {
            const Unlocked unlocked;
            self.agree(error.empty() ? nullptr : std::make_exception_ptr(Error(error)));
          },
          nb::arg("error"))
      .def("rows", rows_of, nb::arg("length").none(), nb::arg("layout").none());
  m.def("rank_attention", attention_of, nb::arg("ranks"), nb::arg("q").none(), nb::arg("k").none(), nb::arg("v").none(),
        nb::arg("options").none(), nb::arg("layout").none(), nb::arg("length").none(), nb::arg("saves"),
        nb::arg("drawn").none());
  m.def("rank_attention_backward", backward_of, nb::arg("ranks"), nb::arg("q").none(), nb::arg("k").none(),
        nb::arg("v").none(), nb::arg("options").none(), nb::arg("layout").none(), nb::arg("length").none(),
        nb::arg("kept"), nb::arg("grad_output").none(), nb::arg("grad_logsumexp").none(), nb::arg("needs").none());
}

}  // namespace attn::python
