// src/explain/json.cc: an explanation as JSON whose numbers read back to the same bits.
#include <attn/explain.h>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cmath>

namespace attn {
namespace {

std::string quoted(const std::string& text) { return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace); }

std::string list_of(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (std::size_t i = 0; i < texts.size(); ++i) result += (i ? ", " : "") + quoted(texts[i]);
  return result + "]";
}

/// One list, or a list of lists for a batch.
std::string lists_of(const std::vector<std::vector<std::string>>& lists, bool batch) {
  if (!batch) return lists.empty() ? "[]" : list_of(lists[0]);
  std::string result = "[";
  for (std::size_t i = 0; i < lists.size(); ++i) result += (i ? ", " : "") + list_of(lists[i]);
  return result + "]";
}

std::string number(double value, Dtype dtype) {
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value < 0 ? "\"-inf\"" : "\"inf\"";
  if (is_integral(dtype)) return fmt::format("{}", static_cast<std::int64_t>(value));
  return dtype == Dtype::f64 ? fmt::format("{}", value) : fmt::format("{}", static_cast<float>(value));
}

/// Nested by shape; what is hidden is null.
class Nested {
 public:
  explicit Nested(const ExplainStep& step) : step_(step), values_(step.values.to_vector()) {}

  std::string write(int dim = 0) {
    if (dim == step_.shape.size()) {
      const std::size_t i = next_++;
      return !step_.hidden.empty() && step_.hidden[i] != Hidden::visible ? "null" : number(values_[i], step_.values.dtype());
    }
    std::string result = "[";
    for (std::int64_t i = 0; i < step_.shape[dim]; ++i) result += (i ? ", " : "") + write(dim + 1);
    return result + "]";
  }

 private:
  const ExplainStep& step_;
  std::vector<double> values_;
  std::size_t next_ = 0;
};

/// The reasons, nested as the values: null where the pair is seen.
std::string reasons(const ExplainStep& step, int dim, std::size_t& next) {
  constexpr const char* names[] = {"null", "\"causal\"", "\"window\"", "\"mask\"", "\"padding\""};
  if (dim == step.shape.size()) return names[static_cast<std::size_t>(step.hidden[next++])];
  std::string result = "[";
  for (std::int64_t i = 0; i < step.shape[dim]; ++i) result += (i ? ", " : "") + reasons(step, dim + 1, next);
  return result + "]";
}

std::string step_json(const ExplainStep& step, bool batch) {
  std::string result = fmt::format("{{\"name\": {}, \"title\": {}, \"formula\": {}, \"note\": {}, \"source\": {}, \"shape\": {}", quoted(step.name),
                                   quoted(step.title), quoted(step.formula), quoted(step.note), quoted(step.source), to_string(step.shape));
  if (step.kind == ExplainStep::Kind::words) return result + ", \"values\": " + lists_of(step.rows, batch) + "}";
  result += fmt::format(", \"dtype\": \"{}\", \"values\": {}", name_of(step.values.dtype()), Nested(step).write());
  if (!step.rows.empty()) result += ", \"rows\": " + lists_of(step.rows, batch);
  if (!step.columns.empty()) result += ", \"columns\": " + lists_of(step.columns, batch);
  if (!step.hidden.empty()) {
    std::size_t next = 0;
    result += ", \"hidden\": " + reasons(step, 0, next);
  }
  return result + "}";
}

std::string steps_json(const std::vector<ExplainStep>& steps, bool batch) {
  std::string result = "[";
  for (std::size_t i = 0; i < steps.size(); ++i) result += (i ? ",\n    " : "\n    ") + step_json(steps[i], batch);
  return result + "\n  ]";
}

}  // namespace

std::string to_json(const Explanation& explanation) {
  std::string result = fmt::format("{{\n  \"attn_explain\": {},\n  \"text\": {},\n", Explanation::version,
                                   explanation.batch ? list_of(explanation.texts) : quoted(explanation.texts.at(0)));
  if (explanation.to) result += "  \"to\": " + quoted(*explanation.to) + ",\n";
  result += fmt::format("  \"language\": \"{}\",\n  \"mask\": {},\n", explanation.language == Language::zh ? "zh" : "en", quoted(explanation.mask));
  if (explanation.query) result += fmt::format("  \"query\": {},\n", *explanation.query);
  result += "  \"parameters\": " + steps_json(explanation.parameters, false) + ",\n";
  return result + "  \"steps\": " + steps_json(explanation.steps, explanation.batch) + "\n}\n";
}

}  // namespace attn
