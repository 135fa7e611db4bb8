// include/attn/attention_jvp.h: forward mode: how the results of attention change along a direction of its operands (a
// Jacobian-vector product), without the Tq x Tk weights.
#pragma once
#include <attn/attention_backward.h>

#include <vector>

namespace attn {

/// A direction: for each operand its tangent, with the operand's shape and dtype. Undefined: the tangent is 0.
struct AttentionTangents {
  Tensor q = {}, k = {}, v = {};
  Tensor sinks = {};
  std::vector<Tensor> bias = {};  ///< of the values of each bias term (dense, ALiBi's slopes, a table); empty: none
};

/// The tangents of the results.
struct AttentionResultTangents {
  Tensor output;     ///< [B, Hq, Tq, Dv], the dtype of q
  Tensor logsumexp;  ///< [B, Hq, Tq], f32 (f64 for f64); 0 for a row that sees no key
};

struct AttentionJvp {
  Tensor output, logsumexp;  ///< those of attention(), with its bits
  AttentionResultTangents tangent;
  std::uint64_t dropout_seed = 0;  ///< of this call; passing it again drops the same weights
};

/// Computes attention and the derivative of its results along `tangents`.
///
///   ds[i,j] = the derivative of the score s[i,j] (scale, softcap, bias, score_mod, temperature) along the tangents
///   mu[i]   = sum_j p[i,j] ds[i,j]                                     p: the softmax's weights
///   do[i,:] = sum_j w[i,j] ds[i,j] v[j,:] + sum_j w[i,j] dv[j,:] - mu[i] o[i,:]        w: p after dropout
///
/// mu is the tangent of the logsumexp. After the forward pass, one pass over the keys makes the weights again from each
/// row's maximum and sum, block by block, as the backward pass does: memory O(T D).
/// Shapes   as attention(); every form of q, k and v (rank 2 to 4, packed).
/// Dtypes   f32, f64. bf16 and f16: the output is that of attention(); its tangent is computed in f32 from operands
///          widened exactly, and rounded once.
/// Options  masks, lengths, biases, sinks, softcap, temperature, score_mod (its tensors have no tangents), grouped
///          heads, dropout. ValueError for other scores than the (scaled) dot product, a score_callback, weights, out.
/// Errors   as attention(); ShapeError, DtypeError for a tangent that does not fit its operand; ValueError for a
///          bias tangent of a term that is not there, and where an operand requires a gradient: the results have none.
/// Bits     the same for a row in any batch, with any padding, thread count and target (docs/numerics.md section 11).
/// Source   the chain rule; memory as Dao 2022 (2205.14135).
ATTN_API AttentionJvp attention_jvp(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionTangents& tangents, const AttentionOptions& options = {});

/// Computes the tangents alone, with the bits of attention_jvp, from what attention_forward saved for the same operands
/// and options: several directions share one forward pass.
/// Dtypes   f32, f64. DtypeError for 16 bits, whose saved state is rounded: attention_jvp takes them.
ATTN_API AttentionResultTangents attention_tangent(const Tensor& q, const Tensor& k, const Tensor& v,
                                                   const AttentionOptions& options, const AttentionSaved& saved,
                                                   const AttentionTangents& tangents);

/// The tangents of the incoming gradients of a backward pass. Undefined: the tangent is 0.
struct AttentionFlowTangents {
  Tensor grad_output = {};     ///< shape and dtype of the output
  Tensor grad_logsumexp = {};  ///< shape and dtype of the logsumexp
};

/// Computes how the gradients of a call change along a direction of its operands and of its incoming gradients: with
/// g(x, dy) what attention_backward gives, the derivative of g(x + t x', dy + t dy') by t at 0. Of a function of the
/// output it is the product of its second derivatives (the Hessian) with x'.
///
///   ds'[i,j] = p[i,j] ((s'[i,j] - mu[i]) (dp[i,j] - delta[i]) + dp'[i,j] - delta'[i])      x': the tangent of x
///   dq' = sum_j ds' k + ds k'      dk' = sum_i ds' q + ds q'      dv' = sum_i p' do + p do'     p' = p (s' - mu)
///
/// After the pass of attention_tangent one pass over the keys makes weights and scores again, block by block, as the
/// backward pass does: memory O(T D).
/// `wanted`  as for attention_backward, without memory for the results.
/// Returns   the tangents of the gradients of q, k, v, sinks and bias terms, as attention_backward returns these.
/// Dtypes    f32, f64; bf16 and f16 are computed in f32 after a forward pass in f32, and rounded once.
/// Options   those of attention_tangent but score_mod: ValueError.
/// Errors    as attention_tangent and attention_backward.
/// Bits      the same for any thread count and target (docs/numerics.md section 11.1).
/// Source    the chain rule; Pearlmutter 1994 (products with second derivatives); memory as Dao 2022 (2205.14135).
ATTN_API AttentionGradients attention_backward_tangent(const Tensor& q, const Tensor& k, const Tensor& v,
                                                       const AttentionOptions& options, const AttentionSaved& saved,
                                                       const AttentionBackwardOptions& wanted,
                                                       const AttentionTangents& tangents,
                                                       const AttentionFlowTangents& flows = {});

}  // namespace attn
