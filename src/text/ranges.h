// src/text/ranges.h: stores sets of characters as sorted ranges of code points.
#pragma once
#include <algorithm>
#include <cstddef>
#include <iterator>

namespace attn::text {

struct Range {
  char32_t first, last;
};

template <std::size_t n>
bool within(const Range (&ranges)[n], char32_t c) {
  const Range* after = std::upper_bound(std::begin(ranges), std::end(ranges), c,
                                        [](char32_t value, const Range& r) { return value < r.first; });
  return after != std::begin(ranges) && c <= std::prev(after)->last;
}

}  // namespace attn::text
