// src/explain/random_parameters.h: holds the matrices that a model would have learned: the embedding, W_q, W_k, W_v,
// W_O, a learned query and the score's own.
#pragma once
#include <attn/explain.h>

namespace attn::explain_detail {

struct Matrices {
  Tensor embedding;                     // [ids, dim]; of a random one only the rows in use
  Tensor w_query, w_key, w_value;       // [heads, dim, dk], [heads, dim, dk], [heads, dim, dv]
  Tensor w_output;                      // [heads * dv, any], or undefined
  Tensor score_q, score_k, score_w;     // additive: [n, dk], [n, dk], [n]; general: score_w [dk, dk]
  Tensor learned_query;                 // [1, dim], or undefined
  std::int64_t embedding_rows = 50000;  // of the whole embedding
  bool own_embedding = false, own_projections = false, own_output = false, own_query = false, own_score = false;
  std::int64_t heads() const { return w_query.size(0); }
  std::int64_t dim() const { return w_query.size(1); }
  std::int64_t dk() const { return w_query.size(2); }
  std::int64_t dv() const { return w_value.size(2); }
};

/// Takes the caller's matrices, and draws the others as a beginner's PyTorch script does: Embedding(vocabulary, dim)
/// from a fresh seed; then, from the same seed again, w_query, w_key, w_value head by head with rand, then W_O, then
/// the matrices of the score, then, with randn, the learned query. `ids` is the number of embedding rows that the texts
/// use; a drawn embedding may lack the later ones.
Matrices make_matrices(const ExplainOptions& options, std::int64_t ids);

Score score_of(Score::Kind kind, const Matrices& matrices);

}  // namespace attn::explain_detail
