// src/explain/mechanism.cc: builds the steps of a mechanism that `explain` does not run.
#include "explain/mechanism.h"

#include "explain/formula_words.h"
#include "explain/words.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>

namespace attn::explain_detail {

Mechanism::Mechanism(const std::string& text, const ExplainOptions& given, const char* last,
                     const std::vector<std::string>& parameters)
    : options(given), generator_(given.seed + 1) {
  ExplainOptions first = given;
  first.only = {};
  if (*last != '\0') first.query = {};  // the steps that work out a row are behind it
  result = explain(text, first);
  result.options = "";  // they explain softmax attention
  result.only = given.only;
  auto& steps = result.steps;
  const auto end = std::find_if(steps.begin(), steps.end(), [&](const ExplainStep& step) { return step.name == last; });
  if (end != steps.end()) steps.erase(end + 1, steps.end());
  std::erase_if(result.parameters, [&](const ExplainStep& step) {
    return std::find(parameters.begin(), parameters.end(), step.name) == parameters.end();
  });
}

ExplainStep& Mechanism::add(Kind kind, const What& what, const Tensor& values, std::vector<std::string> rows) {
  ExplainStep step;
  step.kind = kind;
  step.name = what.name;
  step.title = say(what.title);
  step.formula = in_words(result.language, what.formula);
  step.note = say(what.note);
  step.operation = what.operation;
  step.source = what.source;
  step.heads = values.dim() > 2 ? values.size(-3) : 1;
  if (step.heads > 1) step.shape.push_back(step.heads);
  step.shape.push_back(values.size(-2));
  step.shape.push_back(values.size(-1));
  step.values = values.detach().contiguous().reshape(step.shape);
  const auto& tokens = result.step("tokens").rows;
  step.rows = rows.empty() ? tokens : std::vector<std::vector<std::string>>{std::move(rows)};
  if (kind == Kind::pairs || kind == Kind::weights) step.columns = tokens;
  result.steps.push_back(std::move(step));
  return result.steps.back();
}

void Mechanism::add_parameter(const char* name, const char* title, const Tensor& values) {
  ExplainStep step;
  step.name = name;
  step.title = title;
  step.source = source("rand");
  step.heads = values.dim() > 2 ? values.size(-3) : 1;
  if (step.heads > 1) step.shape.push_back(step.heads);
  step.shape.push_back(values.size(-2));
  step.shape.push_back(values.size(-1));
  step.values = values.contiguous().reshape(step.shape);
  step.rows = {numbered("", values.size(-2))};
  result.parameters.push_back(std::move(step));
}

Tensor Mechanism::drawn(const Dims& sizes) { return rand(sizes, generator_); }

std::string Mechanism::source(const std::string& what) const {
  return runtime::format(fmt::runtime(explain_detail::say(result.language, Phrase::source_random)), what,
                         options.seed + 1);
}

Tensor Mechanism::values_of(const std::string& step) const {
  const Tensor values = result.step(step).values;
  return values.dim() == 3 ? values.unsqueeze(0) : values.unsqueeze(0).unsqueeze(0);
}

void refuse_options(const char* mechanism, std::span<const NotThere> given) {
  for (const NotThere& each : given)
    if (each.given)
      throw ValueError(runtime::format("explain: {} has no option {}; leave it out", mechanism, each.option));
}

void refuse_options_but(const std::vector<std::string_view>& has, const char* mechanism, const ExplainOptions& given) {
  std::vector<NotThere> all{{"to", given.to.has_value()},
                            {"score", given.score != Score::Kind::scaled_dot},
                            {"mask", !given.mask.is_all()},
                            {"softcap", given.softcap != 0},
                            {"temperature", given.temperature != 1},
                            {"bias", given.bias != ExplainBias::none},
                            {"score_mod", !given.score_mod.empty()},
                            {"sink", given.sink.has_value()},
                            {"dropout_p", given.dropout_p != 0},
                            {"weights", !(given.weights == Weights::none)},
                            {"packed", given.packed},
                            {"cache", given.cache.has_value()},
                            {"query", given.query.has_value()},
                            {"gradients", given.gradients},
                            {"positions", given.positions != Positions::none},
                            {"output_projection", given.output_projection},
                            {"learned_query", given.learned_query}};
  std::erase_if(all, [&](const NotThere& each) { return std::find(has.begin(), has.end(), each.option) != has.end(); });
  refuse_options(mechanism, all);
}

std::vector<std::string> numbered(const char* name, std::int64_t count) {
  std::vector<std::string> labels;
  for (std::int64_t n = 1; n <= count; ++n)
    labels.push_back(*name != '\0' ? runtime::format("{} {}", name, n) : runtime::format("{}", n));
  return labels;
}

}  // namespace attn::explain_detail
