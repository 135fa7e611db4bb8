// src/explain/explanation.cc: finds a step by its name.
#include <attn/explain.h>

namespace attn {

const ExplainStep& Explanation::step(const std::string& name) const {
  std::string names;
  for (const ExplainStep& step : steps) {
    if (step.name == name) return step;
    names += (names.empty() ? "" : ", ") + step.name;
  }
  throw ValueError("Explanation::step: there is no step \"" + name + "\"; there are " + names);
}

}  // namespace attn
