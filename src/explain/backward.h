// src/explain/backward.h: the way back through attention, from the gradient of the context to those of v, the weights,
// the scores, q and k.
#pragma once
#include "explain/run.h"

#include <attn/attention.h>

#include <vector>

namespace attn::explain_detail {

/// One forward call; q and k as its scores see them.
struct Forward {
  Tensor q, k, v, weights, context;  // [..., T, D]
  AttentionOptions options;          // of the call
  bool turned = false;               // q and k are rotary's
  const Run* run = nullptr;          // what stands around its softmax; null: nothing does
};

struct BackwardStep {
  ExplainStep::Kind kind;
  const char* name;
  Phrase title, note;
  std::string formula;
  Tensor values;
  bool key_rows = false;
};

/// For the loss L = 1/2 sum of context^2, whose gradient by the context is the context: that of v, the weights after
/// dropout and before, the scores that enter softmax, those before temperature, score_mod and softcap, q and k, in the
/// order in which they are found. v's, q's and k's are those of `backward`: the same bits.
struct WayBack {
  double loss = 0;
  std::vector<BackwardStep> steps;
};
WayBack way_back(const Forward& forward);

}  // namespace attn::explain_detail
