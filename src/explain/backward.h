// src/explain/backward.h: computes the steps of the backward pass: from the gradient of the context to those of v, the
// weights, the scores, q and k.
#pragma once
#include "explain/run.h"

#include <attn/attention.h>

#include <vector>

namespace attn::explain_detail {

/// Holds one forward call; q and k are those that the scores use, `weights` those before dropout.
struct Forward {
  Tensor q, k, v, weights, context;   // [B, H, T, D]; weights: [B, H, Tq, Tk]
  AttentionOptions options;           // of that call
  bool rotated = false;               // q and k are rotated (rotary positions)
  const Run* run = nullptr;           // the explained run with its score modifiers; null: none
  Tensor output = {}, w_output = {};  // [B, T, n], [H D, n]: the context times W_O; undefined: none
  double score_divisor = 0;           // scores are q · k divided by its root; 0: D
  double divisor() const { return score_divisor > 0 ? score_divisor : static_cast<double>(q.size(-1)); }
};

struct BackwardStep {
  ExplainStep::Kind kind;
  const char* name;
  Phrase title, note;
  std::string formula;
  ExplainStep::Operation operation;
  Tensor values;
  bool key_rows = false;
};

/// Computes gradients for the loss L = 1/2 sum of context^2 (with W_O: of output^2), whose gradient with respect to the
/// context (the output) is the context itself. The steps are the gradients of these, where the call has them: output,
/// context, v, weights after dropout, weights before dropout, scores that enter softmax, scores before temperature,
/// before score_mod and before softcap, q, k. Those of v, q and k have the same bits as `backward`.
struct WayBack {
  double loss = 0;
  std::vector<BackwardStep> steps;
};
WayBack way_back(const Forward& forward);

}  // namespace attn::explain_detail
