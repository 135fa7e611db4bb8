// src/attention/score/projection.h: what a score does to q and k before QK^T: nothing, q W, or both projected.
#pragma once
#include <attn/attention.h>

namespace attn {

/// ShapeError, DtypeError or ValueError unless the score's parameters fit q and k (of the caller's rank) and the heads
/// of q.
void check_score(const char* function, const Tensor& q, const Tensor& k, std::int64_t heads,
                 const AttentionOptions& options);
/// Replaces q and k [B, H, T, D] by what the score of a pair is computed from.
void project(const Score& score, Tensor& q, Tensor& k);
/// What q is multiplied with; `dim` of q after `project`.
double score_scale(const AttentionOptions& options, std::int64_t dim);

}  // namespace attn
