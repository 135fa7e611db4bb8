// src/attention/score/projection.h: applies a score's projections to q and k before QK^T: none, q W, or both.
#pragma once
#include <attn/attention.h>

namespace attn {

/// Throws ShapeError, DtypeError or ValueError unless the score's parameters fit q and k (in the caller's rank) and the
/// heads of q.
void check_score(const char* function, const Tensor& q, const Tensor& k, std::int64_t heads,
                 const AttentionOptions& options);
/// Replaces q, k [B, H, T, D] by what the kernel multiplies: for a general score q by q W, for an additive score both
/// by their projections; a dot score changes nothing.
void project(const Score& score, Tensor& q, Tensor& k);
/// Returns whether `project` changes k: a cache, which stores keys as they are, must then gather them first.
bool projects_keys(const Score& score);
/// Returns the factor by which q is multiplied; `dim` is the last dim of q after `project`.
double score_scale(const AttentionOptions& options, std::int64_t dim);

}  // namespace attn
