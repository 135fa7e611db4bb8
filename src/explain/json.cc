// src/explain/json.cc: writes an explanation as JSON, with the same steps, names and numbers.
#include "explain/json_values.h"

#include "runtime/format.h"

namespace attn {
namespace {

using explain_detail::json_string;

std::string list_of(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (std::size_t i = 0; i < texts.size(); ++i) result += (i ? ", " : "") + json_string(texts[i]);
  return result + "]";
}

/// Writes one list when all sentences share it, else one list for each sentence.
std::string lists_of(const std::vector<std::vector<std::string>>& lists) {
  if (lists.size() == 1) return list_of(lists[0]);
  std::string result = "[";
  for (std::size_t i = 0; i < lists.size(); ++i) result += (i ? ", " : "") + list_of(lists[i]);
  return result + "]";
}

std::string step_json(const ExplainStep& step, bool batch) {
  std::string result =
      runtime::format("{{\"name\": {}, \"title\": {}, \"formula\": {}, \"note\": {}, \"source\": {}, \"shape\": {}",
                      json_string(step.name), json_string(step.title), json_string(step.formula),
                      json_string(step.note), json_string(step.source), to_string(step.shape));
  if (step.kind == ExplainStep::Kind::words)
    return result + ", \"values\": " +
           (batch && step.rows.size() == 1 ? "[" + list_of(step.rows[0]) + "]" : lists_of(step.rows)) + "}";
  result += runtime::format(", \"dtype\": \"{}\", \"values\": {}", name_of(step.values.dtype()),
                            explain_detail::json_values(step.values, step.hidden));
  if (!step.rows.empty()) result += ", \"rows\": " + lists_of(step.rows);
  if (!step.columns.empty()) result += ", \"columns\": " + lists_of(step.columns);
  if (!step.hidden.empty()) result += ", \"hidden\": " + explain_detail::json_reasons(step.hidden, step.shape);
  return result + "}";
}

std::string steps_json(const std::vector<ExplainStep>& steps, bool batch) {
  std::string result = "[";
  for (std::size_t i = 0; i < steps.size(); ++i) result += (i ? ",\n    " : "\n    ") + step_json(steps[i], batch);
  return result + "\n  ]";
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  std::string result =
      runtime::format("{{\n  \"attn_explain\": {},\n  \"text\": {},\n", Explanation::version,
                      explanation.batch ? list_of(explanation.texts)
                                        : json_string(explanation.texts.empty() ? "" : explanation.texts[0]));
  if (explanation.to) result += "  \"to\": " + json_string(*explanation.to) + ",\n";
  result += runtime::format("  \"language\": \"{}\",\n  \"mask\": {},\n",
                            explanation.language == Language::zh ? "zh" : "en", json_string(explanation.mask));
  if (explanation.query) result += runtime::format("  \"query\": {},\n", *explanation.query);
  result += "  \"parameters\": " + steps_json(explanation.parameters, false) + ",\n";
  return result + "  \"steps\": " + steps_json(explanation.steps, explanation.batch) + "\n}\n";
}

}  // namespace attn
