// include/attn/linear_attention.h: linear attention with a state: the gated delta rule, the delta rule, decay of a head
// and gates of key channels; and the short causal convolution that such layers have before it.
#pragma once
#include <attn/tensor.h>

#include <optional>

namespace attn {

struct LinearAttentionOptions {
  /// The log of the decay, 0 or below in practice: [B, Hv, T], or [B, Hv, T, Dk] with one for each key channel, or [Hv]
  /// for all rows of a head. Undefined: no decay.
  Tensor g = {};
  Tensor beta = {};           ///< [B, Hv, T]; defined: the delta rule adds beta times (v - S^T k)
  Tensor initial_state = {};  ///< [N, Hv, Dk, Dv] of the N sequences; undefined: zeros
  Tensor lengths = {};        ///< [B], i64 or i32: the rows that count; rows after them give 0 and change no state
  Tensor cu_seqlens = {};     ///< [N + 1]: N sequences one after another in T rows of B = 1; excludes `lengths`
  std::optional<double> scale = {};  ///< of q; default 1 / sqrt(Dk)
  bool l2norm = false;               ///< divide each row of q and k by sqrt(sum of its squares + 1e-6) first
};

struct LinearAttentionResult {
  Tensor output;  ///< [B, Hv, T, Dv], in the dtype of q
  Tensor state;   ///< [N, Hv, Dk, Dv] after the last row, f32 (f64 for f64): the `initial_state` of what follows
};

/// Linear attention as a recurrence: a state S [Dk, Dv] for each sequence and head of v, changed by each row.
///
///   S = e^(g_t) S                                     the decay: of the head, or of each key channel; or none
///   u = beta_t (v_t - S^T k_t)                        with beta: the (gated) delta rule
///   u = v_t                                           without
///   S = S + k_t u^T
///   o_t = S^T (scale q_t)
///
/// Shapes   q, k [B, Hk, T, Dk]   v [B, Hv, T, Dv]   ->   output [B, Hv, T, Dv], state [N, Hv, Dk, Dv]. Hv is a
///          multiple of Hk: head h of v has head h / (Hv / Hk) of q and k. N is B, or the number of packed sequences.
/// Dtypes   f32, f64, bf16, f16, the same for q, k, v; g, beta and initial_state any floating; state and sums in f32
///          (f64 for f64).
/// Errors   ShapeError when dims disagree; DtypeError when dtypes differ; ValueError for lengths out of range.
/// Gradient q, k, v, g, beta, initial_state; of the output and of the state. The backward pass keeps the inputs and one
///          state every 64 rows, and computes the others again. It has no gradient itself.
/// Bits     this order is the definition: rows in one call, one by one, or split after any row with the state carried
///          over, alone or in a batch, on any target and number of threads give the same bits (docs/numerics.md
///          section 9).
/// Source   Katharopoulos 2020 (2006.16236); Sun 2023 (RetNet, 2307.08621); Yang 2023 (GLA, 2312.06635); Yang 2024
///          (Gated DeltaNet, 2412.06464).
ATTN_API LinearAttentionResult linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                const LinearAttentionOptions& options = {});

/// The gated delta rule of Gated DeltaNet, Qwen3-Next and Qwen3.5: linear_attention with this g and beta.
ATTN_API LinearAttentionResult gated_delta_rule(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& g,
                                                const Tensor& beta, LinearAttentionOptions options = {});

/// The states that the forward pass keeps: one before every 64th row of each sequence, [chunks, Hv, Dk, Dv].
struct LinearAttentionSaved {
  Tensor states;
};
struct LinearAttentionGradients {
  Tensor q, k, v, g, beta, initial_state;  ///< undefined where the option was not given
};

/// linear_attention for callers that record gradients themselves: fills `saved`; records nothing for autograd.
ATTN_API LinearAttentionResult linear_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                        const LinearAttentionOptions& options,
                                                        LinearAttentionSaved& saved);
/// Computes the gradients from those of output and state; either may be undefined: none. Operands and options must be
/// those of the forward call.
ATTN_API LinearAttentionGradients linear_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                            const LinearAttentionOptions& options,
                                                            const LinearAttentionSaved& saved,
                                                            const Tensor& grad_output, const Tensor& grad_state);

struct CausalConvOptions {
  Tensor bias = {};           ///< [C]
  Tensor initial_state = {};  ///< [B, C, K - 1]: the inputs before the first; undefined: zeros
  bool silu = false;          ///< apply silu to the sums
};
struct CausalConvResult {
  Tensor output;  ///< [B, C, T], in the dtype of x
  Tensor state;   ///< [B, C, K - 1]: the last inputs, in the dtype of x: the `initial_state` of what follows
};

/// The short causal depthwise convolution: each channel by itself, over its last K inputs.
///
///   y[b,c,t] = silu(bias[c] + sum_j weight[c,j] x[b,c,t-K+1+j])      inputs before the first are those of the state
///
/// Shapes   x [B, C, T]   weight [C, K]   ->   output [B, C, T], state [B, C, K - 1].
/// Dtypes   f32, f64, bf16, f16; sums in f32 (f64 for f64). weight, bias, initial_state any floating.
/// Errors   ShapeError when dims disagree; DtypeError for integers.
/// Gradient x, weight, bias, initial_state, in one pass; they have gradients themselves.
/// Bits     as linear_attention: in one call, row by row, or split anywhere; a chain of fma over j from the bias.
ATTN_API CausalConvResult causal_conv1d(const Tensor& x, const Tensor& weight, const CausalConvOptions& options = {});

struct CausalConvGradients {
  Tensor x, weight, bias, initial_state;  ///< undefined where the option was not given
};

/// For callers that record gradients themselves: computes the gradients from those of output and state; either may be
/// undefined: none. Operands and options must be those of the forward call. Records nothing for autograd.
ATTN_API CausalConvGradients causal_conv1d_backward(const Tensor& x, const Tensor& weight,
                                                    const CausalConvOptions& options, const Tensor& grad_output,
                                                    const Tensor& grad_state);

}  // namespace attn
