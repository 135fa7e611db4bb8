// src/attention/cache/sinks.h: evicts keys of a cache, but keeps attention sinks, the first keys of a sequence.
#pragma once
#include <attn/cache.h>

namespace attn {

/// Computes KvCache::evict, but keeps the first `sinks` keys too: the keys are then masked as by
/// ~Mask::prefix(position) | Mask::prefix(sinks). What an earlier call has masked stays masked.
/// Source   Xiao 2023 (2309.17453)
void evict_behind_sinks(KvCache& cache, KvSequence sequence, std::int64_t position, std::int64_t sinks);

}  // namespace attn
