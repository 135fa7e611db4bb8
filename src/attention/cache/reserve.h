// src/attention/cache/reserve.h: makes room in a cache without pages before its rows are appended.
#pragma once
#include <attn/cache.h>

namespace attn {

/// Lets a cache without pages grow to `rows` rows a sequence at once, instead of in steps, each of which needs memory
/// for the old and the new blocks. A cache with pages stays as it is.
void reserve_rows(KvCache& cache, std::int64_t rows);

}  // namespace attn
