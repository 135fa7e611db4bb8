// src/explain/options.cc: one table of the options of an explanation, by which they are read from JSON and written.
#include "explain/options.h"

#include "explain/json_values.h"
#include "explain/utf8.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace attn {
namespace explain_detail {
namespace {

using Json = nlohmann::json;
using Words = std::vector<const char*>;

const Words kScores{"scaled_dot", "dot", "general", "additive"};
const Words kPositions{"none", "sinusoidal", "rotary"};
const Words kTokens{"words", "characters", "auto"};
const Words kBiases{"none", "alibi", "relative", "alibi_symmetric"};
const Words kCaches{"same", "int8"};
const Words kLanguages{"en", "zh"};

/// One value of the JSON object, with its name for errors.
struct Field {
  const char* name;
  const Json& value;

  [[noreturn]] void refuse(const std::string& needed) const {
    std::string given = value.is_object()  ? "an object"  // never its text: `dump` is recursive
                        : value.is_array() ? "a list"
                                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (given.size() > 60) given = explain_detail::cut(given, 60);
    throw ValueError(runtime::format("explain_options: {} is {}; {} is needed", name, given, needed));
  }
  std::string text() const {
    if (!value.is_string()) refuse("a text");
    return value.get<std::string>();
  }
  bool flag() const {
    if (!value.is_boolean()) refuse("true or false");
    return value.get<bool>();
  }
  double number() const {
    if (!value.is_number()) refuse("a number");
    return value.get<double>();
  }
  std::int64_t whole() const {
    const bool large = value.is_number_unsigned() && value.get<std::uint64_t>() > std::uint64_t{INT64_MAX};
    if (!value.is_number_integer() || large) refuse("a whole number");
    return value.get<std::int64_t>();
  }
  std::uint64_t seed() const {
    if (!value.is_number_unsigned()) refuse("a whole number from 0 to 2^64 - 1");
    return value.get<std::uint64_t>();
  }
  template <typename Enum>
  Enum word(const Words& words) const {
    for (std::size_t i = 0; i < words.size(); ++i)
      if (value == words[i]) return static_cast<Enum>(i);
    refuse(runtime::format("one of {}", runtime::join(words, ", ")));
  }
};

std::string quoted(const Words& words, int index) { return json_string(words[static_cast<std::size_t>(index)]); }
template <typename Enum>
std::string quoted(const Words& words, Enum value) {
  return quoted(words, static_cast<int>(value));
}
std::string text_of(double value) {
  return std::isfinite(value) ? runtime::format("{}", value) : "null";  // JSON has no other numbers
}
std::string text_of(bool value) { return value ? "true" : "false"; }

struct Option {
  const char* name;
  void (*read)(ExplainOptions& to, const Field& from);
  std::string (*write)(const ExplainOptions& from);  // "null": the default
};

using Options = ExplainOptions;
const Option kOptions[] = {
    {"to", [](Options& o, const Field& f) { o.to = f.text(); },
     [](const Options& o) { return o.to ? json_string(*o.to) : "null"; }},
    {"score", [](Options& o, const Field& f) { o.score = f.word<Score::Kind>(kScores); },
     [](const Options& o) { return quoted(kScores, o.score); }},
    {"mask", [](Options& o, const Field& f) { o.mask = Mask::parse(f.text()); },
     [](const Options& o) { return json_string(o.mask.to_string()); }},
    {"heads", [](Options& o, const Field& f) { o.heads = f.whole(); },
     [](const Options& o) { return std::to_string(o.heads); }},
    {"dim", [](Options& o, const Field& f) { o.dim = f.whole(); },
     [](const Options& o) { return std::to_string(o.dim); }},
    {"dk", [](Options& o, const Field& f) { o.dk = f.whole(); }, [](const Options& o) { return std::to_string(o.dk); }},
    {"dv", [](Options& o, const Field& f) { o.dv = f.whole(); }, [](const Options& o) { return std::to_string(o.dv); }},
    {"seed", [](Options& o, const Field& f) { o.seed = f.seed(); },
     [](const Options& o) { return std::to_string(o.seed); }},
    {"positions", [](Options& o, const Field& f) { o.positions = f.word<Positions>(kPositions); },
     [](const Options& o) { return quoted(kPositions, o.positions); }},
    {"tokens", [](Options& o, const Field& f) { o.tokens = f.word<text::Tokens>(kTokens); },
     [](const Options& o) { return quoted(kTokens, o.tokens); }},
    {"softcap", [](Options& o, const Field& f) { o.softcap = f.number(); },
     [](const Options& o) { return text_of(o.softcap); }},
    {"temperature", [](Options& o, const Field& f) { o.temperature = f.number(); },
     [](const Options& o) { return text_of(o.temperature); }},
    {"bias", [](Options& o, const Field& f) { o.bias = f.word<ExplainBias>(kBiases); },
     [](const Options& o) { return quoted(kBiases, o.bias); }},
    {"score_mod", [](Options& o, const Field& f) { o.score_mod = ScoreExpression::parse(f.text()); },
     [](const Options& o) { return o.score_mod.empty() ? "null" : json_string(o.score_mod.to_string()); }},
    {"sink", [](Options& o, const Field& f) { o.sink = f.number(); },
     [](const Options& o) { return o.sink ? text_of(*o.sink) : "null"; }},
    {"dropout_p", [](Options& o, const Field& f) { o.dropout_p = f.number(); },
     [](const Options& o) { return text_of(o.dropout_p); }},
    {"weights", [](Options& o, const Field& f) { o.weights = Weights::parse(f.text()); },
     [](const Options& o) { return json_string(o.weights.to_string()); }},
    {"packed", [](Options& o, const Field& f) { o.packed = f.flag(); },
     [](const Options& o) { return text_of(o.packed); }},
    {"cache", [](Options& o, const Field& f) { o.cache = f.word<KvStorage>(kCaches); },
     [](const Options& o) { return o.cache ? quoted(kCaches, *o.cache) : "null"; }},
    {"query", [](Options& o, const Field& f) { o.query = f.whole(); },
     [](const Options& o) { return o.query ? std::to_string(*o.query) : "null"; }},
    {"gradients", [](Options& o, const Field& f) { o.gradients = f.flag(); },
     [](const Options& o) { return text_of(o.gradients); }},
    {"language", [](Options& o, const Field& f) { o.language = f.word<Language>(kLanguages); },
     [](const Options& o) { return quoted(kLanguages, o.language); }},
};

}  // namespace

std::string options_json(const ExplainOptions& options) {
  std::string result = "{";
  for (const Option& option : kOptions)
    result += runtime::format("{}\"{}\": {}", &option == kOptions ? "" : ", ", option.name, option.write(options));
  return result + "}";
}

}  // namespace explain_detail

ExplainOptions explain_options(std::string_view json) {
  using explain_detail::Json;
  Json object;
  try {
    object = Json::parse(json);
  } catch (const Json::parse_error& error) { throw FormatError("explain_options: not JSON", error.byte); }
  if (!object.is_object()) throw FormatError("explain_options: a JSON object is needed", 0);
  ExplainOptions options;
  for (const auto& [name, value] : object.items()) {
    const explain_detail::Option* found = nullptr;
    std::string names;
    for (const explain_detail::Option& option : explain_detail::kOptions) {
      if (name == option.name) found = &option;
      names += (names.empty() ? "" : ", ") + std::string(option.name);
    }
    if (found == nullptr)
      throw ValueError(runtime::format("explain_options: there is no option {}; there are {}",
                                       explain_detail::json_string(name.substr(0, 60)), names));
    if (!value.is_null()) found->read(options, {found->name, value});
  }
  return options;
}

}  // namespace attn
