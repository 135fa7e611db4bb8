// python/src/score_expression.cc: binds attn.ScoreExpression: Python's operators build the library's expression.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "scalars.h"
#include "terms.h"

#include <algorithm>
#include <set>

namespace attn::python {
namespace {

constexpr const char* expression_doc =
    R"doc(A new score as a function of the score s, the batch item b, the query head h and the positions i of the row
and j of the key, with numbers and lookups in arrays. It is FlexAttention's score_mod, computed inside the fused pass.

attn.ScoreExpression(f) calls f(s, b, h, i, j) once, with symbols; attn.attention does so with a function given as
score_mod. Arrays that the function uses are looked up with whole numbers, one index for each dim, and may be NumPy's
or torch's.

    >>> import attn, numpy as np
    >>> slope = np.array([0.5, 0.25], dtype=np.float32)
    >>> attn.ScoreExpression(lambda s, b, h, i, j: attn.where(i - j < 8, s - slope[h] * (i - j), -np.inf))
    attn.ScoreExpression("where(i - j < 8, s - slope[h] * (i - j), -inf)")

Operators: + - * / // % (the last two for whole numbers), comparisons, & | ~ for conditions. Functions: attn.where,
exp, tanh, abs, minimum, maximum. A Python `if` on a symbol raises TypeError: use attn.where. Immutable.

Source     He 2024 (FlexAttention, 2412.05496).)doc";

constexpr const char* table_doc = R"doc(An array that score expressions look up: table[h], table[h, j - i + 127].

Needed where a score function reaches the array through an attribute or a container; captured variables become tables
by themselves. Rank 0 to 4; floating arrays give numbers, int32 and int64 whole numbers, bool conditions. Values are
read when attention is called. ScoreTable(table) is the same table, with another name if one is given.

    >>> import attn, numpy as np
    >>> table = attn.ScoreTable(np.zeros(4, np.float32), "gain")
    >>> attn.ScoreExpression(lambda s, b, h, i, j: s * table[h])
    attn.ScoreExpression("s * gain[h]"))doc";

using Expression = PyScoreExpression;

/// A tensor that expressions index, and the array it came from.
struct PyScoreTable {
  Tensor values;
  std::string name;
  nb::object array;
};

void add_arrays(Expression& to, const Expression& from) {
  for (const auto& each : from.arrays) {
    const auto same = [&](const auto& known) { return known.tensor == each.tensor; };
    if (std::none_of(to.arrays.begin(), to.arrays.end(), same)) to.arrays.push_back(each);
  }
}

/// Reads an operand: a ScoreExpression, a number (also an array without dims), or a table of rank 0. For anything else
/// `valid` is false, or the constructor throws.
struct Operand {
  Expression value;
  bool valid = true;

  explicit Operand(nb::handle x) {
    if (const Expression* given = as<Expression>(x)) value = *given;
    else if (const PyScoreTable* table = as<PyScoreTable>(x)) value = at(*table, {});
    else if (PyBool_Check(x.ptr()) || PyUnicode_Check(x.ptr())) valid = false;
    else if (nb::hasattr(x, "__dlpack__")) of_array(x);
    else if (PyIndex_Check(x.ptr())) value.expression = ScoreExpression(whole(x, {"ScoreExpression", "a number"}));
    else if (PyFloat_Check(x.ptr()) || nb::hasattr(x, "__float__"))
      value.expression = ScoreExpression(number(x, {"ScoreExpression", "a number"}));
    else valid = false;
  }

  /// Reads an array without dims as a number. If it requires a gradient, reads it as a table, like the arrays that the
  /// function indexes.
  void of_array(nb::handle x) {
    if (nb::object rank = nb::getattr(x, "ndim", nb::none());
        !PyLong_Check(rank.ptr()) || !nb::cast<bool>(rank.attr("__eq__")(0))) {
      valid = false;
    } else if (wants_gradient(x)) {
      value = at({keep(x, {"ScoreExpression", "a number"}), "table", nb::borrow(x)}, {});
    } else if (PyObject* index = PyNumber_Index(x.ptr()); index != nullptr) {
      value.expression = ScoreExpression(whole(nb::steal(index), {"ScoreExpression", "a number"}));
    } else {
      forget_error();
      value.expression = ScoreExpression(number(x, {"ScoreExpression", "a number"}));
    }
  }

