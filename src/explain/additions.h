// src/explain/additions.h: what an explained call may have beside the options of `explain`: relative products, a
// normalizer, a function of the weight. An interface, so that a program that explains the softmax of one product, such
// as the page, does not carry them.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

class Additions {
 public:
  virtual ~Additions() = default;
  /// Sets them in the call. `run` has q and k.
  virtual void set(const Run& run, AttentionOptions& call) const = 0;
  /// Returns the matrices that a model would have learned.
  virtual std::vector<ExplainStep> parameters(const Run& run) const = 0;
  /// Appends the stages of the relative products, which follow the scores of the step `before`; returns whether there
  /// are any.
  virtual bool add_scores(const Run& run, const std::string& before, std::vector<Stage>& stages) const = 0;
  /// Sets the weights before and after the function of the weight, and the last columns of a worked row. `run` has all
  /// scores.
  virtual void set_weights(Run& run) const = 0;
  /// Returns the steps about the weights, which follow the step `before`, named `scores` in formulas. Without a step
  /// `weights` among them the weights are those of softmax.
  virtual std::vector<Stage> weight_stages(const Run& run, const std::string& before,
                                           const std::string& scores) const = 0;
};

}  // namespace attn::explain_detail
