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

PyBias relative_product(nb::handle table, nb::handle at_index, nb::handle operand, nb::handle of_keys, nb::handle scale,
                        nb::handle at) {
  constexpr const char* function = "Bias.relative_product";
  const RelativeIndex* const index = as<RelativeIndex>(at_index);
  if (index == nullptr)
    throw type_error("{}: index is a {}; an attn.RelativeIndex is needed", function, name_of_type(at_index));
  RelativeProductOptions options{.of_keys = flag(of_keys, {function, "of_keys"}), .align = align(at, function)};
  if (!operand.is_none()) options.operand = keep(operand, {function, "operand"});
  if (!scale.is_none()) options.scale = number(scale, {function, "scale"});
  PyBias bias{Bias::relative_product(keep(table, {function, "table"}), *index, options), {nb::borrow(table)}};
  if (!operand.is_none()) bias.arrays.push_back(nb::borrow(operand));
  return bias;
}

/// Returns the same terms over other arrays; for None a term keeps its array.
PyBias with_arrays(const PyBias& self, const std::vector<nb::object>& arrays) {
  if (arrays.size() != self.arrays.size())
    throw ValueError(text("Bias.with_arrays: {} arrays are given; there are {}", arrays.size(), self.arrays.size()));
  PyBias result;
  std::size_t n = 0;
  for (const Bias::Term& term : self.bias.terms()) {
    std::vector<nb::object> own;
    const auto next = [&](const Tensor& x) {
      if (!x.defined()) return x;
      const bool stays = arrays[n].is_none();
      own.push_back(stays ? self.arrays[n] : arrays[n]);
      const Tensor values = stays ? x : keep(arrays[n], {"Bias.with_arrays", "an array"});
      ++n;
      return values;
    };
    const Tensor values = next(term.values), operand = next(term.operand);
    result = joined(result, {with_values(term, values, operand), own});
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
    case Bias::Kind::product:
      return made_again<PyBias>("relative_product", array, term.index,
                                term.operand.defined() ? self.arrays[1] : nb::object(nb::none()), term.of_keys,
                                term.scale ? nb::object(nb::float_(*term.scale)) : nb::object(nb::none()),
                                align_word(term.align));
    default: return made_again<PyBias>("dense", array);
  }
}

/// Reduces a bias of several terms to a sum: the bias of all terms but the last, plus the last one.
nb::tuple reduced(const PyBias& self) {
  if (self.arrays.empty()) return nb::make_tuple(nb::type<PyBias>(), nb::make_tuple());
  const std::vector<Bias::Term>& terms = self.bias.terms();
  if (terms.size() == 1) return reduced_term(self);
  PyBias before;
  auto array = self.arrays.begin();
  for (std::size_t n = 0; n < terms.size(); ++n) {
    PyBias one{with_values(terms[n], terms[n].values, terms[n].operand), {*array++}};
    if (terms[n].operand.defined()) one.arrays.push_back(*array++);
    if (n + 1 == terms.size())
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
    case Bias::Kind::product: {
      const auto array = [](const Tensor& x) { return text("{} {}", torch_name_of(x.dtype()), to_string(x.sizes())); };
      return text("attn.Bias.relative_product({}, attn.RelativeIndex.{}{}{}{}{})", array(term.values),
                  term.index.to_string(), term.operand.defined() ? ", operand=" + array(term.operand) : std::string(),
                  term.of_keys ? ", of_keys=True" : "", term.scale ? text(", scale={}", *term.scale) : std::string(),
                  align_text(term.align));
    }
  }
  return {};
}

std::string shown(const PyBias& self) {
  std::string all;
  for (const Bias::Term& term : self.bias.terms()) all += (all.empty() ? "" : " + ") + term_text(term);
  return all.empty() ? "attn.Bias()" : all;
}

}  // namespace

Bias with_values(const Bias::Term& term, const Tensor& values, const Tensor& operand) {
  switch (term.kind) {
    case Bias::Kind::product: return Bias::with_tensors(term, values, operand);
    case Bias::Kind::alibi: return Bias::alibi(values, term.align, term.symmetric);
    case Bias::Kind::relative: return Bias::relative(values, term.bidirectional, term.max_distance, term.align);
    default: return Bias::dense(values);
  }
}

namespace {

void add_relative_index(nb::module_& m) {
  nb::class_<RelativeIndex> c(m, "RelativeIndex",
                              R"doc(Which row of a table belongs to a query row and a key, by their positions.

    >>> import attn
    >>> attn.RelativeIndex.distance(2, 2).rows
    5)doc");
  const auto size = [](nb::handle x, const char* function, const char* name) { return whole(x, {function, name}); };
  const auto of_two = [size](RelativeIndex (*make)(std::int64_t, std::int64_t), const char* function, const char* first,
                             const char* second) {
    return [=](nb::handle x, nb::handle y) { return make(size(x, function, first), size(y, function, second)); };
  };
  c.def_static(
       "distance", of_two(&RelativeIndex::distance, "RelativeIndex.distance", "before", "after"),
       nb::arg("before").none(), nb::arg("after").none(),
       "Key position minus row position, limited to [-before, after], plus before: a table of before + after + 1 rows. "
       "Shaw 2018 (1803.02155), Transformer-XL (1901.02860), Conformer (2005.08100).")
      .def_static("log_buckets",
                  of_two(&RelativeIndex::log_buckets, "RelativeIndex.log_buckets", "buckets", "max_position"),
                  nb::arg("buckets").none(), nb::arg("max_position").none(),
                  "Row position minus key position in DeBERTa's buckets (2006.03654): a table of 2 buckets rows.")
      .def_static(
          "picture_rows", of_two(&RelativeIndex::picture_rows, "RelativeIndex.picture_rows", "height", "width"),
          nb::arg("height").none(), nb::arg("width").none(),
          "Positions are pixels, row by row: the row of the query's pixel minus that of the key's, plus height - 1. A "
          "table of 2 height - 1 rows. Positions outside the picture are refused. MViTv2 (2112.01526), SAM "
          "(2304.02643).")
      .def_static(
          "picture_columns",
          [size](nb::handle width) {
            return RelativeIndex::picture_columns(size(width, "RelativeIndex.picture_columns", "width"));
          },
          nb::arg("width").none(), "The same for columns: a table of 2 width - 1 rows.")
      .def("reversed", &RelativeIndex::reversed, "The same index into a table whose rows are in the opposite order.")
      .def_prop_ro("rows", &RelativeIndex::rows, "The rows of the table.")
      .def("__repr__", [](const RelativeIndex& self) { return "attn.RelativeIndex." + self.to_string(); })
      .def("__reduce__", [](const RelativeIndex& self) {
        return nb::make_tuple(nb::module_::import_("attn._copies").attr("relative_index"),
                              nb::make_tuple(self.to_string()));
      });
  c.attr("__module__") = "attn";
}

}  // namespace

void add_bias(nb::module_& m) {
  add_relative_index(m);
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
      .def_static(
          "relative_product", relative_product, nb::arg("table").none(), nb::arg("index").none(),
          nb::arg("operand") = nb::none(), nb::arg("of_keys").none() = false, nb::arg("scale") = nb::none(),
          nb::arg("align") = nb::none(),
          "A second product, made a query tile at a time: scale * x . table[h, index(p, key position)], x the row of q "
          "or, with of_keys, of k; or that of `operand`, [B, Hq, Tq, D'] or [B, Hk, Tk, D']. table [Hq, N, D'] or "
          "[N, D'], N = index.rows. scale=None: that of the scores.")
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
