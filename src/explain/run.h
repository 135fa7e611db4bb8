// src/explain/run.h: the tensors of one explained run, before they become steps.
#pragma once
#include "explain/matrices.h"
#include "explain/tokens.h"
#include "explain/words.h"

#include <vector>

namespace attn::explain_detail {

/// What an option around the softmax made of the scores, or adds to them.
struct Stage {
  const char* name;
  Phrase title, note;
  std::string formula;
  std::string column;  // its head where a query is opened; empty: it is not a stage of the score
  Tensor values;
};

/// All of a run; q, k, v and what follows are [B, H, T, ...].
struct Run {
  Tensor x, memory;                // [B, T, dim]: embeddings of the two sides
  Tensor places_x, places_memory;  // [T, dim] added to them, or undefined
  Tensor q, k, v;                  // as projected
  Tensor q_turned, k_turned;       // rotary, else undefined
  Tensor scores, scaled;           // scaled undefined for scores that have no scale
  std::vector<Stage> stages;       // around the softmax
  Tensor weights, context;         // attention's own
  Tensor dropped;                  // the weights after dropout, or undefined
  Tensor sink;                     // its share of each row, or undefined
  AttentionResult asked;           // with the weights that were asked for, or nothing
  AttentionOptions call;           // without weights
  std::vector<Hidden> hidden;      // empty: everything is seen
  Lengths lengths;                 // of a batch
  const Tensor& last_scores() const {
    return !stages.empty() ? stages.back().values : scaled.defined() ? scaled : scores;
  }
  const Tensor& mixing() const { return dropped.defined() ? dropped : weights; }
  const Tensor& q_used() const { return q_turned.defined() ? q_turned : q; }
  const Tensor& k_used() const { return k_turned.defined() ? k_turned : k; }
};

}  // namespace attn::explain_detail
