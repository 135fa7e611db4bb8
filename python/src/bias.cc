// python/src/bias.cc: binds attn.Bias.
#include <attn/bias.h>
#include <attn/ops.h>

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "scalars.h"
#include "terms.h"

#include <algorithm>

namespace attn::python {
namespace {

constexpr const char* bias_doc =
    R"doc(Terms that are added to the scores before the softmax, in the order given; + joins them.

A term of -inf masks the pair: its key and value are then ignored, even if they are NaN.

    >>> import attn
    >>> attn.Bias.alibi(2) + attn.Bias.alibi([0.5, 0.25], align="top_left")
    attn.Bias.alibi([0.0625, 0.00390625]) + attn.Bias.alibi([0.5, 0.25], align="top_left")

Gradients flow to the arrays that terms are made of. A Bias is immutable; it shares the arrays.)doc";

/// Converts the numbers of a list or tuple to f32.
Tensor numbers(nb::handle list, const Argument& at) {
  std::vector<double> values;
  for (nb::handle each : list) values.push_back(number(each, at));
  return tensor<double>(values).to(Dtype::f32);
}

/// Returns the standard ALiBi slopes. An implausible number of heads is refused before memory is allocated.
Tensor usual_slopes(nb::handle heads, const Argument& at) {
  constexpr std::int64_t most = 1 << 20;
  const std::int64_t count = whole(heads, at);
  if (count > most)
    throw ValueError(text("{}: {} is {}; at most {} heads are possible", at.function, at.name, count, most));
  return Bias::alibi_slopes(count);
}

PyBias alibi(nb::handle slopes, nb::handle at, nb::handle both_ways) {
  constexpr Argument argument{"Bias.alibi", "slopes"};
  const Align rows = align(at, "Bias.alibi");
  const bool symmetric = flag(both_ways, {"Bias.alibi", "symmetric"});
  if (PyLong_Check(slopes.ptr())) return {Bias::alibi(usual_slopes(slopes, argument), rows, symmetric), {nb::none()}};
  if (PyList_Check(slopes.ptr()) || PyTuple_Check(slopes.ptr()))
    return {Bias::alibi(numbers(slopes, argument), rows, symmetric), {nb::none()}};
  return {Bias::alibi(keep(slopes, argument), rows, symmetric), {nb::borrow(slopes)}};
}

PyBias relative(nb::handle table, nb::handle bidirectional, nb::handle max_distance, nb::handle at) {
  constexpr const char* function = "Bias.relative";
  return {Bias::relative(keep(table, {function, "table"}), flag(bidirectional, {function, "bidirectional"}),
                         whole(max_distance, {function, "max_distance"}), align(at, function)),
          {nb::borrow(table)}};
}

PyBias joined(const PyBias& a, const PyBias& b) {
  PyBias sum{a.bias + b.bias, a.arrays};
  sum.arrays.insert(sum.arrays.end(), b.arrays.begin(), b.arrays.end());
  return sum;
}

/// Returns the same terms over other arrays; for None a term keeps its array.
PyBias with_arrays(const PyBias& self, const std::vector<nb::object>& arrays) {
  if (arrays.size() != self.arrays.size())
    throw ValueError(
        text("Bias.with_arrays: {} arrays are given; there are {} terms", arrays.size(), self.arrays.size()));
  PyBias result;
  for (std::size_t n = 0; n < arrays.size(); ++n) {
    const Bias::Term& term = self.bias.terms()[n];
    const bool stays = arrays[n].is_none();
    const Tensor values = stays ? term.values : keep(arrays[n], {"Bias.with_arrays", "an array"});
    result = joined(result, {with_values(term, values), {stays ? self.arrays[n] : arrays[n]}});
  }
  return result;
}

nb::object align_word(Align align) {
  return align == Align::unset ? nb::none()
                               : nb::object(nb::str(align == Align::top_left ? "top_left" : "bottom_right"));
}

nb::tuple reduced_term(const PyBias& self) {
  const Bias::Term& term = self.bias.terms()[0];
  const nb::object& array = self.arrays[0];
  switch (term.kind) {
    case Bias::Kind::alibi:
      return made_again<PyBias>("alibi", array.is_none() ? nb::cast(term.values.to_vector()) : array,
                                align_word(term.align), term.symmetric);
    case Bias::Kind::relative:
      return made_again<PyBias>("relative", array, term.bidirectional, term.max_distance, align_word(term.align));
    default: return made_again<PyBias>("dense", array);
  }
}

/// Reduces a bias of several terms to a sum: the bias of all terms but the last, plus the last one.
nb::tuple reduced(const PyBias& self) {
  if (self.arrays.empty()) return nb::make_tuple(nb::type<PyBias>(), nb::make_tuple());
  if (self.arrays.size() == 1) return reduced_term(self);
  PyBias before;
  for (std::size_t n = 0; n < self.arrays.size(); ++n) {
    const Bias::Term& term = self.bias.terms()[n];
    PyBias one{with_values(term, term.values), {self.arrays[n]}};
    if (n + 1 == self.arrays.size())
      return nb::make_tuple(nb::module_::import_("operator").attr("add"), nb::make_tuple(before, one));
    before = joined(before, one);
  }
  return {};
}

std::string align_text(Align align) {
  return align == Align::unset ? "" : align == Align::top_left ? ", align=\"top_left\"" : ", align=\"bottom_right\"";
}

/// Returns up to 64 f32 numbers of rank 1 as text that can be evaluated again; of others only the dtype and shape.
std::string values_text(const Tensor& x) {
  constexpr std::int64_t few = 64;
  if (x.dim() != 1 || x.dtype() != Dtype::f32 || x.numel() > few)
    return text("{} {}", torch_name_of(x.dtype()), to_string(x.sizes()));
  std::string all;
  for (const double value : x.to_vector()) all += text("{}{}", all.empty() ? "" : ", ", static_cast<float>(value));
  return "[" + all + "]";
}

std::string term_text(const Bias::Term& term) {
  switch (term.kind) {
    case Bias::Kind::dense:
      return text("attn.Bias.dense({})",
                  text("{} {}", torch_name_of(term.values.dtype()), to_string(term.values.sizes())));
    case Bias::Kind::alibi:
      return text("attn.Bias.alibi({}{}{})", values_text(term.values), align_text(term.align),
                  term.symmetric ? ", symmetric=True" : "");
    case Bias::Kind::relative:
      return text("attn.Bias.relative({} {}, bidirectional={}, max_distance={}{})", torch_name_of(term.values.dtype()),
                  to_string(term.values.sizes()), term.bidirectional ? "True" : "False", term.max_distance,
                  align_text(term.align));
  }
  return {};
}

std::string shown(const PyBias& self) {
  std::string all;
  for (const Bias::Term& term : self.bias.terms()) all += (all.empty() ? "" : " + ") + term_text(term);
  return all.empty() ? "attn.Bias()" : all;
}

}  // namespace

