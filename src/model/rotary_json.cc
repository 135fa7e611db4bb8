// src/model/rotary_json.cc: reads and writes rotary embedding in config.json: theta, the scaling of each rope_type, the
// part of a head that is rotated.
#include "model/rotary_json.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace attn {
namespace {

using Kind = nn::RotaryScaling::Kind;

// in the order of the enumeration
constexpr std::array<const char*, 5> kind_names = {"llama3", "linear", "dynamic", "yarn", "longrope"};
constexpr const char* original = "original_max_position_embeddings";

/// Returns the context of the training. If config.json also has the field at its top level, both must agree, because
/// versions of transformers differ in which one they use. Phi-3 has it at the top level only.
std::int64_t original_context(const JsonFields& fields, const JsonFields& parameters, std::int64_t context,
                              Family family) {
  if (family == Family::phi3) return fields.integer(original, 4096);
  const std::int64_t said = parameters.integer(original, context);
  if (fields.has(original) && fields.integer(original) != said)
    fields.refuse(original, "it must be that of the rotary parameters, " + std::to_string(said));
  return said;
}

/// Returns YaRN's factor of cos and sin; 0 for the default. Two magnitudes give it, as in DeepSeek's files.
double attention_factor(const JsonFields& parameters, double factor) {
  if (!parameters.at("attention_factor").is_null()) return parameters.number("attention_factor");
  const double above = parameters.number("mscale", 0), below = parameters.number("mscale_all_dim", 0);
  if (above == 0 || below == 0) return 0;
  const auto magnitude = [&](double scale) { return factor <= 1 ? 1 : 0.1 * scale * std::log(factor) + 1; };
  return magnitude(above) / magnitude(below);
}

/// Returns the factor of a file that does not say it.
double factor_of(std::int64_t context, const nn::RotaryScaling& scaling) {
  return static_cast<double>(context) / static_cast<double>(scaling.original_context);
}

std::vector<double> numbers(const JsonFields& parameters, const char* field) {
  const nlohmann::json& list = parameters.at(field);
  std::vector<double> result;
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const auto& x) { return x.is_number(); }))
    parameters.refuse(field, "it must be a list of numbers");
  for (const auto& number : list) result.push_back(number.get<double>());
  return result;
}

nn::RotaryScaling read_scaling(const JsonFields& fields, const JsonFields& parameters, Kind kind, std::int64_t context,
                               Family family) {
  nn::RotaryScaling scaling;
  scaling.kind = kind;
  if (kind == Kind::dynamic) {  // attn's own files say it
    scaling.original_context = family == Family::attn ? parameters.integer(original, context) : context;
  } else if (kind != Kind::linear) {
    if (kind == Kind::llama3) parameters.integer(original);
    scaling.original_context = original_context(fields, parameters, context, family);
  }
  const bool derived =
      parameters.at("factor").is_null() && (kind == Kind::longrope || (kind == Kind::yarn && parameters.has("factor")));
  scaling.factor = derived ? factor_of(context, scaling) : parameters.number("factor");
  if (kind == Kind::llama3) {
    scaling.low_frequency = parameters.number("low_freq_factor");
    scaling.high_frequency = parameters.number("high_freq_factor");
  }
  if (kind == Kind::yarn) {
    scaling.attention_factor = attention_factor(parameters, scaling.factor);
    for (const auto& [field, to] : {std::pair("beta_fast", &scaling.beta_fast), {"beta_slow", &scaling.beta_slow}})
      if (const double given = parameters.number(field, 0); given != 0) *to = given;
    scaling.truncate = parameters.boolean("truncate", true);
  }
  if (kind == Kind::longrope) {
    scaling.attention_factor = parameters.number("attention_factor", 0);
    scaling.short_factors = numbers(parameters, "short_factor");
    scaling.long_factors = numbers(parameters, "long_factor");
  }
  return scaling;
}

}  // namespace

std::optional<JsonFields> rotary_parameters(const JsonFields& fields) {
  // transformers 5 prefers rope_scaling if a file has both fields
  std::optional<JsonFields> parameters = fields.object("rope_scaling");
  return parameters && !parameters->empty() ? parameters : fields.object("rope_parameters");
}

RotaryFields read_rotary(const JsonFields& fields, const std::optional<JsonFields>& parameters, double theta,
                         std::int64_t context, Family family) {
  RotaryFields result{.theta = theta};
  constexpr const char* part = "partial_rotary_factor";
  for (const JsonFields* given : {&fields, parameters ? &*parameters : &fields}) {
    const double said = given->number(part, result.part);
    if (said != 1 && family != Family::phi3) given->refuse(part, "this family's models turn whole heads: it must be 1");
    if (!(said > 0 && said <= 1)) given->refuse(part, "it must be above 0, and at most 1");
    result.part = said;
  }
  if (!parameters) return result;
  result.theta = parameters->number("rope_theta", theta);
  const char* field = parameters->at("rope_type").is_null() ? "type" : "rope_type";
  std::string type = parameters->text(field, "default");
  if (family == Family::phi3 && (type == "su" || type == "yarn")) type = "longrope";  // its older names
  if (type == "default" || (type == "linear" && parameters->number("factor", 0) == 1)) return result;
  const auto found = std::find(kind_names.begin(), kind_names.end(), type);
  if (found == kind_names.end())
    parameters->refuse(field, "it must be default, linear, dynamic, yarn, longrope or llama3");
  if (family == Family::phi3 && type != "longrope") parameters->refuse(field, "Phi-3's is default or longrope");
  result.scaling = read_scaling(fields, *parameters, static_cast<Kind>(found - kind_names.begin()), context, family);
  return result;
}

nlohmann::ordered_json rotary_json(double theta, const std::optional<nn::RotaryScaling>& scaling,
                                   std::int64_t context) {
  using Json = nlohmann::ordered_json;
  Json rotary = {{"rope_type", scaling ? kind_names[static_cast<std::size_t>(scaling->kind)] : "default"},
                 {"rope_theta", theta}};
  if (!scaling) return rotary;
  const nn::RotaryScaling& s = *scaling;
  if (s.kind != Kind::longrope || s.factor != factor_of(context, s)) rotary["factor"] = s.factor;
  if (s.kind == Kind::llama3)
    rotary.update(Json{{"low_freq_factor", s.low_frequency}, {"high_freq_factor", s.high_frequency}});
  if (s.kind != Kind::linear && s.kind != Kind::dynamic) rotary[original] = s.original_context;
  if (s.attention_factor != 0) rotary["attention_factor"] = s.attention_factor;
  if (s.kind == Kind::yarn)
    rotary.update(Json{{"beta_fast", s.beta_fast}, {"beta_slow", s.beta_slow}, {"truncate", s.truncate}});
  if (s.kind == Kind::longrope) rotary.update(Json{{"short_factor", s.short_factors}, {"long_factor", s.long_factors}});
  return rotary;
}

}  // namespace attn
