// python/src/call.cc: converts each option of attention from Python to the library, by name.
#include "call.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "integers.h"
#include "scalars.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace attn::python {
namespace {

PyBias bias_of(nb::handle x, const char* function) {
  if (PyUnicode_Check(x.ptr()))
    throw type_error("{}: bias is a str; an attn.Bias is needed, as attn.Bias.alibi(heads), or an array of numbers",
                     function);
  if (const PyBias* given = as<PyBias>(x)) return *given;
  return {Bias::dense(keep(x, {function, "bias"})), {nb::borrow(x)}};
}

}  // namespace

PyScoreExpression expression_of(nb::handle x, const char* function, const char* name) {
  if (const PyScoreExpression* given = as<PyScoreExpression>(x)) return *given;
  throw type_error("{}: {} is a {}; an attn.ScoreExpression is needed, or a function of (s, b, h, i, j)", function,
                   name, name_of_type(x));
}

Normalizer normalizer_of(nb::handle x, const char* function) {
  if (!PyUnicode_Check(x.ptr()))
    throw type_error("{}: normalizer is a {}; a text is needed, such as \"sparsemax\" or \"sigmoid(-3)\"", function,
                     name_of_type(x));
  try {
    return Normalizer::parse(nb::cast<std::string>(x));
  } catch (const ValueError& error) { throw ValueError(text("{}: {}", function, error.what())); }
}

namespace {

PyWeights rows_of(nb::handle x, const Argument& at) {
  const nb::object indices = integers(x, at);
  return {Weights::rows(keep(indices, at)), {indices}};
}

/// Parses "rows(0, -1)" and "top_k(3)", which the command also accepts; returns nullopt for other texts.
std::optional<PyWeights> listed_weights(const std::string& given, const char* function) {
  const std::size_t open = given.find('(');
  const std::string name = given.substr(0, open);
  if (name != "rows" && name != "top_k") return std::nullopt;
  const auto refuse = [&]() {
    throw ValueError(
        text("{}: weights is \"{}\"; rows take their numbers, \"rows(0, 5)\", top_k how many, \"top_k(3)\"", function,
             given));
  };
  if (open == std::string::npos || !given.ends_with(')')) refuse();
  std::vector<std::int64_t> numbers;
  for (std::size_t at = open; at + 1 < given.size();) {
    const std::size_t end = given.find_first_of(",)", at + 1);
    std::string_view number = std::string_view(given).substr(at + 1, end - at - 1);
    number.remove_prefix(std::min(number.find_first_not_of(' '), number.size()));
    number.remove_suffix(number.size() - (number.find_last_not_of(' ') + 1));
    std::int64_t value = 0;
    const auto [stop, wrong] = std::from_chars(number.data(), number.data() + number.size(), value);
    const bool nothing = number.empty() && numbers.empty() && end + 1 == given.size();  // "rows()"
    if (!nothing && (wrong != std::errc() || stop != number.data() + number.size())) refuse();
    if (!nothing) numbers.push_back(value);
    at = end;
  }
  if (name == "rows") return rows_of(nb::cast(numbers), {function, "weights"});
  if (numbers.size() != 1) refuse();
  return PyWeights{Weights::top_k(numbers[0])};
}

}  // namespace

PyWeights weights_of(nb::handle x, const char* function) {
  if (const PyWeights* given = as<PyWeights>(x)) return *given;
  if (PyUnicode_Check(x.ptr()))
    if (auto listed = listed_weights(word(x, {function, "weights"}), function)) return *std::move(listed);
  constexpr Weights::Kind all[] = {Weights::none, Weights::full, Weights::head_average, Weights::column_sums};
  return {
      all[choice(x, {function, "weights"}, {"none", "full", "head_average", "column_sums", "rows(0, 5)", "top_k(3)"})]};
}

