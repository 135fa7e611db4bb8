// src/attention/score/score_range.h: bounds of the whole numbers in a score expression; lookups are checked by them.
#pragma once
#include "attention/lower.h"
#include "attention/score/score_expression.h"

namespace attn {

struct ScoreRange {
  std::int64_t low = 0, high = 0;
};

/// Of each value; those that are not whole numbers have {0, 0}. ShapeError and ValueError for a lookup that does not
/// fit the call, an index that can leave its tensor, a divisor that can be 0, a number that can leave +-2^53.
std::vector<ScoreRange> score_ranges(const ScoreValues& values, const ScoreShape& shape, const Lengths& lowered);

}  // namespace attn
