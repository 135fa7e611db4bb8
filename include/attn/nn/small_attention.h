// include/attn/nn/small_attention.h: defines attention modules as tutorials build them: one head, several heads, a
// learned query, scores alone.
#pragma once
#include <attn/attention.h>
#include <attn/nn/containers.h>
#include <attn/nn/layers.h>

namespace attn::nn {

// Shapes are given for T rows of x; a batch dim may come first: x [T, d_in] or [B, T, d_in]. f32. A row that sees no
// key gives 0.

/// Computes softmax(x w_query (x w_key)^T / sqrt(d_out_kq)) x w_value.
///
/// Shapes   x [T, d_in] -> [T, d_out_v]; w_query, w_key [d_in, d_out_kq], w_value [d_in, d_out_v]
/// Draws    w_query, w_key, w_value: rand
/// Errors   ShapeError when x's last dim is not d_in
class ATTN_API SelfAttention : public Module {
 public:
  SelfAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v);
  /// Computes forward() with more options of attention: masks, bias, weights.
  AttentionResult attend(const Tensor& x, const AttentionOptions& options = {}) const;
  Tensor forward(const Tensor& x) const { return attend(x).output; }
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const Tensor w_query, w_key, w_value;
};

/// SelfAttention with a causal mask: row i sees rows 0 ... i.
class ATTN_API CausalSelfAttention : public Module {
 public:
  CausalSelfAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v);
  AttentionResult attend(const Tensor& x, const AttentionOptions& options = {}) const;
  Tensor forward(const Tensor& x) const { return attend(x).output; }
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const Tensor w_query, w_key, w_value;
};

/// Attention with queries from x2, and keys and values from x1.
///
/// Shapes   x1 [Tk, d_in], x2 [Tq, d_in] -> [Tq, d_out_v]
/// Draws    as SelfAttention
class ATTN_API CrossAttention : public Module {
 public:
  CrossAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v);
  AttentionResult attend(const Tensor& x1, const Tensor& x2, const AttentionOptions& options = {}) const;
  Tensor forward(const Tensor& x1, const Tensor& x2) const { return attend(x1, x2).output; }
  Tensor operator()(const Tensor& x1, const Tensor& x2) const { return forward(x1, x2); }
  const Tensor w_query, w_key, w_value;
};

/// Runs num_heads SelfAttentions and concatenates their outputs. Names: heads.0.w_query, ...
///
/// Shapes   x [T, d_in] -> [T, num_heads * d_out_v]
class ATTN_API MultiHeadAttentionWrapper : public Module {
 public:
  MultiHeadAttentionWrapper(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v, std::int64_t num_heads);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const ModuleList<SelfAttention> heads;
};

/// Additive attention pooling with a learned query: s_t = w tanh(W_q q + W_k x_t), context = sum_t softmax(s)_t x_t.
///
/// Shapes   x [B, L, hidden], padding bool [B, L] (True = padding) -> scores, weights [B, L], context [B, hidden]
/// Draws    W_q, W_k, w as Linears without bias; then q [1, hidden]: randn
/// Source   Bahdanau 2014 (1409.0473)
class ATTN_API AdditiveAttention : public Module {
 public:
  explicit AdditiveAttention(std::int64_t hidden_size);
  ScoresAndContext forward(const Tensor& x, const Tensor& padding = {}) const;
  ScoresAndContext operator()(const Tensor& x, const Tensor& padding = {}) const { return forward(x, padding); }
  const Linear W_q, W_k, w;
  const Tensor q;
};

/// Dot-product attention pooling with a learned query: s_t = x_t . q, unscaled.
///
/// Shapes   as AdditiveAttention; q [hidden, 1]: randn
/// Source   Luong 2015 (1508.04025)
class ATTN_API DotProductAttention : public Module {
 public:
  explicit DotProductAttention(std::int64_t hidden_size);
  ScoresAndContext forward(const Tensor& x, const Tensor& padding = {}) const;
  ScoresAndContext operator()(const Tensor& x, const Tensor& padding = {}) const { return forward(x, padding); }
  const Tensor q;
};

/// Computes the scores of self-attention only: W_q x (W_k x)^T, unscaled.
///
/// Shapes   x [B, L, hidden] -> [B, L, L]
/// Draws    W_q, W_k as Linears without bias
class ATTN_API SelfAttentionScore : public Module {
 public:
  explicit SelfAttentionScore(std::int64_t hidden_size);
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return forward(x); }
  const Linear W_q, W_k;
};

/// Multi-head attention between four Linears, written with einsum in its tutorial. Its masks mean the opposite of those
/// of MultiheadAttention (torch's class, where True is masked): here a mask value other than 0 takes part.
///
/// Shapes   x_q [N, L_Q, d_model], x_k, x_v [N, L_KV, d_model], padding_mask [N, L_KV], attention_mask [L_Q, L_KV]
///          -> [N, L_Q, d_model]
/// Draws    W_Q, W_K, W_V, W_O as Linears
/// Errors   ValueError unless num_heads divides d_model; ShapeError for masks of other shapes
class ATTN_API MultiHeadAttention : public Module {
 public:
  MultiHeadAttention(std::int64_t d_model, std::int64_t num_heads);
  Tensor forward(const Tensor& x_q, const Tensor& x_k, const Tensor& x_v, const Tensor& padding_mask = {},
                 const Tensor& attention_mask = {}) const;
  Tensor operator()(const Tensor& x_q, const Tensor& x_k, const Tensor& x_v, const Tensor& padding_mask = {},
                    const Tensor& attention_mask = {}) const {
    return forward(x_q, x_k, x_v, padding_mask, attention_mask);
  }
  const std::int64_t d_model, num_heads;
  const Linear W_Q, W_K, W_V, W_O;
};

}  // namespace attn::nn
