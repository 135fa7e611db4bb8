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

constexpr const char* mask_doc = R"doc(Which query may see which key, as a small expression that is never stored as Tq x Tk.

Masks join with & and |, and ~ turns one round. Row i stands at position p = i (align "top_left", PyTorch's is_causal) or
i + Tk - Tq ("bottom_right", a cache); without an alignment a mask is fine until a call with Tq != Tk.

    >>> import attn
    >>> attn.Mask.causal() & attn.Mask.window(1, 0)
    attn.Mask("causal & window(1, 0)")
    >>> print(attn.Mask("causal(bottom_right)").print(2, 4), end="")
    ■ ■ ■ ·
    ■ ■ ■ ■

Mask(text) reads the notation: causal, causal(top_left), window(3, 0), prefix(4), all, none, with & | ~ ( ). Masks of arrays have no
notation. Raises ValueError that shows the place that was not understood. Immutable.)doc";

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
  const bool one_number = nb::hasattr(n, "ndim") && nb::cast<int>(n.attr("ndim")) == 0;
  if (nb::hasattr(n, "__dlpack__") && !one_number) return Mask::prefix(keep(n, {"Mask.prefix", "n"}));
  return Mask::prefix(whole(n, {"Mask.prefix", "n"}));
}

Mask documents(nb::handle ids, nb::handle key_ids) {
  const Tensor rows = keep(ids, {"Mask.documents", "ids"});
  return key_ids.is_none() ? Mask::documents(rows) : Mask::documents(rows, keep(key_ids, {"Mask.documents", "key_ids"}));
}

}  // namespace

void add_mask(nb::module_& m) {
  nb::class_<Mask> c(m, "Mask", mask_doc);
  c
      .def("__init__", [](Mask* self, nb::handle text) { new (self) Mask(text.is_none() ? Mask() : Mask::parse(word(text, {"Mask", "text"}))); }, nb::arg("text") = nb::none())
      .def_static("parse", [](nb::handle text) { return Mask::parse(word(text, {"Mask.parse", "text"})); }, nb::arg("text").none(),
                  "The same as Mask(text).")
      .def_static("causal", [](nb::handle at) { return Mask::causal(align(at, "Mask.causal")); }, nb::arg("align") = nb::none(),
                  "Keys at positions 0 to p, the row's own. align: None, \"top_left\" or \"bottom_right\".")
      .def_static("window",
                  [](nb::handle left, nb::handle right, nb::handle at) {
                    return Mask::window(whole(left, {"Mask.window", "left"}), whole(right, {"Mask.window", "right"}), align(at, "Mask.window"));
                  },
                  nb::arg("left").none(), nb::arg("right").none(), nb::arg("align") = nb::none(),
                  "Keys at positions p - left to p + right; -1: no limit on that side.")
      .def_static("prefix", prefix, nb::arg("n").none(),
                  "Keys at positions 0 to n - 1, for every row; n a number, or int64 [B].")
      .def_static("documents", documents, nb::arg("ids").none(), nb::arg("key_ids") = nb::none(),
                  "Rows and keys with the same document id: int64 [B, T] or [T], one array for self-attention, else one for rows and one for keys.")
      .def_static("attend", [](nb::handle x) { return Mask::attend(keep(x, {"Mask.attend", "allowed"})); }, nb::arg("allowed").none(),
                  "A bool array that broadcasts to [B, H, Tq, Tk]: True takes part, as in scaled_dot_product_attention.")
      .def_static("block", [](nb::handle x) { return Mask::block(keep(x, {"Mask.block", "blocked"})); }, nb::arg("blocked").none(),
                  "A bool array that broadcasts to [B, H, Tq, Tk]: True is shut out, as in nn.MultiheadAttention.")
      .def_static("key_padding", [](nb::handle x) { return Mask::key_padding(keep(x, {"Mask.key_padding", "padding"})); }, nb::arg("padding").none(),
                  "A bool array [B, Tk]: True is padding.")
      .def_static("all", &Mask::all, "Everything is seen.")
      .def_static("none", &Mask::none, "Nothing is seen.")
      .def("__and__", [](const Mask& a, const Mask& b) { return a & b; }, nb::is_operator())
      .def("__or__", [](const Mask& a, const Mask& b) { return a | b; }, nb::is_operator())
      .def("__invert__", [](const Mask& a) { return ~a; })
      .def("__bool__", [](const Mask& self) -> bool {
        throw type_error("Mask: \"{}\" is neither true nor false; join masks with &, | and ~ instead of and, or, not", self.to_string());
      })
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
           nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none(), nb::arg("batch").none() = 0, nb::arg("head").none() = 0,
           "The picture, a line a row: a mark where the row sees the key, a dot where not.")
      .def("dense",
           [](const Mask& self, nb::handle batch, nb::handle heads, nb::handle q_rows, nb::handle k_rows, nb::handle query_lengths,
              nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
             constexpr const char* function = "Mask.dense";
             const Tensor dense = self.dense(whole(batch, {function, "batch"}), whole(heads, {function, "heads"}), whole(q_rows, {function, "q_rows"}),
                                             whole(k_rows, {function, "k_rows"}), lengths_of(function, query_lengths, key_lengths, key_start, query_start));
             return to_python(dense, Framework::numpy);
           },
           nb::arg("batch").none(), nb::arg("heads").none(), nb::arg("q_rows").none(), nb::arg("k_rows").none(), nb::arg("query_lengths") = nb::none(),
           nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none(),
           "As a NumPy bool array [B, H, Tq, Tk], for tests and small pictures.")
      .def("check",
           [](const Mask& self, nb::handle batch, nb::handle heads, nb::handle q_rows, nb::handle k_rows, nb::handle query_lengths,
              nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
             constexpr const char* function = "Mask.check";
             return self.check(whole(batch, {function, "batch"}), whole(heads, {function, "heads"}), whole(q_rows, {function, "q_rows"}),
                               whole(k_rows, {function, "k_rows"}), lengths_of(function, query_lengths, key_lengths, key_start, query_start));
           },
           nb::arg("batch").none(), nb::arg("heads").none(), nb::arg("q_rows").none(), nb::arg("k_rows").none(), nb::arg("query_lengths") = nb::none(),
           nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none(),
           "A line for each group of rows that see no key; ValueError where the mask does not fit the sizes.")
      .def("__copy__", [](const Mask& self) { return self; })
      .def("__deepcopy__", [](const Mask& self, nb::handle) { return self; }, nb::arg("memo").none())
      .def("__reduce__", [](const Mask& self) {
        const std::string notation = self.to_string();
        try {
          static_cast<void>(Mask::parse(notation));
        } catch (const ValueError&) {
          throw type_error("Mask: \"{}\" holds arrays; it cannot be pickled", notation);
        }
        return nb::make_tuple(nb::type<Mask>(), nb::make_tuple(notation));
      });
  c.attr("__module__") = "attn";
}

}  // namespace attn::python
