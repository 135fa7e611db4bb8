// src/attention/lower.h: lengths, masks and biases checked against the scores they belong to, and lowered to what
// kernels read.
#pragma once
#include <attn/bias.h>
#include <attn/mask.h>

#include "kernels/attention/problem.h"

namespace attn {

/// Packed sequences: sequence s has rows q[s] ... q[s + 1] - 1 and keys k[s] ... k[s + 1] - 1. Empty: not packed.
struct PackedLengths {
  std::vector<std::int64_t> q, k;
  std::int64_t sequences() const { return static_cast<std::int64_t>(q.size()) - 1; }
};

/// The scores of a call, [B, Hq, Tq, Tk], and the function that errors name.
struct ScoreShape {
  const char* function;
  std::int64_t batch, heads, q_rows, k_rows;
  // of q as the caller gave it: with 3, a mask of rank 3 is [B, Tq, Tk], or [Hq, Tq, Tk] of packed sequences
  int rank = 4;
  const PackedLengths* packed = nullptr;
  bool rows_at_end = false;  // of their sequence, as a cache has them: another alignment is an error
  Dims sizes() const { return {batch, heads, q_rows, k_rows}; }
  /// Units with their own lengths and positions: batch items or packed sequences.
  std::int64_t items() const { return packed ? packed->sequences() : batch; }
  const char* item() const { return packed ? "sequence" : "batch item"; }
};

/// cu_seqlens_q and cu_seqlens_k checked against totals of rows; the second undefined: as the first.
PackedLengths lower_packed(const ScoreShape& shape, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k);

/// Checked, i64, contiguous.
Lengths lower_lengths(const Lengths& lengths, const ScoreShape& shape);
/// The same as pointers. Sizes first: the problem is that of the scores alone.
void describe_scores(const ScoreShape& shape, const Lengths& lowered, kernels::AttentionProblem& problem);

/// The expression in postfix order; its tensors stay with the Mask, which must outlive this.
struct LoweredMask {
  std::vector<kernels::MaskNode> nodes;
  int documents = -1;                     // the node of a `documents` by which the whole expression is cut, or -1
  std::vector<kernels::MaskNode> inside;  // then: the same for rows and keys of one document
};
LoweredMask lower_mask(const Mask& mask, const ScoreShape& shape, const Lengths& lowered);
void describe_mask(const LoweredMask& mask, kernels::AttentionProblem& problem);

struct LoweredBias {
  std::vector<kernels::BiasTerm> terms;
  std::vector<Tensor> values;  // the tensors that the terms read: what gets a gradient
  std::vector<std::vector<std::int32_t>> buckets;
};
/// `dtype` of q, k, v: a term is of that or f32, or of any 16 bits where q is.
LoweredBias lower_bias(const Bias& bias, const ScoreShape& shape, const Lengths& lowered, Dtype dtype);

/// Strides of a dense operand over [B, Hq, Tq, Tk]; ShapeError when it does not broadcast.
kernels::Broadcast4 broadcast_to_scores(const ScoreShape& shape, const std::string& what, const Tensor& x);
/// Whether row positions count from the bottom right; an error with both pictures, of the window (left, right), when
/// `align` must say it and does not.
bool is_bottom_right(Align align, const std::string& what, const ScoreShape& shape, const Lengths& lengths,
                     std::int64_t left = -1, std::int64_t right = 0);

}  // namespace attn
