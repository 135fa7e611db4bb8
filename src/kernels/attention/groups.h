// src/kernels/attention/groups.h: which vectors of a strip take part for which keys of a block.
#pragma once
#include "kernels/attention/tiles.h"

#include <cstdint>

namespace attn::kernels {

/// Keys of the largest block: bf16's.
inline constexpr int most_keys = bf16_key_block;

/// Keys key[g] ... key[g + 1] - 1 concern the vectors [first[g], last[g]); those from whole[g] on see all of them. One group where
/// all vectors see all keys.
struct Groups {
  int count = 0;
  int key[most_keys / trim_keys + 1] = {0};
  int first[most_keys / trim_keys] = {0};
  int last[most_keys / trim_keys] = {0};
  int whole[most_keys / trim_keys] = {0};

  static Groups all(int keys, int vectors) {
    Groups groups;
    groups.count = 1;
    groups.key[1] = keys;
    groups.last[0] = vectors;
    return groups;
  }

  /// From the visibility words (a bit per row) of the block's keys: vectors that see nothing of a group are left out.
  static Groups trimmed(const std::uint64_t* visible, int keys, int vectors, int lanes) {
    Groups groups;
    for (int key = 0; key < keys; key += trim_keys) {
      const int end = key + trim_keys < keys ? key + trim_keys : keys;
      std::uint64_t seen = 0, by_all = ~std::uint64_t{0};
      for (int r = key; r < end; ++r) {
        seen |= visible[r];
        by_all &= visible[r];
      }
      int first = 0, last = vectors;
      const std::uint64_t vector = (std::uint64_t{1} << (lanes - 1) << 1) - 1;
      const auto empty = [&](int v) { return ((seen >> (v * lanes)) & vector) == 0; };
      const auto full = [&](int v) { return ((by_all >> (v * lanes)) & vector) == vector; };
      while (first < last && empty(first)) ++first;
      while (last > first && empty(last - 1)) --last;
      int whole = last;
      while (whole > first && full(whole - 1)) --whole;
      groups.key[groups.count] = key;
      groups.key[groups.count + 1] = end;
      groups.first[groups.count] = first;
      groups.last[groups.count] = last;
      groups.whole[groups.count] = whole;
      ++groups.count;
    }
    return groups;
  }
};

}  // namespace attn::kernels
