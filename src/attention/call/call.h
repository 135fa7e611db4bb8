// src/attention/call/call.h: a call of attention after its checks: tensors, lowered options, and the problem that
// kernels see.
#pragma once
#include <attn/attention.h>

#include "attention/score/lower_score.h"
#include "tensor/impl.h"

namespace attn {

/// A checked call and the problem that kernels see. The problem points into the rest; moving keeps the pointers good.
struct Call {
  const char* function = "attention";
  int rank = 4;         // of q as given
  bool packed = false;  // with rank 3 q is [total, H, D]
  Tensor q, k, v;       // [B, H, T, D], last dim contiguous; k undefined or v undefined where the call has none
  Tensor sinks;         // [Hq], compute type
  Tensor additive_w;    // [A], compute type
  Lengths lengths;
  PackedLengths packs;  // where `packed`
  Mask mask;            // keeps the tensors that `program` reads
  LoweredMask program;
  LoweredBias bias;
  ScoreExpression score_expression;
  std::optional<LoweredScore> score_mod;  // of it
  CallbackGate score_callback;
  Weights weights;                           // those asked for
  std::vector<kernels::Sequence> sequences;  // empty: batch items
  kernels::AttentionProblem problem;         // where results go is added when the call runs

  Dtype dtype() const { return q.impl()->dtype; }
  ScoreShape scores() const {
    return {function, problem.batch, problem.q_heads, problem.q_rows, problem.k_rows, rank, packed ? &packs : nullptr};
  }
  Dtype compute_dtype() const { return dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
  /// [B, H, rows...] as the caller's rank has it: [B, rows...], [rows...], or of packed sequences [H, rows...].
  Dims shown(Dims sizes) const;
  /// Sizes of the output as the caller's rank has it, and such a tensor as [B, H, T, D].
  Dims shown_rows(std::int64_t width) const;
  Tensor with_heads(const Tensor& x) const;
  /// The tensors a gradient may flow to, and whether one of them wants it.
  std::vector<Tensor> inputs() const;
  bool wants_grad() const;
  /// Tensors without a gradient that the call reads: lengths, masks, and integers and booleans that score_mod looks up.
  std::vector<Tensor> constants() const;
  /// Whether memory that is to be written shares bytes with one of either.
  bool reads_from(const Tensor& memory) const;
  /// Detaches q, k, v, sinks, w and bias: what autograd saves must not hold the graph.
  void forget_history();
};

/// Whether a byte may belong to both.
bool share_memory(const Tensor& a, const Tensor& b);

/// [B, H, T, D] of rank 2, 3 or 4, as a view.
inline Tensor viewed(const Tensor& x, bool packed) {
  const int rank = x.impl()->sizes.size();
  if (rank == 4) return x;
  if (rank == 2) return x.unsqueeze(0).unsqueeze(0);
  return packed ? x.transpose(0, 1).unsqueeze(0) : x.unsqueeze(1);
}

/// The problem of `sequence` alone; null: of the whole call.
kernels::AttentionProblem problem_of(const Call& call, const kernels::AttentionProblem& problem,
                                     const kernels::Sequence* sequence);

/// Calls visit(its problem, b, row_begin, row_end) for every part, or for every batch item where there are none.
template <typename F>
void for_each_sequence(const Call& call, const kernels::AttentionProblem& problem, F&& visit) {
  if (call.sequences.empty())
    for (std::int64_t b = 0; b < problem.batch; ++b) visit(problem, b, std::int64_t{0}, problem.q_rows);
  for (const kernels::Sequence& sequence : call.sequences)
    visit(problem_of(call, problem, &sequence), sequence.batch, sequence.rows_begin, sequence.rows_end);
}

}  // namespace attn
