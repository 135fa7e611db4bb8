// src/explain/run.h: holds the tensors of one explained run, before they become steps.
#pragma once
#include "explain/random_parameters.h"
#include "explain/tokens.h"
#include "explain/words.h"

#include <vector>

namespace attn::explain_detail {

/// Holds the result of one option: the scores after it, or the values that it adds to them.
struct Stage {
  std::string name;
  std::string_view title, note;  // in the language of the explanation
  std::string formula;
  std::string column;  // column title when a query is worked out; empty: not a stage of the score
  ExplainStep::Operation operation;
  Tensor values;
  ExplainStep::Kind kind = ExplainStep::Kind::pairs;
  bool key_rows = false;
  std::vector<std::string> columns = {};  // labels of a table
  std::string source = {};
};

/// A column of the row that is worked out: its title, and its numbers for all rows.
struct WorkedColumn {
  std::string title;
  Tensor values;  // [B, H, Tq, Tk]
};

/// Holds all tensors of a run; q, k, v and the following ones are [B, H, T, ...].
struct Run {
  Tensor x, memory;                // [B, T, dim]: embeddings of the query and the key side
  Tensor places_x, places_memory;  // [T, dim] positions added to them, or undefined
  Tensor q, k, v;                  // as projected
  Tensor q_rotated, k_rotated;     // with rotary positions, else undefined
  Tensor scores, scaled;           // `scaled` is undefined for scores without a scale
  std::vector<Stage> stages;       // one for each score modifier; a bias has two: its values and the scores
  Tensor weights, context;         // from the attention call
  Tensor modified;                 // the weights after a function of the weight, or undefined
  std::vector<WorkedColumn> ends;  // from the scores to the weights, where that is not softmax
  std::string_view note_ends;      // what a worked row says of them
  Tensor joined, output;           // [B, T, ...]: the heads side by side; that times W_O, or undefined
  Tensor dropped;                  // the weights after dropout, or undefined
  Tensor sink;                     // the sink's share of each row, or undefined
  AttentionResult returned;        // holds the weights that options.weights requests, or nothing
  AttentionOptions call;           // without returned weights
  std::vector<Hidden> hidden;      // empty: no pair is hidden
  Lengths lengths;                 // only for a batch
  const Tensor& last_scores() const {
    return !stages.empty() ? stages.back().values : scaled.defined() ? scaled : scores;
  }
  const Tensor& mixing() const { return dropped.defined() ? dropped : modified.defined() ? modified : weights; }
  const Tensor& q_used() const { return q_rotated.defined() ? q_rotated : q; }
  const Tensor& k_used() const { return k_rotated.defined() ? k_rotated : k; }
};

}  // namespace attn::explain_detail
