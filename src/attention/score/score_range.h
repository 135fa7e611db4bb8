// src/attention/score/score_range.h: computes bounds of the integers in a score expression, and checks lookups by them.
#pragma once
#include "attention/lower.h"
#include "attention/score/score_expression.h"

namespace attn {

struct ScoreRange {
  std::int64_t low = 0, high = 0;
};

/// Returns the range of each value; {0, 0} for values that are not integers. ShapeError and ValueError for a lookup
/// that does not fit the call, an index that can leave its tensor, a divisor that can be 0, and a number that can
/// exceed +-2^53.
std::vector<ScoreRange> score_ranges(const ScoreValues& values, const ScoreShape& shape, const Lengths& lowered);

}  // namespace attn
