// src/explain/normalizer_steps.h: how an explained call makes weights from scores where it is not softmax, and what a
// function of the weight makes of them.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

class NormalizerSteps {
 public:
  NormalizerSteps(const Normalizer& normalizer, const ScoreExpression& weight_mod, const ExplainOptions& options)
      : normalizer_(normalizer), weight_mod_(weight_mod), options_(options) {}

  /// As in Additions.
  void set_weights(Run& run) const;
  std::vector<Stage> weight_stages(const Run& run, const std::string& before, const std::string& scores) const;

 private:
  Stage weights(const Run& run, const std::string& before, const std::string& scores) const;
  /// Returns sigmoid's bias or ReLU squared's scale of each sentence.
  std::vector<double> numbers(const Run& run) const;
  /// That number as a term of a formula: " − log 6", or " / 6".
  std::string number_in_words(const Run& run) const;

  const Normalizer& normalizer_;
  const ScoreExpression& weight_mod_;
  const ExplainOptions& options_;
};

}  // namespace attn::explain_detail
