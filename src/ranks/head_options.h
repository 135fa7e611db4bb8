// src/ranks/head_options.h: selects the options of some heads of a call, for a call of these heads alone.
#pragma once
#include <attn/attention.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace attn {

/// Query heads from `begin` to before `end`, of `total`.
struct HeadRange {
  std::int64_t begin, end, total;
  std::int64_t size() const { return end - begin; }
};

/// Returns whether an operand that broadcasts to [B, Hq, Tq, Tk] has values for each head.
inline bool is_by_head(const Tensor& x, std::int64_t heads) { return x.dim() >= 3 && x.size(-3) == heads; }

/// A tensor that score_mod looks up. `dim` is indexed by the head alone in each of its lookups, so that each head has
/// its own elements; -1: heads may share elements.
struct HeadTable {
  Tensor whole, own;
  int dim = -1;
};
struct HeadScore {
  ScoreExpression expression;
  std::vector<HeadTable> tables;  // floating tensors
};

/// Returns an expression for heads that are counted from 0, with the values of those heads.
HeadScore score_of_heads(const ScoreExpression& expression, const HeadRange& heads);
Mask mask_of_heads(const Mask& mask, const HeadRange& heads);
Bias bias_of_heads(const Bias& bias, const HeadRange& heads);
/// Returns all options but `out`. They must fit the whole call. Dropout also needs CallOptions::first_head.
AttentionOptions options_of_heads(const AttentionOptions& options, const HeadRange& heads);

}  // namespace attn
