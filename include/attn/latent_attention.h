// include/attn/latent_attention.h: multi-head latent attention (DeepSeek's MLA): keys and values of all heads are made
// from one latent row a token, which is all that a cache keeps.
#pragma once
#include <attn/attention.h>
#include <attn/cache.h>

#include <vector>

namespace attn {

/// The operands of a layer. The projections before them (of queries, of the latent, its norm, rotary embedding) are the
/// caller's.
struct LatentOperands {
  Tensor q_nope = {};  ///< [B, H, Tq, Dn]: the part of the queries without positions
  Tensor q_rope = {};  ///< [B, H, Tq, Dr]: their rotary part, rotated
  Tensor latent = {};  ///< [B, Tk, C]: the compressed row of keys and values of each token (c_t^KV)
  Tensor k_rope = {};  ///< [B, Tk, Dr]: the rotary key that all heads share, rotated
  Tensor w_uk = {};    ///< [H, Dn, C]: the up-projection of keys (W^UK)
  Tensor w_uv = {};    ///< [H, Dv, C]: the up-projection of values (W^UV)
};

/// The two orders of the products of latent attention. Both compute the same function; their roundings, and so their
/// bits, differ.
enum class LatentForm {
  /// Keys [W^UK c | k_rope] of Dn + Dr and values W^UV c of Dv elements are made for each head: few operations for many
  /// rows of q (prefill, training).
  expanded,
  /// The up-projections are moved to the query and to the output: q' = [q_nope W^UK | q_rope] attends over the rows
  /// [c | k_rope] themselves, whose first C elements are the values. No key is made: the fewest bytes, for decode.
  absorbed,
};

/// Computes latent attention.
///
///   s[b,h,i,j] = scale (q_nope[b,h,i,:] . W^UK[h] c[b,j,:]  +  q_rope[b,h,i,:] . k_rope[b,j,:])
///   o[b,h,i,:] = sum_j softmax_j(mod(cap(s) + bias) / temperature, where mask)[j] W^UV[h] c[b,j,:]
///
/// Shapes   those of LatentOperands -> output [B, H, Tq, Dv], logsumexp [B, H, Tq]. scale defaults to 1/sqrt(Dn + Dr)
///          in both forms.
/// Options  those of attention(), but the score is the scaled dot product, and `out` is not supported.
/// Dtypes   f32, f64, bf16, f16, the same for all operands.
/// Errors   as attention(), with this function's name; ShapeError where the operands' dims disagree.
/// Gradient all six operands and those of attention(); second derivatives too.
/// Bits     a row has the same bits in any batch, with any padding and thread count, in any number of calls; they
///          depend on `form`, which only the caller chooses (docs/numerics.md section 10).
/// Source   DeepSeek-V2 (2405.04434), section 2.1; the absorbed form: its appendix C.
ATTN_API AttentionResult latent_attention(const LatentOperands& operands, const AttentionOptions& options = {},
                                          LatentForm form = LatentForm::expanded);

/// Returns the options of a cache of latent rows: one key head, whose rows [c | k_rope] hold the values c.
ATTN_API KvCacheOptions latent_cache_options(std::int64_t latent_dim, std::int64_t rope_dim, std::int64_t pages,
                                             Dtype dtype = Dtype::f32, std::int64_t page_rows = 16);
/// Appends T tokens to each of B sequences, or to none: latent [B, T, C], k_rope [B, T, Dr].
ATTN_API void append_latent(KvCache& cache, const std::vector<KvSequence>& sequences, const Tensor& latent,
                            const Tensor& k_rope);

/// Computes latent_attention over the rows of a cache; `latent` and `k_rope` of the operands stay undefined. Batch item
/// b uses sequences[b].
///
/// Positions, options, evicted keys: as attention_cached.
/// Errors    as attention_cached; ValueError for a cache that was not made by latent_cache_options.
/// Gradient  none, as attention_cached.
/// Bits      those of latent_attention in the same form on the same rows. The expanded form makes the keys and values
///           of all cached rows in each call.
ATTN_API AttentionResult latent_attention_cached(const LatentOperands& operands, const KvCache& cache,
                                                 const std::vector<KvSequence>& sequences,
                                                 const AttentionOptions& options = {},
                                                 LatentForm form = LatentForm::absorbed);

}  // namespace attn
