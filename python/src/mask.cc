// python/src/mask.cc: binds attn.Mask.
#include <attn/mask.h>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "integers.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

constexpr const char* mask_doc =
    R"doc(Which query may see which key: a small expression, which is never stored as a matrix Tq x Tk.

Masks are combined with & and |, and inverted with ~. Row i has position i (align "top_left", as PyTorch's is_causal)
or i + Tk - Tq ("bottom_right", as with a cache); a mask without an alignment is refused where Tq != Tk.

    >>> import attn
    >>> attn.Mask.causal() & attn.Mask.window(1, 0)
    attn.Mask("causal & window(1, 0)")
    >>> print(attn.Mask("causal(bottom_right)").print(2, 4), end="")
    ■ ■ ■ ·
    ■ ■ ■ ■

Mask(text) reads the notation: causal, causal(top_left), window(3, 0), prefix(4), all, none, with & | ~ ( ). Masks of
arrays have no notation. Raises a ValueError that shows the place that was not understood. A mask is immutable.)doc";

/// Reads the lengths of a call from keyword arguments; each is None or integers [B].
Lengths lengths_of(const char* function, nb::handle query_lengths, nb::handle key_lengths, nb::handle key_start,
                   nb::handle query_start) {
  const auto numbers = [function](nb::handle x, const char* name) {
    return x.is_none() ? Tensor() : keep(integers(x, {function, name}), {function, name});
  };
  return {.query_lengths = numbers(query_lengths, "query_lengths"),
          .key_lengths = numbers(key_lengths, "key_lengths"),
          .key_start = numbers(key_start, "key_start"),
          .query_start = numbers(query_start, "query_start")};
}

PyMask of_array(const char* made, nb::handle x, const Mask& mask) {
  return {mask, {nb::borrow(x)}, made, {nb::borrow(x)}};
}

/// Makes a mask from one array.
template <Mask (*factory)(const Tensor&)>
PyMask of_array(const char* made, nb::handle x, const Argument& at) {
  return of_array(made, x, factory(keep(x, at)));
}

/// Makes a mask from an array in which True masks a pair. Whole numbers are refused: nearly everywhere 1 means "this is
/// a token" (attention_mask of transformers), but here it would mask the token.
template <Mask (*factory)(const Tensor&)>
PyMask of_hidden(const char* made, nb::handle x, const Argument& at, const char* attend, const char* more) {
  const std::string type = nb::hasattr(x, "dtype") ? nb::cast<std::string>(nb::str(nb::object(x.attr("dtype"))))
                                                   : std::string(torch_name_of(keep(x, at).dtype()));
  if (type.find("int") != std::string::npos)  // also those that no tensor has, as uint8
    throw type_error(
        "{}: {} is {}; True hides a pair here, so bool is needed. Where 1 is a token, as in transformers' "
        "attention_mask m: attn.Mask.attend({}){}",
        at.function, at.name, type.substr(type.find('.') + 1), attend, more);
  return of_array(made, x, factory(keep(x, at)));
}

PyMask prefix(nb::handle n) {
  const bool one_number = nb::hasattr(n, "ndim") && nb::cast<int>(n.attr("ndim")) == 0;
  if (!is_listed(n) && (one_number || !nb::hasattr(n, "__dlpack__")))
    return {Mask::prefix(whole(n, {"Mask.prefix", "n"}))};
  const nb::object counts = integers(n, {"Mask.prefix", "n"});
  return of_array("prefix", counts, Mask::prefix(keep(counts, {"Mask.prefix", "n"})));
}

PyMask documents(nb::handle ids, nb::handle key_ids) {
  const nb::object of_rows = integers(ids, {"Mask.documents", "ids"});
  const Tensor rows = keep(of_rows, {"Mask.documents", "ids"});
  if (key_ids.is_none()) return of_array("documents", of_rows, Mask::documents(rows));
  const nb::object of_keys = integers(key_ids, {"Mask.documents", "key_ids"});
  PyMask mask = of_array("documents", of_rows, Mask::documents(rows, keep(of_keys, {"Mask.documents", "key_ids"})));
  mask.arrays.push_back(of_keys);
  mask.parts = mask.arrays;
  return mask;
}

