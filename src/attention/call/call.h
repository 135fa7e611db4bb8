// src/attention/call/call.h: holds a call of attention after its checks: its tensors, its lowered options, and the
// problem that kernels compute.
#pragma once
#include <attn/attention.h>

#include "attention/normalizer/lowered_normalizer.h"
#include "attention/score/lower_score.h"
#include "tensor/impl.h"

namespace attn {

/// A checked call, and the problem that kernels compute. The problem points into the other members; a move keeps these
/// pointers valid.
struct Call {
  const char* function = "attention";
  int rank = 4;         // rank of q as the caller gave it
  bool packed = false;  // with rank 3: q is [total, H, D]
  Tensor q, k, v;       // [B, H, T, D], last dim contiguous; a call for the scores only has no v
  Tensor sinks;         // [Hq], compute type
  Tensor additive_w;    // [A], compute type
  Lengths lengths;
  PackedLengths packs;  // the offsets of the sequences if `packed`
  Mask mask;            // owns the tensors that `program` reads
  LoweredMask program;
  LoweredBias bias;
  ScoreExpression score_expression;
  std::optional<LoweredScore> score_mod;  // the lowered score expression
  std::optional<CallbackGate> score_callback;
  std::shared_ptr<const LoweredNormalizer> normalizer;  // null: the plain softmax
  Weights weights;                                      // which weights the caller requested
  std::vector<kernels::Sequence> sequences;             // packed sequences or documents; empty: batch items
  kernels::AttentionProblem problem;                    // run_attention sets the addresses of the results

  Dtype dtype() const { return q.impl()->dtype; }
  ScoreShape scores() const {
    return {function, problem.batch, problem.q_heads, problem.q_rows, problem.k_rows, rank, packed ? &packs : nullptr};
  }
  Dtype compute_dtype() const { return dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32; }
  /// Converts [B, H, rows...] to the caller's rank: [B, rows...], [rows...], or [H, rows...] for packed sequences.
  Dims shown(Dims sizes) const;
  /// Returns the sizes of the output in the caller's rank. with_heads views such a tensor as [B, H, T, D].
  Dims shown_rows(std::int64_t width) const;
  Tensor with_heads(const Tensor& x) const;
  /// Return the tensors that a gradient may flow to, and whether one of them requires it.
  std::vector<Tensor> inputs() const;
  bool wants_grad() const;
  /// Returns the floating tensors that the expressions look up: those of score_mod, then those of weight_mod.
  std::vector<Tensor> looked_up() const;
  /// Returns the tensors without a gradient that the call reads: lengths, masks, and integer and bool tensors that
  /// score_mod looks up.
  std::vector<Tensor> constants() const;
  /// Returns whether `memory` may share bytes with an input or a constant.
  bool reads_from(const Tensor& memory) const;
  /// Detaches q, k, v, sinks, additive_w and the bias, because state saved for autograd must not keep the graph alive.
  void forget_history();
};

/// Returns whether the memory ranges of both tensors may overlap.
bool share_memory(const Tensor& a, const Tensor& b);

/// Views a tensor of rank 2, 3 or 4 as [B, H, T, D].
inline Tensor viewed(const Tensor& x, bool packed) {
  const int rank = x.impl()->sizes.size();
  if (rank == 4) return x;
  if (rank == 2) return x.unsqueeze(0).unsqueeze(0);
  return packed ? x.transpose(0, 1).unsqueeze(0) : x.unsqueeze(1);
}

/// Returns the problem as sequences read it that see all of their keys: their mask compares no ids.
kernels::AttentionProblem inside_sequences(const Call& call, const kernels::AttentionProblem& problem);

/// Calls visit(problem, task) for every sequence, or for every batch item if there are no sequences. `task`: all of its
/// rows, of head 0. `problem`: the call as the sequence reads it.
template <typename F>
void for_each_sequence(const Call& call, const kernels::AttentionProblem& problem, F&& visit) {
  using kernels::Task;
  if (call.sequences.empty())
    for (std::int64_t b = 0; b < problem.batch; ++b) visit(problem, Task{.batch = b, .rows = problem.q_rows});
  for (const kernels::Sequence& sequence : call.sequences) {
    const Task task{.batch = sequence.batch,
                    .row = sequence.rows_begin,
                    .rows = sequence.rows_end - sequence.rows_begin,
                    .sequence = &sequence};
    if (sequence.inside) visit(inside_sequences(call, problem), task);
    else visit(problem, task);
  }
}

}  // namespace attn
