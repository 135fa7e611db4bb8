// src/kernels/attention/mask/block_lists.h: looks keys up in the lists of blocks that a mask holds: for a pair, for 64
// keys, and for a rectangle of pairs.
#pragma once
#include "kernels/attention/problem.h"

#include <cstdint>

// The functions are `static`: this header is compiled for several instruction sets, and the linker must not merge them.
namespace attn::kernels {

/// Returns the index in the list of the first block that is at least `block`.
static inline std::int64_t first_at_least(const BlockLists& lists, const std::int64_t* list, std::int64_t block) {
  // without branches: which half it is cannot be predicted
  std::int64_t begin = 0, left = lists.width;
  for (; left > 1; left -= left / 2) begin += list[begin + left / 2 - 1] < block ? left / 2 : 0;
  return begin + (left == 1 && list[begin] < block ? 1 : 0);
}

/// Returns whether row i of (b, h) sees key j.
static inline bool lists_see(const BlockLists& lists, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
  const std::int64_t *list = lists.of(b, h, i), block = j / lists.block_keys, n = first_at_least(lists, list, block);
  return n < lists.width && list[n] == block;
}

/// Calls f(begin, end) for the ranges of the keys [first, end_key) that row i of (b, h) sees, in ascending order.
/// Ranges of adjacent blocks are not joined, and the first and the last may reach beyond the keys.
template <class F>
static inline void for_each_listed(const BlockLists& lists, const std::int64_t* list, std::int64_t first,
                                   std::int64_t end_key, F&& f) {
  const std::int64_t last = (end_key - 1) / lists.block_keys;
  for (std::int64_t n = first_at_least(lists, list, first / lists.block_keys); n < lists.width && list[n] <= last; ++n)
    f(list[n] * lists.block_keys, (list[n] + 1) * lists.block_keys);
}

/// Returns how many of the blocks `from` to `to` the list has.
static inline std::int64_t listed_blocks(const BlockLists& lists, const std::int64_t* list, std::int64_t from,
                                         std::int64_t to) {
  std::int64_t n = first_at_least(lists, list, from), count = 0;
  for (; n < lists.width && list[n] <= to; ++n) ++count;
  return count;
}

}  // namespace attn::kernels
