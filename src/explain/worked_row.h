// src/explain/worked_row.h: one query row worked out: the sums that a learner does on paper.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

/// The numbers of row `query`, f64, [B, H, ...].
struct WorkedRow {
  // [B, H, Tk, n]: products, their sum, / sqrt(dk) where there is a scale, what options make of it, minus the maximum,
  // e to it, the weight
  Tensor stages;
  Tensor mixing;  // [B, H, Tk + 1, dv + 1]: the weight, weight * value; the last row is the sum
  std::vector<std::string> stage_names, mixing_names;
  std::vector<Hidden> stages_hidden, mixing_hidden;
  std::vector<double> maximum, total;  // one a sentence and head, as `sees`: does the row see a key?
  std::vector<bool> sees;
};
WorkedRow worked_row(const Run& run, const Matrices& matrices, Score::Kind score, std::int64_t query);

}  // namespace attn::explain_detail
