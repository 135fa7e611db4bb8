// include/attn/attention_backward.h: attention for a program with a tape of its own: what a call leaves, and its
// backward pass from that.
#pragma once
#include <attn/attention.h>

#include <utility>
#include <vector>

namespace attn {

/// What the backward pass of a call needs beside operands and options: two numbers a row.
struct AttentionSaved {
  Tensor output;    ///< of the call
  Tensor max, sum;  ///< [B, Hq, Tq], f32 (f64 for f64): of each row the final maximum and sum of e^(s - max)
  std::uint64_t dropout_seed = 0;
  Tensor weight_keys = {};  ///< of Weights::top_k
  /// Set before the call: compute and keep what a recorded call does. Of a 16-bit output that was rounded from f32
  /// `output` is then the f32 one.
  bool exact = false;
};

/// attention(), and in `saved` what its backward pass needs; nothing is recorded. `max` and `sum` are written into when
/// they are defined on entry: contiguous, of that shape and dtype, sharing memory with nothing else, else a ShapeError,
/// DtypeError or ValueError.
ATTN_API AttentionResult attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const AttentionOptions& options, AttentionSaved& saved);

/// attention() on the library's tape, for a caller who kept operands, options and what attention_forward left with
/// `exact`, and no tape between the passes: every gradient that attention() has, of any score, the weights too, with
/// the same bits. Nothing is computed again but projections of q and k. Of the results the output has its values,
/// weights and logsumexp have shape and history alone.
/// Errors   as attention; ShapeError and DtypeError for a saved tensor of another shape or dtype.
ATTN_API AttentionResult attention_recorded(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, const AttentionSaved& saved);

struct AttentionBackwardOptions {
  Tensor grad_output;                     ///< as the output
  Tensor grad_logsumexp = {};             ///< as the logsumexp, or undefined: none
  bool k = true, v = true, sinks = true;  ///< what is wanted beside q's gradient
  bool bias = true, score_mod = true;
  /// Memory for the results, [B, H, T, D] of f32 or f64; undefined: new. It may be that of operands or of grad_output,
  /// but no two may share elements: a ValueError where they are contiguous or begin alike.
  Tensor grad_q = {}, grad_k = {}, grad_v = {};
};

struct AttentionGradients {
  Tensor q, k, v;            ///< [B, H, T, D], the dtype of the operands
  Tensor sinks;              ///< [Hq], the compute type
  std::vector<Tensor> bias;  ///< of each term's values, in their shape and dtype
  /// Each tensor of numbers that the score_mod looks up, as it was given, and its gradient in that shape and dtype.
  std::vector<std::pair<Tensor, Tensor>> score_mod;
};

/// The gradients of a call from that of its results, in the fused pass: the weights are made again, block by block.
///
/// `options` are those of the forward call; its dropout comes from `saved.dropout_seed`.
/// Dtypes   f32, f64; bf16 and f16 with sums in f32, each gradient rounded once.
/// Errors   as attention; ShapeError for a grad_output or a saved tensor of another shape; ValueError for a score other
///          than the (scaled) dot product, whose gradient needs the library's own tape (autograd.h), and for a
///          score_callback, which has none.
/// Bits     those of backward() through the same call; of a 16-bit output that was rounded from f32 (f16, and bf16
///          where the processor has no product of its own for it) the tape keeps the f32 one, this, without `exact`,
///          the rounded one.
ATTN_API AttentionGradients attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const AttentionOptions& options, const AttentionSaved& saved,
                                               const AttentionBackwardOptions& wanted);

}  // namespace attn
