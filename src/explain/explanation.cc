// src/explain/explanation.cc: finds a step by its name; says which steps are drawn.
#include "explain/shown.h"

#include <algorithm>

namespace attn {
namespace {

const ExplainStep& find(const Explanation& explanation, const std::string& name, const char* who) {
  std::string names;
  for (const ExplainStep& step : explanation.steps) {
    if (step.name == name) return step;
    names += (names.empty() ? "" : ", ") + step.name;
  }
  throw ValueError(who + (": there is no step \"" + name) + "\"; there are " + names);
}

}  // namespace

const ExplainStep& Explanation::step(const std::string& name) const { return find(*this, name, "Explanation::step"); }

namespace explain_detail {

void check_only(const Explanation& explanation) {
  for (const std::string& name : explanation.only) find(explanation, name, "explain");
}

bool shows(const Explanation& explanation, const ExplainStep& step) {
  const std::vector<std::string>& only = explanation.only;
  return only.empty() || std::find(only.begin(), only.end(), step.name) != only.end();
}

bool uses(const Explanation& explanation, const std::vector<std::size_t>& steps, const std::string& parameter) {
  return std::any_of(steps.begin(), steps.end(), [&](std::size_t n) {
    const std::vector<std::string>& inputs = explanation.steps[n].operation.inputs;
    return std::find(inputs.begin(), inputs.end(), parameter) != inputs.end();
  });
}

}  // namespace explain_detail
}  // namespace attn
