// src/attention/lower.h: checks lengths, masks and biases against the shape of the scores, and lowers them to the form
// that kernels read.
#pragma once
#include <attn/bias.h>
#include <attn/mask.h>

#include "kernels/attention/problem.h"

#include <memory>

namespace attn {

/// The offsets of packed sequences: sequence s has rows q[s] ... q[s + 1] - 1 and keys k[s] ... k[s + 1] - 1. Empty:
/// not packed.
struct PackedLengths {
  std::vector<std::int64_t> q, k;
  std::int64_t sequences() const { return static_cast<std::int64_t>(q.size()) - 1; }
};

/// The shape of a call's scores, [B, Hq, Tq, Tk], and the function name for errors.
struct ScoreShape {
  const char* function;
  std::int64_t batch, heads, q_rows, k_rows;
  // Rank of q as the caller gave it. With 3, a mask of rank 3 is [B, Tq, Tk], or [Hq, Tq, Tk] for packed sequences.
  int rank = 4;
  const PackedLengths* packed = nullptr;
  const char* expression = "score_mod";  // name of the expression of the scores that is lowered, for errors
  bool rows_at_end = false;  // rows are at the end of their sequence, as with a cache; any other alignment is an error
  Dims sizes() const { return {batch, heads, q_rows, k_rows}; }
  /// Returns the number of batch items, or of packed sequences: each has its own lengths and positions.
  std::int64_t items() const { return packed ? packed->sequences() : batch; }
  const char* item() const { return packed ? "sequence" : "batch item"; }
};

/// Checks cu_seqlens_q and cu_seqlens_k against the total rows. If the second is undefined, the first is used for both.
PackedLengths lower_packed(const ScoreShape& shape, const Tensor& cu_seqlens_q, const Tensor& cu_seqlens_k);

/// Checks the lengths and returns them as contiguous i64 tensors.
Lengths lower_lengths(const Lengths& lengths, const ScoreShape& shape);
/// Writes the sizes of the scores and the pointers to the lengths into `problem`. A problem that only evaluates masks
/// or score expressions needs no more.
void describe_scores(const ScoreShape& shape, const Lengths& lowered, kernels::AttentionProblem& problem);

/// The mask expression in postfix order. Its tensors belong to the Mask, which must outlive this.
struct LoweredMask {
  std::vector<kernels::MaskNode> nodes;
  // the index of a `documents` node that splits the whole call into documents, or -1
  int documents = -1;
  std::vector<kernels::MaskNode> inside;  // if so: the rest of the expression, for rows and keys of one document
};
LoweredMask lower_mask(const Mask& mask, const ScoreShape& shape, const Lengths& lowered);
void describe_mask(const LoweredMask& mask, kernels::AttentionProblem& problem);

struct LoweredBias {
  std::vector<kernels::BiasTerm> terms;
  std::vector<Tensor> values;  // the tensors that the terms read: they get gradients
  std::vector<std::vector<std::int32_t>> buckets;
  // Relative products; null: none. Their terms are dense ones that the code running a kernel makes for a query tile.
  std::shared_ptr<RelativeTerms> products;
  std::vector<std::size_t> places;  // with products: index in `values` of each term's first tensor

  std::size_t place_of(int term) const {
    return products == nullptr ? static_cast<std::size_t>(term) : places[static_cast<std::size_t>(term)];
  }
};
/// Checks and lowers a bias. `dtype` is that of q, k, v: a term has that dtype or f32; if q has 16 bits, any 16-bit
/// type.
LoweredBias lower_bias(const Bias& bias, const ScoreShape& shape, const Lengths& lowered, Dtype dtype);
/// Returns one term as a bias, with other values; `operand`: that of a relative product.
Bias with_values(const Bias::Term& term, const Tensor& values, const Tensor& operand = {});
/// Returns the tensors of all terms, in the order of LoweredBias::values.
std::vector<Tensor> tensors_of(const Bias& bias);
/// Returns the same bias terms with f32 values.
Bias in_f32(const Bias& bias);

/// Returns the strides of a dense operand over [B, Hq, Tq, Tk]; ShapeError when it does not broadcast.
kernels::Broadcast4 broadcast_to_scores(const ScoreShape& shape, const std::string& what, const Tensor& x);
/// Returns whether row positions count from the bottom right. If `align` is unset and query_start is not given although
/// the rows and keys differ in number, throws an error that shows the window (left, right) in both alignments.
bool is_bottom_right(Align align, const std::string& what, const ScoreShape& shape, const Lengths& lengths,
                     std::int64_t left = -1, std::int64_t right = 0);

}  // namespace attn