namespace {

struct Option {
  const char* name;
  void (*set)(Call& call, nb::handle given);
};

/// Reads an option that is a number.
template <double AttentionOptions::* member>
void set_number(Call& call, nb::handle given, const char* name) {
  call.options.*member = number(given, {call.read.function(), name});
}

/// Reads an option that is an array of lengths, starts or offsets.
template <Tensor AttentionOptions::* member>
void set_integers(Call& call, nb::handle given, const char* name) {
  call.options.*member = call.read.integers(given, name);
}

constexpr Option all_options[] = {
    {"score", [](Call& c, nb::handle x) { c.score = score_of(x, c.read.function()); }},
    {"scale", [](Call& c, nb::handle x) { c.options.scale = number(x, {c.read.function(), "scale"}); }},
    {"mask", [](Call& c, nb::handle x) { c.options.mask = mask_of(x, c.read.function()).mask; }},
    {"bias", [](Call& c, nb::handle x) { c.bias = bias_of(x, c.read.function()); }},
    {"score_mod", [](Call& c, nb::handle x) { c.score_mod = expression_of(x, c.read.function()); }},
    {"normalizer", [](Call& c, nb::handle x) { c.options.normalizer = normalizer_of(x, c.read.function()); }},
    {"weight_mod", [](Call& c, nb::handle x) { c.weight_mod = expression_of(x, c.read.function(), "weight_mod"); }},
    {"softcap", [](Call& c, nb::handle x) { set_number<&AttentionOptions::softcap>(c, x, "softcap"); }},
    {"temperature", [](Call& c, nb::handle x) { set_number<&AttentionOptions::temperature>(c, x, "temperature"); }},
    {"sinks", [](Call& c, nb::handle x) { c.sinks = x, c.options.sinks = c.read(x, "sinks"); }},
    {"query_lengths",
     [](Call& c, nb::handle x) { set_integers<&AttentionOptions::query_lengths>(c, x, "query_lengths"); }},
    {"key_lengths", [](Call& c, nb::handle x) { set_integers<&AttentionOptions::key_lengths>(c, x, "key_lengths"); }},
    {"key_start", [](Call& c, nb::handle x) { set_integers<&AttentionOptions::key_start>(c, x, "key_start"); }},
    {"query_start", [](Call& c, nb::handle x) { set_integers<&AttentionOptions::query_start>(c, x, "query_start"); }},
    {"cu_seqlens_q",
     [](Call& c, nb::handle x) { set_integers<&AttentionOptions::cu_seqlens_q>(c, x, "cu_seqlens_q"); }},
    {"cu_seqlens_k",
     [](Call& c, nb::handle x) { set_integers<&AttentionOptions::cu_seqlens_k>(c, x, "cu_seqlens_k"); }},
    {"dropout_p", [](Call& c, nb::handle x) { set_number<&AttentionOptions::dropout_p>(c, x, "dropout_p"); }},
    {"dropout_seed",
     [](Call& c, nb::handle x) { c.options.dropout_seed = seed(x, {c.read.function(), "dropout_seed"}); }},
    {"weights", [](Call& c, nb::handle x) { c.options.weights = weights_of(x, c.read.function()).weights; }},
    {"return_logsumexp",
     [](Call& c, nb::handle x) { c.wants_logsumexp = flag(x, {c.read.function(), "return_logsumexp"}); }},
    {"out", [](Call& c, nb::handle x) { c.out = x; }},
};

}  // namespace

nb::tuple shown(const AttentionResult& result, nb::object output, const Call& call) {
  const Framework framework = call.read.framework();
  const auto array = [&](const Tensor& x) { return to_python(x.defined() ? x.detach() : x, framework); };
  nb::object weights = array(result.weights);
  if (result.weight_keys.defined()) weights = nb::make_tuple(weights, array(result.weight_keys));
  return nb::make_tuple(output.is_valid() ? output : array(result.output), weights,
                        call.wants_logsumexp ? array(result.logsumexp) : nb::none(), PyPlan{result.plan},
                        result.dropout_seed);
}

