// src/explain/equivalences.h: runs the same sentences packed one after the other, and from a cache.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

/// Returns for each sentence whether a packed call, without padding, gives it the context of `run`, bit by bit.
std::vector<bool> same_packed(const Run& run, const TokenizedTexts& tokens);
/// Returns where the sequences of a packed call begin and end: "0 4 7".
std::string packed_starts(const std::vector<std::int64_t>& lengths);

/// Runs the sentences from a cache with pages of 16 rows: returns k and v as read from the cache and the context.
struct FromCache {
  Tensor k, v, context;
  std::vector<bool> same;  // for each sentence: the context has the bits of that of `run`
};
FromCache from_cache(const Run& run, const TokenizedTexts& tokens, KvStorage storage);

}  // namespace attn::explain_detail
