// src/explain/equivalences.h: the same sentences packed one after the other, and from a cache.
#pragma once
#include "explain/run.h"

namespace attn::explain_detail {

/// For each sentence: whether packing it behind the others, without padding, keeps every bit of its context.
std::vector<bool> same_packed(const Run& run, const TokenizedTexts& tokens);
/// Where the sequences of a packed call begin and end: "0 4 7".
std::string packed_starts(const std::vector<std::int64_t>& lengths);

/// The sentences from pages of 16 rows: what the cache gives back of k and v, and the context computed from it.
struct FromCache {
  Tensor k, v, context;
  std::vector<bool> same;  // the context's bits, of each sentence
};
FromCache from_cache(const Run& run, const TokenizedTexts& tokens, KvStorage storage);

}  // namespace attn::explain_detail