void add_weights(nb::module_& m) {
  nb::class_<PyWeights> c(
      m, "Weights",
      R"doc(Which attention weights a call returns, beside the names "full" [B, Hq, Tq, Tk], "head_average"
[B, Tq, Tk] and "column_sums" [B, Hq, Tk].

The weights are stored while the rows are computed: memory is needed for the requested ones, not for the whole matrix.

    >>> import attn, numpy as np
    >>> x = np.eye(4, dtype=np.float32)
    >>> output, (largest, keys) = attn.attention(x, x, x, weights=attn.Weights.top_k(2))
    >>> keys[:, 0].tolist()
    [0, 1, 2, 3])doc");
  c.def_static(
       "rows", [](nb::handle x) { return rows_of(x, {"Weights.rows", "indices"}); }, nb::arg("indices").none(),
       "Those of some rows, whole numbers [n], in that order: [B, Hq, n, Tk]. -1 is the last row.")
      .def_static(
          "top_k", [](nb::handle n) { return PyWeights{Weights::top_k(whole(n, {"Weights.top_k", "n"}))}; },
          nb::arg("n").none(),
          "The n largest of each row and their keys, [B, Hq, Tq, n] each, descending; where fewer are above 0: 0 and "
          "key -1.")
      .def_prop_ro(
          "kind", [](const PyWeights& self) { return self.weights.kind == Weights::largest ? "top_k" : "rows"; },
          "\"rows\" or \"top_k\".")
      .def_prop_ro(
          "count",
          [](const PyWeights& self) {
            return self.weights.kind == Weights::largest ? self.weights.count : self.weights.indices.numel();
          },
          "How many rows, or how many weights of each row.")
      .def_prop_ro(
          "arrays", [](const PyWeights& self) { return self.arrays; }, "The indices of the rows, if any.")
      .def("__reduce__",
           [](const PyWeights& self) {
             return self.arrays.empty() ? made_again<PyWeights>("top_k", self.weights.count)
                                        : made_again<PyWeights>("rows", self.arrays[0]);
           })
      .def("__repr__", [](const PyWeights& self) {
        if (self.arrays.empty()) return text("attn.Weights.top_k({})", self.weights.count);
        return text("attn.Weights.rows({} {})", torch_name_of(self.weights.indices.dtype()),
                    to_string(self.weights.indices.sizes()));
      });
  c.attr("__module__") = "attn";
  m.def("_weights", [](nb::handle x) { return weights_of(x, "attention"); }, nb::arg("x").none());
  m.def(
      "_integers",
      [](nb::handle x, const std::string& function, const std::string& name) {
        return integers(x, {function.c_str(), name.c_str()});
      },
      nb::arg("x").none(), nb::arg("function"), nb::arg("name"));
}

PyMask mask_of(nb::handle x, const char* function) {
  if (const PyMask* given = as<PyMask>(x)) return *given;
  if (PyUnicode_Check(x.ptr())) return {Mask::parse(word(x, {function, "mask"}))};
  throw type_error(
      "{}: mask is a {}; an attn.Mask or its text is needed. A boolean array: attn.Mask.attend(x) where True takes "
      "part, attn.Mask.block(x) where True is masked",
      function, name_of_type(x));
}

PyScore score_of(nb::handle x, const char* function) {
  if (const PyScore* given = as<PyScore>(x)) return *given;
  if (!PyUnicode_Check(x.ptr()))
    throw type_error(
        "{}: score is a {}; \"scaled_dot\", \"dot\", an attn.Score or a function of (s, b, h, i, j) is needed",
        function, name_of_type(x));
  return {choice(x, {function, "score"}, {"scaled_dot", "dot"}) == 0 ? Score::scaled_dot() : Score::dot(), {}};
}

nb::tuple option_names() {
  nb::list names;
  for (const Option& option : all_options) names.append(option.name);
  return nb::tuple(names);
}

