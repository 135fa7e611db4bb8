// python/src/explain.cc: binds attn.explain: the steps of attention on a text, and their drawings.
#include <attn/explain_mechanisms.h>

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <string_view>
#include <utility>

#include "call.h"
#include "errors.h"
#include "scalars.h"
#include "terms.h"

namespace attn::python {
namespace {

constexpr const char* function = "explain";

struct Option {
  const char* name;
  void (*set)(ExplainOptions& to, nb::handle given);
};

/// Reads a matrix that stays valid after the call, because the steps hold it.
template <Tensor ExplainOptions::* member>
void set_matrix(ExplainOptions& to, nb::handle x, const char* name) {
  to.*member = keep(x, {function, name});
}

template <std::int64_t ExplainOptions::* member>
void set_size(ExplainOptions& to, nb::handle x, const char* name) {
  to.*member = whole(x, {function, name});
}

/// Wraps the caller's own function that splits a text into words.
std::function<std::vector<std::string>(const std::string&)> cutter(nb::handle x) {
  if (!PyCallable_Check(x.ptr()))
    throw type_error("{}: cut_words is a {}; a function of a text that gives its words is needed", function,
                     name_of_type(x));
  return [rule = nb::borrow(x)](const std::string& given) {
    nb::object words = rule(given);
    if (!PyList_Check(words.ptr()) && !PyTuple_Check(words.ptr()))
      throw type_error("{}: cut_words gave a {}; a list of words is needed", function, name_of_type(words));
    std::vector<std::string> all;
    for (nb::handle each : words) all.push_back(word(each, {function, "a word of cut_words"}));
    return all;
  };
}

/// Reads the names of steps: a list of them, or one text with commas between them.
std::vector<std::string> names(nb::handle x) {
  std::vector<std::string> all;
  const bool list = PyList_Check(x.ptr()) || PyTuple_Check(x.ptr());
  if (!list && !PyUnicode_Check(x.ptr()))
    throw type_error("{}: only is a {}; a list of names is needed", function, name_of_type(x));
  const nb::object parts = list ? nb::borrow(x) : nb::str(x).attr("replace")(",", " ").attr("split")();
  for (nb::handle each : parts) all.push_back(word(each, {function, "a name of only"}));
  return all;
}

constexpr Option all_options[] = {
    {"to", [](ExplainOptions& o, nb::handle x) { o.to = word(x, {function, "to"}); }},
    {"score",
     [](ExplainOptions& o, nb::handle x) {
       o.score = static_cast<Score::Kind>(choice(x, {function, "score"}, {"scaled_dot", "dot", "general", "additive"}));
     }},
    {"mask", [](ExplainOptions& o, nb::handle x) { o.mask = mask_of(x, function).mask; }},
    {"heads", [](ExplainOptions& o, nb::handle x) { set_size<&ExplainOptions::heads>(o, x, "heads"); }},
    {"dim", [](ExplainOptions& o, nb::handle x) { set_size<&ExplainOptions::dim>(o, x, "dim"); }},
    {"dk", [](ExplainOptions& o, nb::handle x) { set_size<&ExplainOptions::dk>(o, x, "dk"); }},
    {"dv", [](ExplainOptions& o, nb::handle x) { set_size<&ExplainOptions::dv>(o, x, "dv"); }},
    {"vocabulary", [](ExplainOptions& o, nb::handle x) { set_size<&ExplainOptions::vocabulary>(o, x, "vocabulary"); }},
    {"seed", [](ExplainOptions& o, nb::handle x) { o.seed = seed(x, {function, "seed"}); }},
    {"positions",
     [](ExplainOptions& o, nb::handle x) {
       o.positions = static_cast<Positions>(choice(x, {function, "positions"}, {"none", "sinusoidal", "rotary"}));
     }},
    {"tokens",
     [](ExplainOptions& o, nb::handle x) {
       o.tokens = static_cast<text::Tokens>(choice(x, {function, "tokens"}, {"words", "characters", "auto"}));
     }},
    {"cut_words", [](ExplainOptions& o, nb::handle x) { o.cut_words = cutter(x); }},
    {"w_query", [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::w_query>(o, x, "w_query"); }},
    {"w_key", [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::w_key>(o, x, "w_key"); }},
    {"w_value", [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::w_value>(o, x, "w_value"); }},
    {"embedding", [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::embedding>(o, x, "embedding"); }},
    {"output_projection",
     [](ExplainOptions& o, nb::handle x) { o.output_projection = flag(x, {function, "output_projection"}); }},
    {"w_output", [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::w_output>(o, x, "w_output"); }},
    {"learned_query", [](ExplainOptions& o, nb::handle x) { o.learned_query = flag(x, {function, "learned_query"}); }},
    {"query_vector",
     [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::query_vector>(o, x, "query_vector"); }},
    {"score_w_query",
     [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::score_w_query>(o, x, "score_w_query"); }},
    {"score_w_key",
     [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::score_w_key>(o, x, "score_w_key"); }},
    {"score_w", [](ExplainOptions& o, nb::handle x) { set_matrix<&ExplainOptions::score_w>(o, x, "score_w"); }},
    {"softcap", [](ExplainOptions& o, nb::handle x) { o.softcap = number(x, {function, "softcap"}); }},
    {"temperature", [](ExplainOptions& o, nb::handle x) { o.temperature = number(x, {function, "temperature"}); }},
    {"bias",
     [](ExplainOptions& o, nb::handle x) {
       o.bias =
           static_cast<ExplainBias>(choice(x, {function, "bias"}, {"none", "alibi", "relative", "alibi_symmetric"}));
     }},
    {"score_mod", [](ExplainOptions& o, nb::handle x) { o.score_mod = expression_of(x, function).expression; }},
    {"sink", [](ExplainOptions& o, nb::handle x) { o.sink = number(x, {function, "sink"}); }},
    {"dropout_p", [](ExplainOptions& o, nb::handle x) { o.dropout_p = number(x, {function, "dropout_p"}); }},
    {"weights", [](ExplainOptions& o, nb::handle x) { o.weights = weights_of(x, function).weights; }},
    {"packed", [](ExplainOptions& o, nb::handle x) { o.packed = flag(x, {function, "packed"}); }},
    {"cache", [](ExplainOptions& o,
                 nb::handle x) { o.cache = static_cast<KvStorage>(choice(x, {function, "cache"}, {"same", "int8"})); }},
    {"query", [](ExplainOptions& o, nb::handle x) { o.query = whole(x, {function, "query"}); }},
    {"gradients", [](ExplainOptions& o, nb::handle x) { o.gradients = flag(x, {function, "gradients"}); }},
    {"only", [](ExplainOptions& o, nb::handle x) { o.only = names(x); }},
    {"language",
     [](ExplainOptions& o, nb::handle x) {
       o.language = static_cast<Language>(choice(x, {function, "language"}, {"en", "zh"}));
     }},
};

/// Arguments of explain besides its options: additions to the call, or another mechanism instead of it.
struct Mechanisms {
  ExplainAdditions additions;
  std::optional<LinearRule> linear;
  std::optional<std::int64_t> latent;
  bool tangent = false, adds = false;
};

struct MechanismOption {
  const char* name;
  void (*set)(Mechanisms& to, nb::handle given);
};

std::vector<ExplainRelative> products_of(nb::handle x) {
  const std::string given = word(x, {function, "relative"});
  constexpr std::string_view parser = "ExplainRelative::parse: ";
  try {
    return ExplainRelative::parse(given);
  } catch (const ValueError& error) {
    const std::string_view what = error.what();
    throw ValueError(text("{}: relative: {}", function, what.substr(what.starts_with(parser) ? parser.size() : 0)));
  }
}

constexpr MechanismOption mechanism_options[] = {
    {"relative", [](Mechanisms& m, nb::handle x) { m.additions.relative = products_of(x), m.adds = true; }},
    {"normalizer",
     [](Mechanisms& m, nb::handle x) { m.additions.normalizer = normalizer_of(x, function), m.adds = true; }},
    {"weight_mod",
     [](Mechanisms& m, nb::handle x) {
       m.additions.weight_mod = expression_of(x, function, "weight_mod").expression, m.adds = true;
     }},
    {"linear",
     [](Mechanisms& m, nb::handle x) {
       m.linear = static_cast<LinearRule>(choice(x, {function, "linear"}, {"plain", "decay", "delta", "gated_delta"}));
     }},
    {"latent", [](Mechanisms& m, nb::handle x) { m.latent = whole(x, {function, "latent"}); }},
    {"tangent", [](Mechanisms& m, nb::handle x) { m.tangent = flag(x, {function, "tangent"}); }},
};

/// Reads the options of mechanisms and takes them out of the others.
Mechanisms take_mechanisms(nb::kwargs& options) {
  Mechanisms to;
  for (const MechanismOption& option : mechanism_options) {
    const nb::str name(option.name);
    if (!options.contains(name)) continue;
    const nb::object given = options[name];
    nb::del(options[name]);
    if (!given.is_none()) option.set(to, given);
  }
  std::vector<const char*> chosen;
  if (to.linear) chosen.push_back("linear");
  if (to.latent) chosen.push_back("latent");
  if (to.tangent) chosen.push_back("tangent");
  if (to.adds) chosen.push_back("relative, normalizer or weight_mod");
  if (chosen.size() > 1 && (to.linear || to.latent || to.tangent))
    throw ValueError(text("{}: {} and {} do not go together", function, chosen[0], chosen[1]));
  return to;
}

/// Explains one text with another mechanism.
Explanation with_mechanism(const std::string& given, const Mechanisms& mechanisms, const ExplainOptions& to) {
  if (mechanisms.linear) return explain_linear_attention(given, *mechanisms.linear, to);
  if (mechanisms.latent) return explain_latent_attention(given, *mechanisms.latent, to);
  if (mechanisms.tangent) return explain_tangent(given, to);
  return explain_attention(given, mechanisms.additions, to);
}

Explanation explained(nb::handle given, nb::kwargs options) {
  ExplainOptions to;
  const Mechanisms mechanisms = take_mechanisms(options);
  set_options(function, options, all_options, to);
  if (to.cut_words && to.tokens != text::Tokens::words)
    throw ValueError(text("{}: cut_words is given and tokens is \"{}\"; words are cut by it with tokens=\"words\"",
                          function, to.tokens == text::Tokens::characters ? "characters" : "auto"));
  if (PyUnicode_Check(given.ptr())) return with_mechanism(word(given, {function, "text"}), mechanisms, to);
  if (!PyList_Check(given.ptr()) && !PyTuple_Check(given.ptr()))
    throw type_error("{}: text is a {}; a text or a list of texts is needed", function, name_of_type(given));
  if (mechanisms.linear || mechanisms.latent || mechanisms.tangent)
    throw ValueError(text("{}: {} takes one text, and no list", function,
                          mechanisms.linear   ? "linear"
                          : mechanisms.latent ? "latent"
                                              : "tangent"));
  std::vector<std::string> texts;
  for (nb::handle each : given) texts.push_back(word(each, {function, "a text"}));
  return explain_attention_batch(texts, mechanisms.additions, to);
}

std::string drawn_text(const Explanation& self, nb::handle width, nb::handle colour) {
  TextOptions options;
  const std::int64_t columns = whole(width, {"Explanation.text", "width"});
  if (columns < 1 || columns > 100000)
    throw ValueError(text("Explanation.text: width is {}; it must be from 1 to 100000", columns));
  options.width = static_cast<int>(columns);
  options.colour =
      static_cast<TextOptions::Colour>(choice(colour, {"Explanation.text", "colour"}, {"none", "palette", "rgb"}));
  return to_text(self, options);
}

std::vector<std::string> hidden_of(const ExplainStep& step) {
  constexpr const char* names[] = {"visible", "causal", "window", "mask", "padding", "score", "not_returned"};
  std::vector<std::string> all;
  for (const Hidden each : step.hidden) all.emplace_back(names[static_cast<int>(each)]);
  return all;
}

/// Implements NumPy's __array__. Without it, numpy.asarray(step) would be an array of one object.
nb::object array_of(const ExplainStep& step, nb::handle dtype, nb::handle copy) {
  if (!step.values.defined()) throw type_error("ExplainStep: {} has words, no numbers; they are in rows", step.name);
  const nb::object values = to_python(step.values, Framework::numpy);
  const nb::module_ numpy = nb::module_::import_("numpy");
  // numpy.array of NumPy 1 does not know copy=None
  if (copy.is_none()) return numpy.attr("asarray")(values, nb::arg("dtype") = dtype);
  return numpy.attr("array")(values, nb::arg("dtype") = dtype, nb::arg("copy") = copy);
}

// The functions below read and write the state of pickles and copies: the fields in their order. Only a deep copy gets
// values of its own.

nb::tuple state_of(const ExplainStep& step) {
  const std::vector<int> hidden = [&] {
    std::vector<int> all;
    for (const Hidden each : step.hidden) all.push_back(static_cast<int>(each));
    return all;
  }();
  return nb::make_tuple(static_cast<int>(step.kind), step.name, step.title, step.formula, step.note, step.source,
                        std::vector<std::int64_t>(step.shape.begin(), step.shape.end()),
                        to_python(step.values, Framework::numpy), step.batch, step.heads, step.key_rows, step.rows,
                        step.columns, hidden, step.operation.name, step.operation.inputs, step.operation.operand,
                        step.maximum, step.total, step.places);
}

/// Reads the fields of a state one after the other.
class State {
 public:
  State(const nb::tuple& fields, std::size_t count) : fields_(fields) {
    if (fields.size() != count)
      throw type_error("{}: a pickle of {} fields; {} are needed", function, fields.size(), count);
  }
  nb::object next() { return fields_[n_++]; }
  template <typename T>
  void operator>>(T& field) {
    field = nb::cast<T>(next());
  }