  static Expression at(const PyScoreTable& self, const std::vector<Expression>& index) {
    std::vector<ScoreExpression> places;
    Expression result;
    for (const Expression& each : index) places.push_back(each.expression);
    result.expression = ScoreTable(self.values, self.name).at(places);
    result.arrays = {{self.values.impl(), self.array, self.name}};
    for (const Expression& each : index) add_arrays(result, each);
    return result;
  }
};

[[noreturn]] void refuse(const char* function, nb::handle x) {
  throw type_error("{}: a {} is given; an expression or a number is needed (an array: attn.ScoreTable(x)[index])",
                   function, name_of_type(x));
}

Expression operand(nb::handle x, const char* function) {
  Operand given(x);
  if (!given.valid) refuse(function, x);
  return std::move(given.value);
}

using Binary = ScoreExpression (*)(const ScoreExpression&, const ScoreExpression&);
using Unary = ScoreExpression (*)(const ScoreExpression&);

Expression joined(Binary f, const Expression& a, const Expression& b) {
  Expression result{f(a.expression, b.expression), a.arrays};
  add_arrays(result, b);
  return result;
}

/// Returns a op b or, for Python's reflected methods, b op a; NotImplemented if the other operand has an unknown type.
template <bool Mirrored>
nb::object binary(Binary f, const Expression& a, nb::handle b) {
  Operand other(b);
  if (!other.valid) return nb::borrow(Py_NotImplemented);
  return nb::cast(Mirrored ? joined(f, other.value, a) : joined(f, a, other.value));
}

template <typename Class>
void add_operator(Class& c, const char* name, const char* mirrored, Binary f) {
  c.def(name, [f](const Expression& a, nb::handle b) { return binary<false>(f, a, b); }, nb::is_operator());
  if (mirrored)
    c.def(mirrored, [f](const Expression& a, nb::handle b) { return binary<true>(f, a, b); }, nb::is_operator());
}

Expression where_of(nb::handle condition, nb::handle a, nb::handle b) {
  const Expression c = operand(condition, "where"), x = operand(a, "where"), y = operand(b, "where");
  Expression result{where(c.expression, x.expression, y.expression), c.arrays};
  add_arrays(result, x);
  add_arrays(result, y);
  return result;
}

Expression parsed(nb::handle given, nb::handle tables) {
  std::vector<std::pair<std::string, Tensor>> tensors;
  Expression result;
  if (!tables.is_none() && !PyDict_Check(tables.ptr()))
    throw type_error("ScoreExpression: tables is a {}; a dict of arrays by name is needed", name_of_type(tables));
  if (!tables.is_none())
    for (auto [name, array] : nb::borrow<nb::dict>(tables)) {
      tensors.emplace_back(word(name, {"ScoreExpression", "the name of a table"}),
                           keep(array, {"ScoreExpression.parse", "a table"}));
      result.arrays.push_back({tensors.back().second.impl(), nb::borrow(array), tensors.back().first});
    }
  result.expression = ScoreExpression::parse(word(given, {"ScoreExpression.parse", "text"}), tensors);
  return result;
}

