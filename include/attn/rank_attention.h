// include/attn/rank_attention.h: attention over a sequence whose rows are dealt to several processes, with the bits of
// one process.
#pragma once
#include <attn/attention_backward.h>
#include <attn/ranks.h>

#include <cstdint>
#include <vector>

// The definitions of this header are in the library attn::model.
namespace attn {

/// How the rows of a sequence, and its keys with them, are dealt to the ranks.
///   heads     rank r has adjacent rows, from floor(length r / R) to before floor(length (r + 1) / R). For a call they
///             are exchanged for all rows of some heads (as DeepSpeed-Ulysses does), so each rank needs a head of k and
///             of v.
///   stripes   block b of 64 rows is at rank b mod R; every rank reads all keys as they pass by, in their order. Any
///             number of ranks, any length; causal work is even.
enum class RankLayout { heads, stripes };

/// Returns the rows that this rank has, ascending; none if there are fewer rows or blocks than ranks.
/// Errors   ValueError for a negative length.
ATTN_API std::vector<std::int64_t> rank_rows(const Ranks& ranks, RankLayout layout, std::int64_t length);

/// Computes attention() of a sequence of `length` rows and keys that all ranks hold together. Collective.
///
/// Shapes   q [B, Hq, own rows, D], k [B, Hk, own rows, D], v [B, Hv, own rows, Dv]: the rows of rank_rows, in that
///          order, which the results have too. Options are the same at every rank.
/// Dtypes   those of attention().
/// Errors   RankError with the same text at every rank, whichever rank is wrong; alone the errors of attention(). What
///          a layout does not do is an error that names it, never another mask (docs/ranks.md has the list).
/// Bits     those of attention() on the whole sequence, for any number of ranks.
ATTN_API AttentionResult rank_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                        RankLayout layout, const Ranks& ranks, const AttentionOptions& options = {});

/// Computes rank_attention() and fills `saved` for the backward pass, as attention_forward does; what is saved has this
/// rank's rows. Collective.
ATTN_API AttentionResult rank_attention_forward(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t length,
                                                RankLayout layout, const Ranks& ranks, const AttentionOptions& options,
                                                AttentionSaved& saved);

/// Computes attention_backward() of the whole sequence: the gradients of this rank's rows of q, k and v. Gradients of
/// options are complete at every rank. Collective; `wanted` is the same at every rank.
ATTN_API AttentionGradients rank_attention_backward(const Tensor& q, const Tensor& k, const Tensor& v,
                                                    std::int64_t length, RankLayout layout, const Ranks& ranks,
                                                    const AttentionOptions& options, const AttentionSaved& saved,
                                                    const AttentionBackwardOptions& wanted);

}  // namespace attn
