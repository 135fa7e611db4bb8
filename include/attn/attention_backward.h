// include/attn/attention_backward.h: runs the forward and the backward pass for callers that record gradients
// themselves (such as another autograd system), and defines the state saved between the passes.
#pragma once
#include <attn/attention.h>

#include <utility>
#include <vector>

namespace attn {

/// The state that the backward pass needs besides operands and options: the output and two numbers per row.
struct AttentionSaved {
  Tensor output;    ///< the output of the call
  Tensor max, sum;  ///< [B, Hq, Tq], f32 (f64 for f64): each row's final maximum and its sum of e^(s - max)
  std::uint64_t dropout_seed = 0;
  Tensor weight_keys = {};  ///< with Weights::top_k: the keys of the returned weights
  /// An input: if true, the call computes and keeps exactly what a call recorded for autograd keeps. If the 16-bit
  /// output was rounded from f32, the saved `output` is then the f32 one.
  bool exact = false;
};

/// Computes attention() and fills `saved` for the backward pass; records nothing for autograd. If `max` and `sum` are
/// defined on entry, the call writes into them. They must then be contiguous, have the shape and dtype above and share
/// memory with no other tensor, else ShapeError, DtypeError or ValueError.
ATTN_API AttentionResult attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                           const AttentionOptions& options, AttentionSaved& saved);

/// Returns the result of attention() with its gradient history, without computing the forward pass again. It is for
/// callers that kept the operands, the options and what attention_forward saved with `exact`. All gradients of
/// attention() are available, for any score and through the weights too, with the same bits. Only projections of q and
/// k are computed again. In the result the output has values; weights and logsumexp have only shape and history.
/// Errors   as attention; ShapeError and DtypeError for a saved tensor of another shape or dtype.
ATTN_API AttentionResult attention_recorded(const Tensor& q, const Tensor& k, const Tensor& v,
                                            const AttentionOptions& options, const AttentionSaved& saved);

struct AttentionBackwardOptions {
  Tensor grad_output;                     ///< same shape as the output
  Tensor grad_logsumexp = {};             ///< same shape as the logsumexp; undefined: none
  bool k = true, v = true, sinks = true;  ///< which gradients to compute besides q's
  bool bias = true, score_mod = true;
  /// Memory for the results, [B, H, T, D], in the compute type (f32, or f64 for f64), last dim contiguous; undefined:
  /// newly allocated. It may be the memory of an operand or of grad_output. No two results may share elements;
  /// ValueError if two contiguous results overlap or two results begin at the same address.
  Tensor grad_q = {}, grad_k = {}, grad_v = {};
};

struct AttentionGradients {
  Tensor q, k, v;  ///< [B, H, T, D], in the dtype of the operands
  Tensor sinks;    ///< [Hq], in the compute type
  /// The gradients of the bias, in order, in the shape and dtype of their tensors: one for each term; two, of the table
  /// and of the operand, for a relative product with an operand.
  std::vector<Tensor> bias;
  /// Each floating tensor that score_mod or weight_mod looks up, as given, with its gradient in the same shape and
  /// dtype.
  std::vector<std::pair<Tensor, Tensor>> score_mod;
};

/// Computes the gradients of a call from the gradient of its results. The fused pass recomputes the weights block by
/// block.
///
/// `options` must be those of the forward call; the dropout seed comes from `saved.dropout_seed`.
/// Dtypes   f32, f64; bf16 and f16 with sums in f32, each gradient rounded once.
/// Errors   as attention(); ShapeError or DtypeError for a grad_output, a saved tensor or memory for results that does
///          not fit; ValueError for a score other than the (scaled) dot product, whose gradient needs autograd.h, and
///          for a score_callback, which has no gradient.
/// Bits     those of backward() through the same call, with one exception: if the 16-bit output was rounded from f32
///          (f16, and bf16 without the processor's bf16 dot product), autograd keeps the f32 output, while this
///          function, without `exact`, uses the rounded one.
ATTN_API AttentionGradients attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                               const AttentionOptions& options, const AttentionSaved& saved,
                                               const AttentionBackwardOptions& wanted);

}  // namespace attn
