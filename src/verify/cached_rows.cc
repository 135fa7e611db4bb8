// src/verify/cached_rows.cc: puts the keys and values of a case into a cache, block by block or page by page.
#include "attention/cache/row_storage_formats.h"
#include "verify/inputs.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>

namespace attn::cases {

AttentionOptions cached_options(AttentionOptions options) {
  options.key_lengths = options.query_start = {};
  return options;
}

/// Appends a chunk to each sequence in turn, so that the pages of the sequences alternate.
std::shared_ptr<Cached> cached_rows(const Case& c, const Inputs& in) {
  constexpr std::int64_t chunk = 48;
  const std::int64_t page = c.cache == "block" ? 0 : std::stoll(c.cache.substr(5));
  auto cached =
      std::make_shared<Cached>(Cached{KvCache({.key_heads = c.k_heads,
                                               .value_heads = c.v_heads,
                                               .head_dim = c.dim,
                                               .value_dim = c.value_dim,
                                               .page_rows = page,
                                               .pages = page == 0 ? c.batch : c.batch * ((c.k_rows + page - 1) / page),
                                               .dtype = c.dtype,
                                               .storage = storage_of(c.storage),
                                               .values_in_keys = c.values == "in_keys"}),
                                      {}});
  for (std::int64_t b = 0; b < c.batch; ++b) cached->sequences.push_back(cached->cache.create());
  for (std::int64_t first = 0; first < c.k_rows; first += chunk)
    for (std::int64_t b = 0; b < c.batch; ++b) {
      const std::int64_t end = std::min(first + chunk, in.options.key_lengths.data<std::int64_t>()[b]);
      if (first < end)
        cached->cache.append(cached->sequences[static_cast<std::size_t>(b)], in.k.select(0, b).slice(1, first, end),
                             c.values == "in_keys" ? Tensor() : in.v.select(0, b).slice(1, first, end));
    }
  return cached;
}

}  // namespace attn::cases
