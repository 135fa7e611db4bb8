// src/attention/normalizer/normalizer.cc: names the normalizers, and checks them against the options of a call.
#include <attn/normalizer.h>

#include <attn/error.h>

#include "attention/normalizer/lowered_normalizer.h"
#include "runtime/enum_value.h"
#include "runtime/format.h"

#include <charconv>
#include <cmath>

namespace attn {
namespace {

using Kind = Normalizer::Kind;

struct NamedNormalizer {
  const char* name;
  Kind kind;
  bool has_number;
};
constexpr NamedNormalizer normalizer_names[] = {
    {"softmax", Kind::softmax, false},   {"softmax1", Kind::softmax1, false},
    {"sigmoid", Kind::sigmoid, true},    {"sparsemax", Kind::sparsemax, false},
    {"entmax15", Kind::entmax15, false}, {"relu_squared", Kind::relu_squared, true},
};

}  // namespace

Normalizer Normalizer::softmax() { return {}; }
Normalizer Normalizer::softmax1() { return {.kind = Kind::softmax1}; }
Normalizer Normalizer::sigmoid(std::optional<double> bias) { return {.kind = Kind::sigmoid, .number = bias}; }
Normalizer Normalizer::sparsemax() { return {.kind = Kind::sparsemax}; }
Normalizer Normalizer::entmax15() { return {.kind = Kind::entmax15}; }
Normalizer Normalizer::relu_squared(std::optional<double> scale) {
  return {.kind = Kind::relu_squared, .number = scale};
}

std::string Normalizer::to_string() const {
  for (const NamedNormalizer& each : normalizer_names)
    if (each.kind == kind) return number ? runtime::format("{}({})", each.name, *number) : std::string(each.name);
  return "";
}

Normalizer Normalizer::parse(const std::string& text) {
  const std::size_t open = text.find('(');
  for (const NamedNormalizer& each : normalizer_names) {
    if (text.compare(0, open, each.name) != 0) continue;
    Normalizer result{.kind = each.kind};
    if (open == std::string::npos) return result;
    if (!each.has_number || text.back() != ')') break;
    double number = 0;
    const char* const end = text.data() + text.size() - 1;
    const auto [stop, error] = std::from_chars(text.data() + open + 1, end, number);
    if (error != std::errc() || stop != end) break;
    result.number = number;
    return result;
  }
  throw ValueError(runtime::format(
      "Normalizer::parse: \"{}\"; it must be softmax, softmax1, sigmoid, sigmoid(BIAS), sparsemax, entmax15, "
      "relu_squared or relu_squared(SCALE)",
      text));
}

std::ostream& operator<<(std::ostream& out, const Normalizer& normalizer) { return out << normalizer.to_string(); }

void check_normalizer(const char* function, const AttentionOptions& options) {
  const Kind kind = options.normalizer.kind;
  runtime::check_enum(kind, Kind::relu_squared, "{}: the kind of the normalizer", function);
  const std::string name = options.normalizer.to_string();
  const bool takes_number = kind == Kind::sigmoid || kind == Kind::relu_squared;
  if (options.normalizer.number && (!takes_number || !std::isfinite(*options.normalizer.number)))
    throw ValueError(
        runtime::format("{}: the number of the normalizer {} is {}; sigmoid and relu_squared take a finite one",
                        function, name, *options.normalizer.number));
  if (options.normalizer.number && kind == Kind::relu_squared && *options.normalizer.number < 0)
    throw ValueError(
        runtime::format("{}: the scale of the normalizer {} is negative; it must be at least 0", function, name));
  if (options.sinks.defined() && kind == Kind::softmax1)
    throw ValueError(runtime::format(
        "{}: sinks are given with the normalizer softmax1, which is softmax with sinks of 0", function));
  if (options.sinks.defined() && kind != Kind::softmax)
    throw ValueError(runtime::format(
        "{}: sinks are given with the normalizer {}; they are logits in the sum of softmax", function, name));
  if (options.score_callback.function && has_normalizer(options))
    throw ValueError(
        runtime::format("{}: a score_callback is given with {}; write it as a score_mod", function,
                        options.weight_mod.empty() ? "the normalizer " + name : std::string("a weight_mod")));
}

}  // namespace attn
