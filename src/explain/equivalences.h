// src/explain/equivalences.h: runs the same sentences packed one after the other, and from a cache.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

/// Returns for each sentence whether its packed context, without padding, has the same bits.
std::vector<bool> same_packed(const Run& run, const TokenizedTexts& tokens);
/// Returns where the sequences of a packed call begin and end: "0 4 7".
std::string packed_starts(const std::vector<std::int64_t>& lengths);

/// Runs the sentences from a cache with pages of 16 rows: returns k and v as read from the cache and the context.
struct FromCache {
  Tensor k, v, context;
  std::vector<bool> same;  // for each sentence: the context has the same bits
};
FromCache from_cache(const Run& run, const TokenizedTexts& tokens, KvStorage storage);

}  // namespace attn::explain_detail
