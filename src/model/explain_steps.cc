// src/model/explain_steps.cc: makes the steps of an explanation of a trained head, in the requested language.
#include "model/explain_steps.h"

#include "explain/formula_words.h"
#include "io/source.h"

namespace attn {

std::string shown_token(const std::string& bytes) {
  std::string text;
  for (const char c : io::one_line(bytes)) text += c == ' ' ? "\xE2\x90\xA3" : std::string(1, c);
  return text;
}

ExplainStep& TrainedSteps::add(ExplainStep::Kind kind, const char* name, explain_detail::Phrase title,
                               explain_detail::Phrase note, const std::string& formula,
                               ExplainStep::Operation operation, const Tensor& values) {
  const bool pairs = kind == ExplainStep::Kind::pairs;
  ExplainStep step;
  step.kind = kind;
  step.name = name;
  step.title = say(language, title);
  step.formula = pairs && *name == 'm' ? formula : explain_detail::in_words(language, formula);
  step.note = say(language, note);
  step.operation = std::move(operation);
  if (values.defined()) step.shape = values.sizes();
  step.values = values;
  step.rows = {tokens};
  if (pairs || kind == ExplainStep::Kind::weights) step.columns = {tokens_to};
  return all.emplace_back(std::move(step));
}

}  // namespace attn
