// src/attention/latent/latent_call.h: checks a call of latent attention.
#pragma once
#include <attn/latent_attention.h>

namespace attn {

/// Checks the queries, the up-projections and the options that latent attention does not support.
void check_latent_call(const char* function, const LatentOperands& operands, const AttentionOptions& options,
                       LatentForm form);
/// Checks latent and k_rope, after check_latent_call.
void check_latent_rows(const char* function, const LatentOperands& operands);
/// Checks that the cache holds the rows and the operands do not, after check_latent_call.
void check_latent_cache(const char* function, const LatentOperands& operands, const KvCache& cache);
void check_latent_append(const KvCache& cache, const Tensor& latent, const Tensor& k_rope);

/// Returns the options with the scale of latent attention, 1/sqrt(Dn + Dr) unless one is given.
AttentionOptions latent_options(const LatentOperands& operands, AttentionOptions options);

}  // namespace attn