/// Blocks of rows and keys: one whole number, or two.
std::pair<std::int64_t, std::int64_t> block_sizes(nb::handle block) {
  constexpr const char* function = "Mask.blocks";
  if (!nb::isinstance<nb::tuple>(block) && !nb::isinstance<nb::list>(block)) {
    const std::int64_t size = whole(block, {function, "block"});
    return {size, size};
  }
  const nb::object sizes = nb::borrow(block);
  if (nb::len(sizes) != 2)
    throw ValueError(text("{}: block has {} numbers; one is needed, or two: (rows, keys)", function, nb::len(sizes)));
  return {whole(nb::object(sizes[0]), {function, "block[0]"}), whole(nb::object(sizes[1]), {function, "block[1]"})};
}

/// The indices are copied, for copies of the mask too: it stays what it was when the array changes.
PyMask blocks(nb::handle indices, nb::handle block) {
  const auto [rows, keys] = block_sizes(block);
  const nb::object lists = integers(indices, {"Mask.blocks", "indices"});
  const Mask mask = Mask::blocks(keep(lists, {"Mask.blocks", "indices"}), rows, keys);
  const char* const copy = nb::hasattr(lists, "clone") ? "clone" : "copy";
  const nb::object copied = nb::hasattr(lists, copy) ? nb::object(lists.attr(copy)()) : lists;
  return {mask, {copied}, "blocks", {copied, nb::make_tuple(rows, keys)}};
}

/// Returns a & b or a | b, or ~a if b is an invalid handle; NotImplemented if an operand is not a mask.
nb::object joined(const char* made, nb::handle a, nb::handle b, Mask (*join)(const Mask&, const Mask&)) {
  const PyMask* const left = as<PyMask>(a);
  const PyMask* const right = b.is_valid() ? as<PyMask>(b) : left;
  if (left == nullptr || right == nullptr) return nb::borrow(Py_NotImplemented);
  PyMask mask{join(left->mask, right->mask), left->arrays};
  if (b.is_valid()) mask.arrays.insert(mask.arrays.end(), right->arrays.begin(), right->arrays.end());
  if (!mask.arrays.empty()) {
    mask.made = made;
    mask.parts.push_back(nb::borrow(a));
    if (b.is_valid()) mask.parts.push_back(nb::borrow(b));
  }
  return nb::cast(std::move(mask));
}

/// Reduces a mask for copies and pickles: to its text, or, if it has arrays, to the parts from which it was made, so
/// that a copy uses copied arrays.
nb::tuple reduced(const PyMask& self) {
  if (self.made == nullptr) {
    const std::string notation = self.mask.to_string();
    try {
      static_cast<void>(Mask::parse(notation));
    } catch (const ValueError& error) { throw type_error("Mask: its text does not read back: {}", error.what()); }
    return nb::make_tuple(nb::type<PyMask>(), nb::make_tuple(notation));
  }
  nb::list parts;
  for (const nb::object& each : self.parts) parts.append(each);
  if (nb::isinstance<PyMask>(self.parts[0]))
    return nb::make_tuple(nb::module_::import_("operator").attr(self.made), nb::tuple(parts));
  return self.parts.size() == 1 ? made_again<PyMask>(self.made, self.parts[0])
                                : made_again<PyMask>(self.made, self.parts[0], self.parts[1]);
}

/// Returns the mask itself, because it is immutable. If it has arrays, it is made again over copies of them.
nb::object deep_copied(const PyMask& self, nb::handle memo) {
  if (self.made == nullptr) return nb::cast(self);
  const nb::tuple call = reduced(self);
  return call[0](*nb::tuple(nb::module_::import_("copy").attr("deepcopy")(call[1], memo)));
}

}  // namespace