 private:
  nb::tuple fields_;
  std::size_t n_ = 0;
};

template <typename Enum>
Enum one_of(const nb::object& number, Enum last) {
  const int value = nb::cast<int>(number);
  if (value < 0 || value > static_cast<int>(last))
    throw type_error("{}: a pickle with the number {} of a kind; {} is the last that is known here", function, value,
                     static_cast<int>(last));
  return static_cast<Enum>(value);
}

void set_state(ExplainStep& self, const nb::tuple& fields) {
  State state(fields, 20);
  ExplainStep step;
  step.kind = one_of(state.next(), ExplainStep::Kind::checks);
  for (std::string* field : {&step.name, &step.title, &step.formula, &step.note, &step.source}) state >> *field;
  step.shape = Dims(nb::cast<std::vector<std::int64_t>>(state.next()));
  if (const nb::object values = state.next(); !values.is_none()) step.values = keep(values, {function, "values"});
  state >> step.batch;
  state >> step.heads;
  state >> step.key_rows;
  state >> step.rows;
  state >> step.columns;
  for (const nb::handle each : nb::cast<nb::list>(state.next()))
    step.hidden.push_back(one_of(nb::borrow(each), Hidden::not_returned));
  state >> step.operation.name;
  state >> step.operation.inputs;
  state >> step.operation.operand;
  state >> step.maximum;
  state >> step.total;
  state >> step.places;
  new (&self) ExplainStep(std::move(step));
}

nb::tuple state_of_run(const Explanation& run) {
  return nb::make_tuple(run.texts, run.to, run.batch, static_cast<int>(run.language), run.mask, run.query, run.options,
                        run.steps, run.parameters, run.only);
}

void set_state_of_run(Explanation& self, const nb::tuple& fields) {
  State state(fields, 10);
  Explanation run;
  state >> run.texts;
  state >> run.to;
  state >> run.batch;
  run.language = one_of(state.next(), Language::zh);
  state >> run.mask;
  state >> run.query;
  state >> run.options;
  state >> run.steps;
  state >> run.parameters;
  state >> run.only;
  new (&self) Explanation(std::move(run));
}

}  // namespace

void add_explain(nb::module_& m) {
  nb::class_<ExplainStep> step(
      m, "ExplainStep", nb::is_weak_referenceable(),
      "A step of an explanation: name, formula, values, the tokens of its rows and columns, why a pair is hidden.");
  step.attr("__module__") = "attn";
  step.def_ro("name", &ExplainStep::name)
      .def_ro("title", &ExplainStep::title)
      .def_ro("formula", &ExplainStep::formula)
      .def_ro("note", &ExplainStep::note)
      .def_ro("source", &ExplainStep::source)
      .def_prop_ro("kind",
                   [](const ExplainStep& self) {
                     constexpr const char* names[] = {"words", "ids", "table", "pairs", "weights", "keys", "checks"};
                     return names[static_cast<int>(self.kind)];
                   })
      .def_prop_ro("values", [](const ExplainStep& self) { return to_python(self.values, Framework::numpy); })
      .def_prop_ro("operation", [](const ExplainStep& self) { return self.operation.name; })
      .def_prop_ro("inputs", [](const ExplainStep& self) { return self.operation.inputs; })
      .def_prop_ro("operand", [](const ExplainStep& self) { return self.operation.operand; })
      .def_ro("places", &ExplainStep::places)
      .def_ro("rows", &ExplainStep::rows)
      .def_ro("columns", &ExplainStep::columns)
      .def_prop_ro("hidden", hidden_of)
      .def("__repr__",
           [](const ExplainStep& self) {
             const std::string shape = self.values.defined() ? to_string(self.values.sizes()) : "of words";
             return text("<attn.ExplainStep '{}' {}{}{}>", self.name, shape, self.formula.empty() ? "" : ": ",
                         self.formula);
           })
      .def("__getstate__", state_of)
      .def("__setstate__", set_state)
      .def("__array__", array_of, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           "numpy.asarray(step): its values.");
  nb::class_<Explanation>(m, "Explanation", nb::is_weak_referenceable())
      .def("__getstate__", state_of_run)
      .def("__setstate__", set_state_of_run)
      .def_ro("texts", &Explanation::texts)
      .def_ro("to", &Explanation::to)
      .def_ro("mask", &Explanation::mask)
      .def_ro("options", &Explanation::options, "The options as JSON.")
      .def_ro("steps", &Explanation::steps)
      .def_ro("parameters", &Explanation::parameters)
      .def(
          "step",
          [](const Explanation& self, nb::handle name) { return self.step(word(name, {"Explanation.step", "name"})); },
          nb::arg("name").none())
      .def("text", drawn_text, nb::arg("width").none() = 100, nb::arg("colour").none() = "none")
      .def("json", [](const Explanation& self) { return to_json(self); })
      .def("svg", [](const Explanation& self) { return to_svg(self); });
  m.def("explain", explained, nb::arg("text").none(), nb::arg("options"));
}

}  // namespace attn::python
