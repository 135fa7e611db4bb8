// src/model/explain_options.cc: reads the options of an explanation from JSON. It is in the library of models, which
// parses whole JSON documents anyway; libattn reads only the JSON header of safetensors files.
#include <attn/error.h>
#include <attn/explain_model.h>

#include "explain/json_values.h"
#include "explain/options.h"
#include "explain/utf8.h"
#include "model/json_fields.h"
#include "text/error_text.h"

#include "runtime/format.h"

#include <nlohmann/json.hpp>

namespace attn {
namespace {

using Json = nlohmann::json;
using namespace explain_detail;

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
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    if (!value.is_array()) refuse("a list of names");
    for (const Json& each : value) result.push_back(Field{name, each}.text());
    return result;
  }
  template <typename Enum, typename Words>
  Enum word(const Words& words) const {
    for (std::size_t i = 0; i < words.size(); ++i)
      if (value == words[i]) return static_cast<Enum>(i);
    refuse(runtime::format("one of {}", runtime::join(words, ", ")));
  }
};

struct Option {
  const char* name;
  void (*read)(ExplainOptions& to, const Field& from);
};

using Options = ExplainOptions;
const Option kOptions[] = {
    {"to", [](Options& o, const Field& f) { o.to = f.text(); }},
    {"score", [](Options& o, const Field& f) { o.score = f.word<Score::Kind>(kScores); }},
    {"mask", [](Options& o, const Field& f) { o.mask = Mask::parse(f.text()); }},
    {"heads", [](Options& o, const Field& f) { o.heads = f.whole(); }},
    {"dim", [](Options& o, const Field& f) { o.dim = f.whole(); }},
    {"dk", [](Options& o, const Field& f) { o.dk = f.whole(); }},
    {"dv", [](Options& o, const Field& f) { o.dv = f.whole(); }},
    {"vocabulary", [](Options& o, const Field& f) { o.vocabulary = f.whole(); }},
    {"seed", [](Options& o, const Field& f) { o.seed = f.seed(); }},
    {"positions", [](Options& o, const Field& f) { o.positions = f.word<Positions>(kPositions); }},
    {"tokens", [](Options& o, const Field& f) { o.tokens = f.word<text::Tokens>(kTokens); }},
    {"output_projection", [](Options& o, const Field& f) { o.output_projection = f.flag(); }},
    {"learned_query", [](Options& o, const Field& f) { o.learned_query = f.flag(); }},
    {"softcap", [](Options& o, const Field& f) { o.softcap = f.number(); }},
    {"temperature", [](Options& o, const Field& f) { o.temperature = f.number(); }},
    {"bias", [](Options& o, const Field& f) { o.bias = f.word<ExplainBias>(kBiases); }},
    {"score_mod", [](Options& o, const Field& f) { o.score_mod = ScoreExpression::parse(f.text()); }},
    {"sink", [](Options& o, const Field& f) { o.sink = f.number(); }},
    {"dropout_p", [](Options& o, const Field& f) { o.dropout_p = f.number(); }},
    {"weights", [](Options& o, const Field& f) { o.weights = Weights::parse(f.text()); }},
    {"packed", [](Options& o, const Field& f) { o.packed = f.flag(); }},
    {"cache", [](Options& o, const Field& f) { o.cache = f.word<KvStorage>(kCaches); }},
    {"query", [](Options& o, const Field& f) { o.query = f.whole(); }},
    {"gradients", [](Options& o, const Field& f) { o.gradients = f.flag(); }},
    {"only", [](Options& o, const Field& f) { o.only = f.names(); }},
    {"language", [](Options& o, const Field& f) { o.language = f.word<Language>(kLanguages); }},
};

}  // namespace

ExplainOptions explain_options(std::string_view json) {
  const Json object = parse_json(json, "explain_options");
  if (!object.is_object()) throw FormatError("explain_options: a JSON object is needed", 0);
  ExplainOptions options;
  for (const auto& [name, value] : object.items()) {
    const Option* found = nullptr;
    std::string names;
    for (const Option& option : kOptions) {
      if (name == option.name) found = &option;
      names += (names.empty() ? "" : ", ") + std::string(option.name);
    }
    if (found == nullptr)
      throw ValueError(runtime::format("explain_options: there is no option {}; there are {}",
                                       json_string(std::string(text::beginning(name, 60))), names));
    if (!value.is_null()) found->read(options, {found->name, value});
  }
  return options;
}

}  // namespace attn
