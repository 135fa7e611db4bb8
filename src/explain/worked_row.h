// src/explain/worked_row.h: works out one query row step by step, as a learner does on paper.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

/// Holds the numbers of row `query`, in f64, [B, H, ...].
struct WorkedRow {
  // [B, H, Tk, n]: products, their sum, / sqrt(dk) where there is a scale, the score after each option, minus the
  // maximum, exp of that, the weight; or the columns of another normalizer
  Tensor stages;
  Tensor mixing;  // [B, H, Tk + 1, dv + 1]: the weight, weight * value; the last row is the sum
  std::vector<std::string> stage_names, mixing_names;
  std::vector<Hidden> stages_hidden, mixing_hidden;
  std::vector<double> maximum, total;  // of softmax: one for each sentence and head, as in `sees`
  std::vector<bool> sees;              // whether the row sees a key
};
WorkedRow worked_row(const Run& run, const Matrices& matrices, Score::Kind score, std::int64_t query);

}  // namespace attn::explain_detail
