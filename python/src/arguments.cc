// python/src/arguments.cc: makes functions report wrong arguments in one line; nanobind would print all signatures.
#include <nanobind/stl/string.h>

#include "errors.h"
#include "terms.h"

#include <initializer_list>

namespace attn::python {
namespace {

/// Adds an overload that accepts any arguments. It is tried after the function itself and raises a TypeError that says
/// what is wrong.
template <typename... Extra>
void add_refusal(nb::handle scope, const std::string& name, const std::string& shown, const Extra&... extra) {
  const nb::object first = scope.attr(name.c_str()).attr("__nb_signature__")[0], signature = first[0], doc = first[1];
  // help() shows the docstring once if all overloads have the same one
  const std::string same_doc = doc.is_none() ? "" : nb::cast<std::string>(doc);
  nb::cpp_function_def(
      [shown, signature](nb::args arguments, nb::kwargs keywords) -> nb::object {
        const nb::object told =
            nb::module_::import_("attn._arguments").attr("told")(shown, signature, arguments, keywords);
        throw type_error("{}", nb::cast<std::string>(told));
      },
      nb::scope(scope), nb::name(name.c_str()), same_doc.c_str(), extra...);
}

/// Returns whether the function gets such an overload. Binary operators do not, because Python must be able to try the
/// operator of the other operand.
bool is_told(const std::string& name) {
  if (!name.starts_with("_")) return true;
  for (const char* known : {"__init__", "__getitem__", "__repr__", "__str__", "__bool__", "__hash__", "__copy__",
                            "__deepcopy__", "__reduce__", "__getstate__", "__setstate__", "__array__"})
    if (name == known) return true;
  return false;
}

}  // namespace

void add_refusals(nb::module_& m) {
  // the Python type of functions and static methods; methods of objects have another type
  const nb::object function = nb::borrow(m.attr("where").type());
  for (const char* name :
       {"where", "exp", "tanh", "minimum", "maximum", "info", "verify", "num_threads", "set_num_threads",
        "keep_freed_memory", "release_free_memory", "set_trace", "manual_seed", "version"})
    add_refusal(m, name, name);
  for (const char* cls :
       {"Mask",        "Bias",           "RelativeIndex", "Score",      "ScoreExpression", "ScoreTable",
        "Weights",     "KvCache",        "KvSequence",    "Plan",       "VerifyReport",    "ExplainStep",
        "Explanation", "Tokenizer",      "LanguageModel", "ModelCache", "TextGeneration",  "Chat",
        "TextEncoder", "EncoderDecoder", "TranslatedText"}) {
    const nb::object type = m.attr(cls);
    // a copy, because the class changes during the loop
    const auto members = nb::cast<nb::dict>(nb::module_::import_("builtins").attr("dict")(type.attr("__dict__")));
    for (auto [key, value] : members) {
      const std::string name = nb::cast<std::string>(key);
      if (!nb::hasattr(value, "__nb_signature__") || !is_told(name)) continue;
      const std::string shown = name == "__init__" ? cls : std::string(cls) + "." + name;
      if (value.type().is(function)) add_refusal(type, name, shown);
      else add_refusal(type, name, shown, nb::is_method());
    }
  }
}

}  // namespace attn::python
