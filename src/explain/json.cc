// src/explain/json.cc: writes an explanation as JSON: its parameters and steps, with their names and numbers.
#include "explain/heat_colours.h"
#include "explain/json_values.h"
#include "explain/shown.h"

#include <attn/ops.h>

#include "runtime/format.h"

namespace attn {
namespace {

using explain_detail::json_list;
using explain_detail::json_string;

/// Writes one list when all sentences share it, else one list for each sentence.
std::string lists_of(const std::vector<std::vector<std::string>>& lists) {
  if (lists.size() == 1) return json_list(lists[0]);
  std::string result = "[";
  for (std::size_t i = 0; i < lists.size(); ++i) result += (i ? ", " : "") + json_list(lists[i]);
  return result + "]";
}

/// Writes what a step is and what its numbers are made of.
std::string origin_json(const ExplainStep& step) {
  constexpr const char* kinds[] = {"words", "ids", "table", "pairs", "weights", "keys", "checks"};
  std::string result = runtime::format("\"kind\": \"{}\", \"batch\": {}, \"heads\": {}, \"key_rows\": {}",
                                       kinds[static_cast<int>(step.kind)], step.batch, step.heads, step.key_rows);
  if (step.operation.name.empty()) return result;
  result += runtime::format(", \"operation\": {}, \"inputs\": {}", json_string(step.operation.name),
                            json_list(step.operation.inputs));
  if (step.operation.operand)
    result += ", \"operand\": " + explain_detail::json_number(*step.operation.operand, Dtype::f64);
  return result;
}

/// Writes where the tokens are in their texts: a pair of numbers, or null, one list for each sentence of a batch.
std::string places_json(const std::vector<std::vector<std::array<std::int64_t, 2>>>& places, bool batch) {
  if (places.empty()) return "";
  std::string result;
  for (const auto& sentence : places) {
    std::string list;
    for (const auto& [begin, end] : sentence)
      list += (list.empty() ? "" : ", ") + (begin < 0 ? "null" : runtime::format("[{}, {}]", begin, end));
    result += (result.empty() ? "[" : ", [") + list + "]";
  }
  return ", \"places\": " + (batch ? "[" + result + "]" : result);
}

/// Writes the shade, 0 to 4, that the terminal gives each weight; null where the pair is hidden.
std::string shades_json(const ExplainStep& step) {
  std::vector<std::int64_t> shades;
  for (const double weight : step.values.to_vector())
    shades.push_back(explain_detail::shade_of(weight, step.shape[step.shape.size() - 1]));
  return explain_detail::json_values(tensor<std::int64_t>(shades, step.shape), step.hidden);
}

/// Writes one number for each sentence and head, nested as the step's values are.
std::string by_sentence_and_head(const ExplainStep& step, const std::vector<double>& numbers) {
  Dims shape;
  for (int dim = 0; dim + 2 < step.shape.size(); ++dim) shape.push_back(step.shape[dim]);
  return explain_detail::json_values(tensor<double>(numbers, shape));
}

std::string step_json(const ExplainStep& step, bool batch) {
  std::string result =
      runtime::format("{{\"name\": {}, \"title\": {}, \"formula\": {}, \"note\": {}, \"source\": {}, {}, \"shape\": {}",
                      json_string(step.name), json_string(step.title), json_string(step.formula),
                      json_string(step.note), json_string(step.source), origin_json(step), to_string(step.shape));
  if (step.kind == ExplainStep::Kind::words)
    return result + ", \"values\": " +
           (batch && step.rows.size() == 1 ? "[" + json_list(step.rows[0]) + "]" : lists_of(step.rows)) +
           places_json(step.places, batch) + "}";
  result += runtime::format(", \"dtype\": \"{}\", \"values\": {}", name_of(step.values.dtype()),
                            explain_detail::json_values(step.values, step.hidden));
  if (!step.rows.empty()) result += ", \"rows\": " + lists_of(step.rows);
  if (!step.columns.empty()) result += ", \"columns\": " + lists_of(step.columns);
  if (!step.hidden.empty()) result += ", \"hidden\": " + explain_detail::json_reasons(step.hidden, step.shape);
  if (step.kind == ExplainStep::Kind::weights) result += ", \"shades\": " + shades_json(step);
  if (!step.maximum.empty())
    result += runtime::format(", \"maximum\": {}, \"total\": {}", by_sentence_and_head(step, step.maximum),
                              by_sentence_and_head(step, step.total));
  return result + "}";
}

std::string steps_json(const Explanation* shown, const std::vector<ExplainStep>& steps, bool batch) {
  std::string result;
  for (const ExplainStep& step : steps)
    if (shown == nullptr || explain_detail::shows(*shown, step))
      result += (result.empty() ? "[\n    " : ",\n    ") + step_json(step, batch);
  return (result.empty() ? "[" : result) + "\n  ]";
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  std::string result =
      runtime::format("{{\n  \"attn_explain\": {},\n  \"text\": {},\n", Explanation::version,
                      explanation.batch ? json_list(explanation.texts)
                                        : json_string(explanation.texts.empty() ? "" : explanation.texts[0]));
  if (explanation.to) result += "  \"to\": " + json_string(*explanation.to) + ",\n";
  result += runtime::format("  \"language\": \"{}\",\n  \"mask\": {},\n",
                            explanation.language == Language::zh ? "zh" : "en", json_string(explanation.mask));
  if (!explanation.options.empty()) result += "  \"options\": " + explanation.options + ",\n";
  if (explanation.query) result += runtime::format("  \"query\": {},\n", *explanation.query);
  result += "  \"parameters\": " + steps_json(nullptr, explanation.parameters, false) + ",\n";
  return result + "  \"steps\": " + steps_json(&explanation, explanation.steps, explanation.batch) + "\n}\n";
}

}  // namespace attn