/// Returns the beginning of a text for an error message; it ends between characters.
std::string beginning(const std::string& text) {
  std::size_t end = std::min<std::size_t>(text.size(), 80);
  while (end > 0 && end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

/// Reduces an expression for copies and pickles to its text and its arrays by name. If each name stands for one array,
/// the two make the same expression again.
nb::tuple reduced(const Expression& self) {
  const std::string notation = self.expression.to_string();
  std::set<std::string> names{"s", "b", "h", "i", "j", "exp", "tanh", "abs", "min", "max", "where", "inf", "nan"};
  std::vector<std::pair<std::string, Tensor>> tensors;
  nb::dict tables;
  for (const PyLookup& each : self.arrays) {
    if (!names.insert(each.name).second)
      throw type_error(
          "ScoreExpression: the name {} stands for two things in \"{}\", so it cannot be pickled; "
          "attn.ScoreTable(array, name) gives a table another",
          each.name, beginning(notation));
    tensors.emplace_back(each.name, keep(each.array, {"ScoreExpression", "a table"}));
    tables[each.name.c_str()] = each.array;
  }
  try {
    if (ScoreExpression::parse(notation, tensors).to_string() == notation)
      return nb::make_tuple(nb::type<Expression>(), nb::make_tuple(notation, tables));
  } catch (const ValueError&) {}
  throw type_error("ScoreExpression: \"{}...\" has a text that does not read back, so it cannot be pickled",
                   beginning(notation));
}

[[noreturn]] void no_truth(const Expression& self) {
  throw type_error(
      "ScoreExpression: \"{}\" is neither true nor false while it is traced; use attn.where(condition, a, b) instead "
      "of if, and, or, not",
      beginning(self.expression.to_string()));
}

template <typename Class>
void add_operators(Class& c) {
  add_operator(c, "__add__", "__radd__", [](const auto& a, const auto& b) { return a + b; });
  add_operator(c, "__sub__", "__rsub__", [](const auto& a, const auto& b) { return a - b; });
  add_operator(c, "__mul__", "__rmul__", [](const auto& a, const auto& b) { return a * b; });
  add_operator(c, "__truediv__", "__rtruediv__", [](const auto& a, const auto& b) { return a / b; });
  add_operator(c, "__floordiv__", "__rfloordiv__", [](const auto& a, const auto& b) { return floor_divide(a, b); });
  add_operator(c, "__mod__", "__rmod__", [](const auto& a, const auto& b) { return a % b; });
  add_operator(c, "__and__", "__rand__", [](const auto& a, const auto& b) { return a & b; });
  add_operator(c, "__or__", "__ror__", [](const auto& a, const auto& b) { return a | b; });
  add_operator(c, "__lt__", nullptr, [](const auto& a, const auto& b) { return a < b; });
  add_operator(c, "__le__", nullptr, [](const auto& a, const auto& b) { return a <= b; });
  add_operator(c, "__gt__", nullptr, [](const auto& a, const auto& b) { return a > b; });
  add_operator(c, "__ge__", nullptr, [](const auto& a, const auto& b) { return a >= b; });
  add_operator(c, "__eq__", nullptr, [](const auto& a, const auto& b) { return a == b; });
  add_operator(c, "__ne__", nullptr, [](const auto& a, const auto& b) { return a != b; });
}

/// Adds a function of one expression to the module.
void add_function(nb::module_& m, const char* name, Unary f) {
  m.def(
      name,
      [name, f](nb::handle x) {
        Expression given = operand(x, name);
        given.expression = f(given.expression);
        return given;
      },
      nb::arg("x").none());
}

void add_function(nb::module_& m, const char* name, Binary f) {
  m.def(
      name, [name, f](nb::handle a, nb::handle b) { return joined(f, operand(a, name), operand(b, name)); },
      nb::arg("a").none(), nb::arg("b").none());
}

}  // namespace

void add_score_expression(nb::module_& m) {
  nb::class_<Expression> c(m, "ScoreExpression", expression_doc);
  c.def(
      "__init__",
      [](Expression* self, nb::handle of, nb::handle tables) {
        new (self) Expression(nb::cast<Expression>(nb::module_::import_("attn._tracing").attr("trace")(of, tables)));
      },
      nb::arg("of").none(), nb::arg("tables") = nb::none(),
      "Of a function of (s, b, h, i, j), or of a text; `tables`: what names in the text stand for.");
  add_operators(c);
  c.def("__neg__", [](const Expression& a) { return Expression{-a.expression, a.arrays}; })
      .def("__pos__", [](const Expression& a) { return a; })
      .def("__invert__", [](const Expression& a) { return Expression{~a.expression, a.arrays}; })
      .def("__abs__", [](const Expression& a) { return Expression{abs(a.expression), a.arrays}; })
      .def("__bool__", [](const Expression& self) -> bool { no_truth(self); })
      .def("__hash__", [](const Expression& self) { return std::hash<const void*>()(self.expression.node().get()); })
      .def("__str__", [](const Expression& self) { return self.expression.to_string(); })
      .def("__reduce__", reduced)
      .def("__repr__",
           [](const Expression& self) { return text("attn.ScoreExpression(\"{}\")", self.expression.to_string()); })
      .def(
          "aligned",
          [](const Expression& self, nb::handle at) {
            return Expression{self.expression.aligned(align(at, "ScoreExpression.aligned")), self.arrays};
          },
          nb::arg("align").none(),
          "The same with every i that has no alignment standing as told: \"top_left\" or \"bottom_right\".")
      .def(
          "apply",
          [](const Expression& self, nb::handle scores) {
            Reader read("ScoreExpression.apply");
            const Tensor given = read(scores, "scores");
            return to_python(self.expression.apply(given), read.framework());
          },
          nb::arg("scores").none(), "Scores [B, H, Tq, Tk] after the expression, for tests and small pictures.")
      .def_prop_ro(
          "arrays",
          [](const Expression& self) {
            nb::list arrays;
            for (const PyLookup& each : self.arrays) arrays.append(each.array);
            return arrays;
          },
          "What it looks up.");
  c.attr("__array_ufunc__") = nb::none();  // lets the expression handle arithmetic with NumPy's scalars
  nb::class_<PyScoreTable> t(m, "ScoreTable", table_doc);
  t.def(
       "__init__",
       [](PyScoreTable* self, nb::handle values, nb::handle name) {
         // while a function is traced, an array that it captured is already a table
         const PyScoreTable* const given = as<PyScoreTable>(values);
         const std::string shown = !name.is_none() ? word(name, {"ScoreTable", "name"}) : given ? given->name : "table";
         const bool same = given && shown == given->name;
         const nb::object array = given ? given->array : nb::borrow(values);
         const Tensor kept = same ? given->values : keep(array, {"ScoreTable", "values"});
         ScoreTable(kept, shown);  // throws for a wrong table or name
         new (self) PyScoreTable{kept, shown, array};
       },
       nb::arg("values").none(), nb::arg("name") = nb::none())
      .def(
          "__getitem__",
          [](const PyScoreTable& self, nb::handle index) {
            std::vector<Expression> places;
            if (PyTuple_Check(index.ptr()))
              for (nb::handle each : index) places.push_back(operand(each, "ScoreTable"));
            else places.push_back(operand(index, "ScoreTable"));
            return Operand::at(self, places);
          },
          nb::arg("index").none())
      .def("__reduce__",
           [](const PyScoreTable& self) {
             return nb::make_tuple(nb::type<PyScoreTable>(), nb::make_tuple(self.array, self.name));
           })
      .def_ro("name", &PyScoreTable::name)
      .def_prop_ro("rank", [](const PyScoreTable& self) { return self.values.dim(); });
  c.attr("__module__") = t.attr("__module__") = "attn";
  t.attr("__iter__") = nb::none();  // without it Python would iterate over indices for ever
  m.def("_symbols", [] {
    const auto symbol = [](ScoreExpression x) { return Expression{std::move(x), {}}; };
    return nb::make_tuple(symbol(ScoreExpression::score()), symbol(ScoreExpression::batch()),
                          symbol(ScoreExpression::head()), symbol(ScoreExpression::row()),
                          symbol(ScoreExpression::key()));
  });
  m.def("_operand", [](nb::handle x) { return operand(x, "ScoreExpression"); }, nb::arg("x").none());
  m.def("_parse_expression", parsed, nb::arg("text").none(), nb::arg("tables") = nb::none());
  m.def("where", where_of, nb::arg("condition").none(), nb::arg("a").none(), nb::arg("b").none());
  add_function(m, "exp", static_cast<Unary>([](const auto& x) { return exp(x); }));
  add_function(m, "tanh", static_cast<Unary>([](const auto& x) { return tanh(x); }));
  add_function(m, "minimum", static_cast<Binary>([](const auto& a, const auto& b) { return min(a, b); }));
  add_function(m, "maximum", static_cast<Binary>([](const auto& a, const auto& b) { return max(a, b); }));
}

}  // namespace attn::python