Call::Call(const char* function, nb::handle q_array, nb::handle k_array, nb::handle v_array, nb::handle given,
           bool keeps, const char* q_name)
    : read(function, keeps) {
  const bool cached = !k_array.is_valid();
  q = read(q_array, q_name);
  k = cached ? Tensor() : read(k_array, "k");
  v = cached ? Tensor() : read(v_array, "v");
  constexpr auto count = static_cast<Py_ssize_t>(std::size(all_options));
  if (!PyTuple_Check(given.ptr()) || PyTuple_Size(given.ptr()) != count)
    throw type_error("{}: options must be a tuple of {}", function, count);
  for (Py_ssize_t n = 0; n < count; ++n)
    if (const nb::handle x = PyTuple_GetItem(given.ptr(), n); !x.is_none()) all_options[n].set(*this, x);
  if (read.framework() != Framework::torch) {
    for (const nb::object& each : score.arrays) refuse_gradient(each, {function, "an array of score"});
    for (const nb::object& each : bias.arrays) refuse_gradient(each, {function, "an array of bias"});
    for (const PyLookup& each : score_mod.arrays) refuse_gradient(each.array, {function, "an array of score_mod"});
    for (const PyLookup& each : weight_mod.arrays) refuse_gradient(each.array, {function, "an array of weight_mod"});
  }
  options.score = score.score;
  options.bias = bias.bias;
  options.score_mod = score_mod.expression;
  options.weight_mod = weight_mod.expression;
  using Kind = Normalizer::Kind;
  if (wants_logsumexp && options.normalizer.kind != Kind::softmax && options.normalizer.kind != Kind::softmax1)
    throw ValueError(text("{}: return_logsumexp is given; weights of the normalizer {} have no logsumexp", function,
                          options.normalizer.to_string()));
}

std::vector<Leaf> Call::leaves(nb::handle q_array, nb::handle k_array, nb::handle v_array) {
  std::vector<Leaf> leaves{{&q, nb::borrow(q_array)}, {&k, nb::borrow(k_array)}, {&v, nb::borrow(v_array)}};
  if (options.sinks.defined()) leaves.push_back({&options.sinks, nb::borrow(sinks)});
  Tensor* const parts[] = {score.arrays.size() == 1 ? &options.score.w : &options.score.w_q, &options.score.w_k,
                           &options.score.w};
  for (std::size_t n = 0; n < score.arrays.size(); ++n) {
    *parts[n] = parts[n]->detach();
    leaves.push_back({parts[n], score.arrays[n]});
  }
  bias_values_.clear();
  for (const Bias::Term& term : bias.bias.terms())
    for (const Tensor& x : {term.values, term.operand})
      if (x.defined()) bias_values_.push_back(x.detach());
  for (std::size_t n = 0; n < bias.arrays.size(); ++n)
    if (!bias.arrays[n].is_none()) leaves.push_back({&bias_values_[n], bias.arrays[n]});
  mod_values_.clear();
  std::vector<nb::object> arrays;
  std::vector<const void*> seen;  // a tensor that both look up has one gradient
  for (const PyScoreExpression* expression : {&score_mod, &weight_mod}) {
    for (const ScoreExpression& lookup : expression->expression.lookups()) {
      const Tensor& values = lookup.tensor();
      if (std::find(seen.begin(), seen.end(), values.impl()) != seen.end()) continue;
      seen.push_back(values.impl());
      mod_values_.push_back(values);
      arrays.push_back(expression->array_of(values));
    }
  }
  for (std::size_t n = 0; n < arrays.size(); ++n) leaves.push_back({&mod_values_[n], arrays[n]});
  return leaves;
}

void Call::join() {
  Bias joined;
  auto values = bias_values_.begin();
  for (const Bias::Term& term : bias.bias.terms()) {
    const Tensor own = *values++;
    joined = joined + with_values(term, own, term.operand.defined() ? *values++ : Tensor());
  }
  options.bias = joined;
}

}  // namespace attn::python
