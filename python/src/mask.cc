// python/src/mask.cc: attn.Mask.
#include <attn/mask.h>

#include <nanobind/operators.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

/// Lengths of a call from keywords, each None or integers [B].
Lengths lengths_of(const char* function, nb::handle query_lengths, nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
  Lengths lengths;
  lengths.query_lengths = query_lengths.is_none() ? Tensor() : keep(query_lengths, {function, "query_lengths"});
  lengths.key_lengths = key_lengths.is_none() ? Tensor() : keep(key_lengths, {function, "key_lengths"});
  lengths.key_start = key_start.is_none() ? Tensor() : keep(key_start, {function, "key_start"});
  lengths.query_start = query_start.is_none() ? Tensor() : keep(query_start, {function, "query_start"});
  return lengths;
}

Mask prefix(nb::handle n) {
  if (nb::hasattr(n, "__dlpack__") && nb::cast<int>(n.attr("ndim")) > 0) return Mask::prefix(keep(n, {"Mask.prefix", "n"}));
  return Mask::prefix(whole(n, {"Mask.prefix", "n"}));
}

Mask documents(nb::handle ids, nb::handle key_ids) {
  const Tensor rows = keep(ids, {"Mask.documents", "ids"});
  return key_ids.is_none() ? Mask::documents(rows) : Mask::documents(rows, keep(key_ids, {"Mask.documents", "key_ids"}));
}

}  // namespace

void add_mask(nb::module_& m) {
  nb::class_<Mask>(m, "Mask")
      .def("__init__", [](Mask* self, nb::handle text) { new (self) Mask(text.is_none() ? Mask() : Mask::parse(word(text, {"Mask", "text"}))); }, nb::arg("text") = nb::none())
      .def_static("parse", [](nb::handle text) { return Mask::parse(word(text, {"Mask.parse", "text"})); }, nb::arg("text").none())
      .def_static("causal", [](nb::handle at) { return Mask::causal(align(at, "Mask.causal")); }, nb::arg("align") = nb::none())
      .def_static("window",
                  [](nb::handle left, nb::handle right, nb::handle at) {
                    return Mask::window(whole(left, {"Mask.window", "left"}), whole(right, {"Mask.window", "right"}), align(at, "Mask.window"));
                  },
                  nb::arg("left").none(), nb::arg("right").none(), nb::arg("align") = nb::none())
      .def_static("prefix", prefix, nb::arg("n").none())
      .def_static("documents", documents, nb::arg("ids").none(), nb::arg("key_ids") = nb::none())
      .def_static("attend", [](nb::handle x) { return Mask::attend(keep(x, {"Mask.attend", "allowed"})); }, nb::arg("allowed").none())
      .def_static("block", [](nb::handle x) { return Mask::block(keep(x, {"Mask.block", "blocked"})); }, nb::arg("blocked").none())
      .def_static("key_padding", [](nb::handle x) { return Mask::key_padding(keep(x, {"Mask.key_padding", "padding"})); }, nb::arg("padding").none())
      .def_static("all", &Mask::all)
      .def_static("none", &Mask::none)
      .def("__and__", [](const Mask& a, const Mask& b) { return a & b; }, nb::is_operator())
      .def("__or__", [](const Mask& a, const Mask& b) { return a | b; }, nb::is_operator())
      .def("__invert__", [](const Mask& a) { return ~a; })
      .def("__str__", &Mask::to_string)
      .def("__repr__", [](const Mask& self) { return text("attn.Mask(\"{}\")", self.to_string()); })
      .def("print",
           [](const Mask& self, nb::handle q_rows, nb::handle k_rows, nb::handle query_lengths, nb::handle key_lengths, nb::handle key_start,
              nb::handle query_start, nb::handle batch, nb::handle head) {
             constexpr const char* function = "Mask.print";
             return self.print(whole(q_rows, {function, "q_rows"}), whole(k_rows, {function, "k_rows"}),
                               lengths_of(function, query_lengths, key_lengths, key_start, query_start), whole(batch, {function, "batch"}),
                               whole(head, {function, "head"}));
           },
           nb::arg("q_rows").none(), nb::arg("k_rows").none(), nb::arg("query_lengths") = nb::none(), nb::arg("key_lengths") = nb::none(),
           nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none(), nb::arg("batch") = 0, nb::arg("head") = 0)
      .def("dense",
           [](const Mask& self, nb::handle batch, nb::handle heads, nb::handle q_rows, nb::handle k_rows, nb::handle query_lengths,
              nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
             constexpr const char* function = "Mask.dense";
             const Tensor dense = self.dense(whole(batch, {function, "batch"}), whole(heads, {function, "heads"}), whole(q_rows, {function, "q_rows"}),
                                             whole(k_rows, {function, "k_rows"}), lengths_of(function, query_lengths, key_lengths, key_start, query_start));
             return to_python(dense, Framework::numpy);
           },
           nb::arg("batch").none(), nb::arg("heads").none(), nb::arg("q_rows").none(), nb::arg("k_rows").none(), nb::arg("query_lengths") = nb::none(),
           nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none())
      .def("check",
           [](const Mask& self, nb::handle batch, nb::handle heads, nb::handle q_rows, nb::handle k_rows, nb::handle query_lengths,
              nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
             constexpr const char* function = "Mask.check";
             return self.check(whole(batch, {function, "batch"}), whole(heads, {function, "heads"}), whole(q_rows, {function, "q_rows"}),
                               whole(k_rows, {function, "k_rows"}), lengths_of(function, query_lengths, key_lengths, key_start, query_start));
           },
           nb::arg("batch").none(), nb::arg("heads").none(), nb::arg("q_rows").none(), nb::arg("k_rows").none(), nb::arg("query_lengths") = nb::none(),
           nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none());
}

}  // namespace attn::python
