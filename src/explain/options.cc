// src/explain/options.cc: writes the options of an explanation as JSON.
#include "explain/options.h"

#include "explain/json_values.h"

#include "runtime/format.h"

#include <cmath>

namespace attn::explain_detail {
namespace {

template <typename Words, typename Enum>
std::string quoted(const Words& words, Enum value) {
  return json_string(words[static_cast<std::size_t>(value)]);
}
std::string text_of(double value) {
  return std::isfinite(value) ? runtime::format("{}", value) : "null";  // JSON has no infinity and no nan
}
std::string text_of(bool value) { return value ? "true" : "false"; }

}  // namespace

std::string options_json(const ExplainOptions& o) {
  const std::pair<const char*, std::string> fields[] = {
      {"to", o.to ? json_string(*o.to) : "null"},
      {"score", quoted(kScores, o.score)},
      {"mask", json_string(o.mask.to_string())},
      {"heads", std::to_string(o.heads)},
      {"dim", std::to_string(o.dim)},
      {"dk", std::to_string(o.dk)},
      {"dv", std::to_string(o.dv)},
      {"vocabulary", std::to_string(o.vocabulary)},
      {"seed", std::to_string(o.seed)},
      {"positions", quoted(kPositions, o.positions)},
      {"tokens", quoted(kTokens, o.tokens)},
      {"output_projection", text_of(o.output_projection)},
      {"learned_query", text_of(o.learned_query)},
      {"softcap", text_of(o.softcap)},
      {"temperature", text_of(o.temperature)},
      {"bias", quoted(kBiases, o.bias)},
      {"score_mod", o.score_mod.empty() ? "null" : json_string(o.score_mod.to_string())},
      {"sink", o.sink ? text_of(*o.sink) : "null"},
      {"dropout_p", text_of(o.dropout_p)},
      {"weights", json_string(o.weights.to_string())},
      {"packed", text_of(o.packed)},
      {"cache", o.cache ? quoted(kCaches, *o.cache) : "null"},
      {"query", o.query ? std::to_string(*o.query) : "null"},
      {"gradients", text_of(o.gradients)},
      {"only", o.only.empty() ? "null" : json_list(o.only)},
      {"language", quoted(kLanguages, o.language)},
  };
  std::string result;
  for (const auto& [name, value] : fields)
    result += runtime::format("{}\"{}\": {}", result.empty() ? "{" : ", ", name, value);
  return result + "}";
}

}  // namespace attn::explain_detail