void add_mask(nb::module_& m) {
  nb::class_<PyMask> c(m, "Mask", mask_doc);
  c.def(
       "__init__",
       [](PyMask* self, nb::handle text) {
         new (self) PyMask{text.is_none() ? Mask() : Mask::parse(word(text, {"Mask", "text"}))};
       },
       nb::arg("text") = nb::none())
      .def_static(
          "parse", [](nb::handle text) { return PyMask{Mask::parse(word(text, {"Mask.parse", "text"}))}; },
          nb::arg("text").none(), "The same as Mask(text).")
      .def_static(
          "causal", [](nb::handle at) { return PyMask{Mask::causal(align(at, "Mask.causal"))}; },
          nb::arg("align") = nb::none(),
          "Keys at positions 0 to p, the row's own. align: None, \"top_left\" or \"bottom_right\".")
      .def_static(
          "window",
          [](nb::handle left, nb::handle right, nb::handle at) {
            return PyMask{Mask::window(whole(left, {"Mask.window", "left"}), whole(right, {"Mask.window", "right"}),
                                       align(at, "Mask.window"))};
          },
          nb::arg("left").none(), nb::arg("right").none(), nb::arg("align") = nb::none(),
          "Keys at positions p - left to p + right; -1: no limit on that side.")
      .def_static("prefix", prefix, nb::arg("n").none(),
                  "Keys at positions 0 to n - 1, for every row; n a whole number, or one for each batch item.")
      .def_static("documents", documents, nb::arg("ids").none(), nb::arg("key_ids") = nb::none(),
                  "Rows and keys with the same document id: whole numbers [B, T] or [T], once for self-attention, else "
                  "once for rows and once for keys.")
      .def_static(
          "blocks", blocks, nb::arg("indices").none(), nb::arg("block").none(),
          "For each block of rows, the blocks of keys that it sees: whole numbers [1 or B, H, Tq / block, n], -1 "
          "for none, where H divides the query heads. block: the size, or (rows, keys). The indices are copied.")
      .def_static(
          "attend", [](nb::handle x) { return of_array<Mask::attend>("attend", x, {"Mask.attend", "allowed"}); },
          nb::arg("allowed").none(),
          "A bool array that broadcasts to [B, H, Tq, Tk]: True takes part, as in scaled_dot_product_attention.")
      .def_static(
          "block", [](nb::handle x) { return of_hidden<Mask::block>("block", x, {"Mask.block", "blocked"}, "m", ""); },
          nb::arg("blocked").none(),
          "A bool array that broadcasts to [B, H, Tq, Tk]: True is masked, as in nn.MultiheadAttention.")
      .def_static(
          "key_padding",
          [](nb::handle x) {
            return of_hidden<Mask::key_padding>("key_padding", x, {"Mask.key_padding", "padding"},
                                                "m[:, None, None, :]",
                                                ", or key_lengths=m.sum(1) where padding is on the right");
          },
          nb::arg("padding").none(),
          "A bool array [B, Tk]: True is padding. TypeError for whole numbers: where 1 is a token, Mask.attend(m[:, "
          "None, None, :]), or\n"
          "key_lengths=m.sum(1).")
      .def_static(
          "all", [] { return PyMask{Mask::all()}; }, "Everything is seen.")
      .def_static(
          "none", [] { return PyMask{Mask::none()}; }, "Nothing is seen.")
      .def(
          "__and__",
          [](nb::handle a, nb::handle b) {
            return joined("and_", a, b, [](const Mask& x, const Mask& y) { return x & y; });
          },
          nb::is_operator())
      .def(
          "__or__",
          [](nb::handle a, nb::handle b) {
            return joined("or_", a, b, [](const Mask& x, const Mask& y) { return x | y; });
          },
          nb::is_operator())
      .def("__invert__",
           [](nb::handle a) { return joined("invert", a, {}, [](const Mask& x, const Mask&) { return ~x; }); })
      .def("__bool__",
           [](const PyMask& self) -> bool {
             throw type_error(
                 "Mask: \"{}\" is neither true nor false; join masks with &, | and ~ instead of and, or, not",
                 self.mask.to_string());
           })
      .def("__str__", [](const PyMask& self) { return self.mask.to_string(); })
      .def("__repr__", [](const PyMask& self) { return text("attn.Mask(\"{}\")", self.mask.to_string()); })
      .def(
          "print",
          [](const PyMask& self, nb::handle q_rows, nb::handle k_rows, nb::handle query_lengths, nb::handle key_lengths,
             nb::handle key_start, nb::handle query_start, nb::handle batch, nb::handle head) {
            constexpr const char* function = "Mask.print";
            return self.mask.print(whole(q_rows, {function, "q_rows"}), whole(k_rows, {function, "k_rows"}),
                                   lengths_of(function, query_lengths, key_lengths, key_start, query_start),
                                   whole(batch, {function, "batch"}), whole(head, {function, "head"}));
          },
          nb::arg("q_rows").none(), nb::arg("k_rows").none(), nb::arg("query_lengths") = nb::none(),
          nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(), nb::arg("query_start") = nb::none(),
          nb::arg("batch").none() = 0, nb::arg("head").none() = 0,
          "The picture, a line a row: a mark where the row sees the key, a dot where not.")
      .def(
          "dense",
          [](const PyMask& self, nb::handle batch, nb::handle heads, nb::handle q_rows, nb::handle k_rows,
             nb::handle query_lengths, nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
            constexpr const char* function = "Mask.dense";
            const Tensor dense =
                self.mask.dense(whole(batch, {function, "batch"}), whole(heads, {function, "heads"}),
                                whole(q_rows, {function, "q_rows"}), whole(k_rows, {function, "k_rows"}),
                                lengths_of(function, query_lengths, key_lengths, key_start, query_start));
            return to_python(dense, Framework::numpy);
          },
          nb::arg("batch").none(), nb::arg("heads").none(), nb::arg("q_rows").none(), nb::arg("k_rows").none(),
          nb::arg("query_lengths") = nb::none(), nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(),
          nb::arg("query_start") = nb::none(), "As a NumPy bool array [B, H, Tq, Tk], for tests and small pictures.")
      .def(
          "check",
          [](const PyMask& self, nb::handle batch, nb::handle heads, nb::handle q_rows, nb::handle k_rows,
             nb::handle query_lengths, nb::handle key_lengths, nb::handle key_start, nb::handle query_start) {
            constexpr const char* function = "Mask.check";
            return self.mask.check(whole(batch, {function, "batch"}), whole(heads, {function, "heads"}),
                                   whole(q_rows, {function, "q_rows"}), whole(k_rows, {function, "k_rows"}),
                                   lengths_of(function, query_lengths, key_lengths, key_start, query_start));
          },
          nb::arg("batch").none(), nb::arg("heads").none(), nb::arg("q_rows").none(), nb::arg("k_rows").none(),
          nb::arg("query_lengths") = nb::none(), nb::arg("key_lengths") = nb::none(), nb::arg("key_start") = nb::none(),
          nb::arg("query_start") = nb::none(),
          "A line for each group of rows that see no key; ValueError where the mask does not fit the sizes.")
      .def("__copy__", [](const PyMask& self) { return self; })
      .def("__deepcopy__", deep_copied, nb::arg("memo").none())
      .def("__reduce__", reduced)
      .def_prop_ro(
          "arrays", [](const PyMask& self) { return self.arrays; },
          "What it holds, whose values are read at the call.");
  c.attr("__module__") = "attn";
}

}  // namespace attn::python
