// src/attention/cache/cache_call.h: declares what the functions share that run attention over a cache.
#pragma once
#include <attn/cache.h>

#include "attention/cache/cache_state.h"
#include "attention/call/cached_kv.h"

#include <functional>
#include <vector>

namespace attn {

/// The rows of some sequences as kernels find them: `kv` points to the tables.
struct CachedPages {
  std::vector<std::int32_t> tables;
  CachedKv kv;
};
CachedPages pages_of(const KvCache::State& cache, const std::vector<const KvCache::State::Sequence*>& sequences);

/// Computes attention_cached under the name `function`, without a record for autograd. With `expand` the keys and
/// values are those that it makes from all rows of the cache.
AttentionResult attend_cached(const char* function, const Tensor& q, const KvCache& cache,
                              const std::vector<KvSequence>& sequences, const AttentionOptions& options,
                              const std::function<KvCache::Rows(const KvCache::Rows&)>& expand = {});

/// Detaches the results, and marks them as requiring a gradient if one is wanted of `inputs`, of a tensor in the
/// options or of rows of the cache. A backward pass that reaches them throws an error that caches have no gradient,
/// which names `instead`.
void refuse_cached_gradient(const char* function, const char* instead, std::vector<Tensor> inputs, const KvCache& cache,
                            const AttentionOptions& options, AttentionResult& result);

}  // namespace attn
