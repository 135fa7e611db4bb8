// src/model/explain_steps.h: makes the steps of an explanation of a trained head.
#pragma once
#include <attn/explain.h>

#include "explain/words.h"

#include <string>
#include <vector>

namespace attn {

/// Makes a token's bytes visible: a space as ␣, line ends and incomplete characters as escapes such as \x0A.
std::string shown_token(const std::string& bytes);

struct TrainedSteps {
  Language language;
  std::vector<std::string> tokens;     // of the text of the queries
  std::vector<std::string> tokens_to;  // of the text of the keys
  std::vector<ExplainStep> all = {};

  ExplainStep& add(ExplainStep::Kind kind, const char* name, explain_detail::Phrase title, explain_detail::Phrase note,
                   const std::string& formula, ExplainStep::Operation operation, const Tensor& values);
};

}  // namespace attn
