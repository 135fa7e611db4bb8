// src/attention/latent/latent_attention.cc: latent attention as products and attention() on keys that are made for each
// head, or on the latent rows themselves.
#include <attn/autograd.h>
#include <attn/latent_attention.h>
#include <attn/ops.h>

#include "attention/cache/cache_call.h"
#include "attention/internal.h"
#include "attention/latent/latent_call.h"

#include <utility>

namespace attn {
namespace {

constexpr const char* plain = "latent_attention";
constexpr const char* cached = "latent_attention_cached";

/// Multiplies the rows x [B, H, T, K] of each head by its matrix w [H, K, N]: all rows of a head in one product, so
/// that each matrix is read once for the whole batch.
Tensor times_of_head(const Tensor& x, const Tensor& w) {
  const std::int64_t batch = x.size(0), heads = x.size(1), rows = x.size(2);
  if (batch == 1) return matmul(x, w.unsqueeze(0));
  const Tensor by_head = x.transpose(0, 1).reshape({heads, batch * rows, x.size(3)});
  return matmul(by_head, w).reshape({heads, batch, rows, w.size(2)}).transpose(0, 1);
}

/// Returns the keys and values of each head from rows [c | k_rope], [B, T, C] and [B, T, Dr].
KvCache::Rows expanded_rows(const LatentOperands& o, const Tensor& latent, const Tensor& k_rope) {
  const Tensor of_heads = latent.unsqueeze(1);  // [B, 1, T, C]
  const Tensor k_nope = matmul(of_heads, o.w_uk.transpose(1, 2));
  const Tensor shared = k_rope.unsqueeze(1).expand({latent.size(0), o.w_uk.size(0), latent.size(1), k_rope.size(2)});
  return {cat({k_nope, shared}, -1), matmul(of_heads, o.w_uv.transpose(1, 2))};
}

/// Returns the query over latent rows, [B, H, Tq, C + Dr].
Tensor absorbed_query(const LatentOperands& o) { return cat({times_of_head(o.q_nope, o.w_uk), o.q_rope}, -1); }
Tensor whole_query(const LatentOperands& o) { return cat({o.q_nope, o.q_rope}, -1); }
Tensor latent_row(const Tensor& latent, const Tensor& k_rope) { return cat({latent, k_rope}, -1).unsqueeze(1); }

AttentionResult through_values(const LatentOperands& o, AttentionResult result) {
  result.output = times_of_head(result.output, o.w_uv.transpose(1, 2));
  return result;
}

}  // namespace

AttentionResult latent_attention(const LatentOperands& operands, const AttentionOptions& given, LatentForm form) {
  check_latent_call(plain, operands, given, form);
  check_latent_rows(plain, operands);
  const AttentionOptions options = latent_options(operands, given);
  if (form == LatentForm::expanded) {
    const KvCache::Rows rows = expanded_rows(operands, operands.latent, operands.k_rope);
    return attention_call(whole_query(operands), rows.k, rows.v, options, {.function = plain});
  }
  const Tensor rows = latent_row(operands.latent, operands.k_rope);
  const Tensor values = rows.narrow(-1, 0, operands.w_uk.size(2));
  return through_values(operands, attention_call(absorbed_query(operands), rows, values, options, {.function = plain}));
}

KvCacheOptions latent_cache_options(std::int64_t latent_dim, std::int64_t rope_dim, std::int64_t pages, Dtype dtype,
                                    std::int64_t page_rows) {
  return {.key_heads = 1,
          .value_heads = 1,
          .head_dim = latent_dim + rope_dim,
          .value_dim = latent_dim,
          .page_rows = page_rows,
          .pages = pages,
          .dtype = dtype,
          .values_in_keys = true};
}

void append_latent(KvCache& cache, const std::vector<KvSequence>& sequences, const Tensor& latent,
                   const Tensor& k_rope) {
  check_latent_append(cache, latent, k_rope);
  cache.append(sequences, latent_row(latent, k_rope));
}

AttentionResult latent_attention_cached(const LatentOperands& operands, const KvCache& cache,
                                        const std::vector<KvSequence>& sequences, const AttentionOptions& given,
                                        LatentForm form) {
  check_latent_call(cached, operands, given, form);
  check_latent_cache(cached, operands, cache);
  const AttentionOptions options = latent_options(operands, given);
  AttentionResult result;
  {
    const NoGrad unrecorded;
    if (form == LatentForm::absorbed) {
      result = attend_cached(cached, absorbed_query(operands), cache, sequences, options);
      result = through_values(operands, std::move(result));
    } else {
      const std::int64_t latent = operands.w_uk.size(2), rope = operands.q_rope.size(3);
      result = attend_cached(cached, whole_query(operands), cache, sequences, options, [&](const KvCache::Rows& rows) {
        const Tensor row = rows.k.select(1, 0);
        return expanded_rows(operands, row.narrow(-1, 0, latent), row.narrow(-1, latent, rope));
      });
    }
  }
  refuse_cached_gradient(cached, plain, {operands.q_nope, operands.q_rope, operands.w_uk, operands.w_uv}, cache,
                         options, result);
  return result;
}

}  // namespace attn