Bias with_values(const Bias::Term& term, const Tensor& values) {
  switch (term.kind) {
    case Bias::Kind::alibi: return Bias::alibi(values, term.align, term.symmetric);
    case Bias::Kind::relative: return Bias::relative(values, term.bidirectional, term.max_distance, term.align);
    default: return Bias::dense(values);
  }
}

void add_bias(nb::module_& m) {
  nb::class_<PyBias> c(m, "Bias", bias_doc);
  c.def(nb::init<>())
      .def_static(
          "dense", [](nb::handle x) { return PyBias{Bias::dense(keep(x, {"Bias.dense", "values"})), {nb::borrow(x)}}; },
          nb::arg("values").none(),
          "An array that broadcasts to [B, Hq, Tq, Tk], of the scores' dtype or float32: a float mask.")
      .def_static(
          "alibi", alibi, nb::arg("slopes").none(), nb::arg("align") = nb::none(), nb::arg("symmetric").none() = false,
          "-slopes[h] * (p - key position): slopes [Hq], or the number of heads for the usual ones. Made for causal "
          "masks: keys after the row "
          "gain by their distance, unless symmetric: -slopes[h] * |p - key position|. Source: Press 2021 (2108.12409).")
      .def_static(
          "alibi_slopes",
          [](nb::handle heads) {
            return to_python(usual_slopes(heads, {"Bias.alibi_slopes", "heads"}), Framework::numpy);
          },
          nb::arg("heads").none(),
          "The usual slopes as a NumPy array: 2^(-8 (h + 1) / heads) of a power of two; of other numbers those of the "
          "power of two n below, "
          "then the first, third, fifth ... of 2 n.")
      .def_static(
          "relative", relative, nb::arg("table").none(), nb::arg("bidirectional").none() = true,
          nb::arg("max_distance").none() = 128, nb::arg("align") = nb::none(),
          "table[bucket(key position - p), h], T5's buckets: table [buckets, Hq]. Source: Raffel 2019 (1910.10683).")
      .def("__add__", joined, nb::is_operator())
      .def("__repr__", shown)
      .def("__reduce__", reduced)
      .def("__bool__", [](const PyBias& self) { return !self.bias.empty(); })
      .def_prop_ro(
          "arrays", [](const PyBias& self) { return self.arrays; },
          "What each term was made of; None: numbers that were copied.")
      .def("with_arrays", with_arrays, nb::arg("arrays"), "The same terms over other arrays; None: as they are.");
  c.attr("__module__") = "attn";
}

}  // namespace attn::python
