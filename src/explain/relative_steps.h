// src/explain/relative_steps.h: relative products of an explained call: their tables, and the steps from the rows of a
// table to the scores.
#pragma once
#include "explain/run.h"

#include <attn/explain_mechanisms.h>

namespace attn::explain_detail {

class RelativeSteps {
 public:
  RelativeSteps(const std::vector<ExplainRelative>& given, const ExplainOptions& options)
      : given_(given), options_(options) {}

  /// As in Additions.
  void set(const Run& run, AttentionOptions& call) const;
  std::vector<ExplainStep> parameters(const Run& run) const;
  bool add_scores(const Run& run, const std::string& before, std::vector<Stage>& stages) const;

 private:
  struct Drawn {
    Tensor table, bias;  // [H, N, D]; [H, 1, D], or undefined
  };
  /// Draws the matrices, the same each time.
  std::vector<Drawn> drawn(const Run& run) const;
  std::string source(const std::string& what) const;

  struct Words;
  /// The steps of one product, in their order.
  Stage rows_of_table(const Words& at, const Tensor& places) const;
  Stage operand(const Words& at, const Tensor& x) const;
  Stage products(const Words& at, const Tensor& x, const Tensor& table) const;
  Stage term(const Words& at, const Run& run, double scale, const Tensor& values) const;
  Stage sum(const Words& at, const std::string& before, const Tensor& values) const;

  const std::vector<ExplainRelative>& given_;
  const ExplainOptions& options_;
};

}  // namespace attn::explain_detail
