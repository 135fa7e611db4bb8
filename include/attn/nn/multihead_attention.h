// include/attn/nn/multihead_attention.h: implements torch.nn.MultiheadAttention.
#pragma once
#include <attn/nn/layers.h>

namespace attn::nn {

struct MultiheadAttentionOptions {
  double dropout = 0;                               ///< the probability with which a weight is dropped in training
  bool bias = true;                                 ///< whether the four projections have a bias
  bool add_bias_kv = false;                         ///< append a learned key and value
  bool add_zero_attn = false;                       ///< append a key and a value of zeros, last of all
  std::optional<std::int64_t> kdim = std::nullopt;  ///< features of key; default embed_dim
  std::optional<std::int64_t> vdim = std::nullopt;  ///< features of value; default embed_dim
  bool batch_first = false;
  bool exact = false;  ///< whether a row that sees no key gives NaN where torch's code path does; false: it gives 0
  Dtype dtype = Dtype::f32;
  bool draw = true;  ///< false: the matrices start as zeros, because they are set or loaded later
};

struct MultiheadAttentionCall {
  Tensor key_padding_mask = {};  ///< [N, S], [S] unbatched; bool: True = masked; float: added
  bool need_weights = true;
  Tensor attn_mask = {};  ///< [L, S] or [N * num_heads, L, S]; bool: True = masked; float: added
  bool average_attn_weights = true;
  bool is_causal = false;  ///< a hint that attn_mask is causal; needs attn_mask
};

struct MultiheadAttentionResult {
  Tensor output;
  Tensor weights;  ///< after dropout; undefined with need_weights = false
};

/// Computes attention of several heads between learned projections.
///
///   head_h = softmax(Q_h K_h^T / sqrt(E / num_heads) + masks) V_h      Q, K, V = query W_q^T + b_q, ...
///   output = concat(head_0 ... head_{num_heads - 1}) W_out^T + b_out
///
/// Shapes   query [L, N, E], key [S, N, kdim], value [S, N, vdim] -> output [L, N, E]; with batch_first [N, L, E] and
///          so on; without N if unbatched. weights [N, L, S], or [N, num_heads, L, S] when they are not averaged, in
///          either layout; S includes the keys that add_bias_kv and add_zero_attn append (only the causal hint masks
///          them)
/// Dtypes   f32, f64, bf16, f16, the same for inputs and parameters; masks bool, that dtype or f32
/// State    in_proj_weight [3E, E], or q_proj_weight, k_proj_weight, v_proj_weight when kdim or vdim is not E;
///          in_proj_bias [3E]; bias_k, bias_v [1, 1, E]; out_proj.weight, out_proj.bias: torch's names and order
/// Draws    out_proj as a Linear; the in-projection by xavier_uniform_; bias_k, bias_v by xavier_normal_. Dropout draws
///          from the global generator, one number per weight, in the order of [N, num_heads, L, S]
/// A row that sees no key gives 0 before the output projection, so its output is out_proj.bias. With `exact` it gives
/// NaN wherever torch does (need_weights, or torch's fused path in eval). is_causal with attn_mask: as in torch, the
/// hint replaces the mask (top-left) if need_weights is false and key_padding_mask is not given. Otherwise, and on
/// torch's fused path, the mask applies and the hint is ignored.
/// Errors   ValueError for invalid sizes in the constructor and for is_causal without attn_mask; ShapeError and
///          DtypeError otherwise
/// Source   Vaswani 2017 (1706.03762); torch.nn.MultiheadAttention
class ATTN_API MultiheadAttention : public Module {
 public:
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads, const MultiheadAttentionOptions& options = {});
  MultiheadAttentionResult forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const MultiheadAttentionCall& call = {}) const;
  MultiheadAttentionResult operator()(const Tensor& query, const Tensor& key, const Tensor& value,
                                      const MultiheadAttentionCall& call = {}) const {
    return forward(query, key, value, call);
  }

  const std::int64_t embed_dim, num_heads, head_dim, kdim, vdim;
  const MultiheadAttentionOptions options;
  const Linear out_proj;
  const Tensor in_proj_weight, q_proj_weight, k_proj_weight, v_proj_weight, in_proj_bias, bias_k, bias_v;

 private:
  bool packed() const { return in_proj_weight.defined(); }
  Tensor project(int which, const Tensor& x) const;
  Tensor split_heads(const Tensor& x) const;
  bool takes_fused_path(const Tensor& query, const Tensor& key, const Tensor& value,
                        const MultiheadAttentionCall& call) const;
};

}  // namespace attn::nn
