// src/explain/matrices.h: holds the matrices that a model would have learned: the embedding, W_q, W_k, W_v and the
// score's own.
#pragma once
#include <attn/explain.h>

namespace attn::explain_detail {

inline constexpr std::int64_t kEmbeddingRows = 50000;

struct Matrices {
  Tensor embedding;                  // [ids, dim]
  Tensor w_query, w_key, w_value;    // [heads, dim, dk], [heads, dim, dk], [heads, dim, dv]
  Tensor score_q, score_k, score_w;  // additive: [dk, dk], [dk, dk], [dk]; general: score_w [dk, dk]
  bool own_embedding = false, own_projections = false;
  std::int64_t heads() const { return w_query.size(0); }
  std::int64_t dim() const { return w_query.size(1); }
  std::int64_t dk() const { return w_query.size(2); }
  std::int64_t dv() const { return w_value.size(2); }
};

/// Draws random matrices as a beginner's PyTorch script does: Embedding(50000, dim) from a fresh seed; then, from the
/// same seed again, w_query, w_key, w_value head by head with rand, then the matrices of the score.
Matrices make_matrices(const ExplainOptions& options);

Score score_of(Score::Kind kind, const Matrices& matrices);

}  // namespace attn::explain_detail
