// src/kernels/attention/mask/active_vectors.h: finds which vectors of query rows take part for which keys of a block.
#pragma once
#include "kernels/attention/block_and_tile_sizes.h"

#include <cstdint>

namespace attn::kernels {

/// Keys of the largest block, that of bf16.
inline constexpr int most_keys = bf16_kv_block;
/// The vectors of the widest query tile: 64 rows of f64 in vectors of 32 bytes, or of 16 bytes (NEON).
#if defined(__x86_64__)
inline constexpr int most_vectors = 16;
#else
inline constexpr int most_vectors = 32;
#endif

/// Which scores of a block are computed: keys [key, end) for vectors [first, last). `visible`: the mask that the tiles
/// apply to the vectors below `whole`: a score becomes -inf where visible[key] has no bit. Null: the tiles mask
/// nothing.
struct ScoreRange {
  int key, end, first, last;
  const std::uint64_t* visible = nullptr;
  int whole = 0;

  /// Returns the visibility words of the block for tiles that begin at vector v; null if nothing is masked there.
  const std::uint64_t* of_vector(int v) const { return v < whole ? visible : nullptr; }
};

/// Rows [begin, end) of a backward step that contribute to the gradients of some keys.
struct RowRange {
  int begin, end;
};

/// Range g has the keys key[g] ... key[g + 1] - 1. The vectors [first[g], last[g]) take part in it; those from whole[g]
/// on see all of its keys. Adjacent ranges with the same first, last and whole are merged; if all vectors see all keys
/// there is one range. Vector v takes part from key begin[v] to key end[v].
struct ActiveRanges {
  int count = 0;  // only this many entries are set: clearing all of them would cost time in a small block
  int key[most_keys / trim_keys + 1];
  int first[most_keys / trim_keys];
  int last[most_keys / trim_keys];
  int whole[most_keys / trim_keys];
  int begin[most_vectors] = {0};
  int end[most_vectors] = {0};
  bool gaps = false;  // some vector skips a range between its first and its last

  static ActiveRanges all(int keys, int vectors) {
    ActiveRanges ranges;
    ranges.count = 1;
    ranges.key[0] = 0, ranges.key[1] = keys;
    ranges.first[0] = ranges.whole[0] = 0, ranges.last[0] = vectors;
    for (int& end : ranges.end) end = keys;  // entries beyond `vectors` are not read
    return ranges;
  }

  /// Finds the ranges from the visibility words (one bit per row) of the block's keys: vectors that see no key of a
  /// range are left out.
  static ActiveRanges trimmed(const std::uint64_t* visible, int keys, int vectors, int lanes) {
    ActiveRanges ranges;
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
      ranges.add(key, end, first, last, whole);
    }
    return ranges;
  }

  /// Returns the scores of range g; visible: the block's words, or null.
  ScoreRange range(int g, const std::uint64_t* visible) const {
    return {key[g], key[g + 1], first[g], last[g], visible, whole[g]};
  }

  /// Returns whether no vector takes part in range g.
  bool empty(int g) const { return first[g] >= last[g]; }

  /// Returns the first vector after `v` that does not take part in the same keys as `v`.
  int same_range(int v, int vectors) const {
    int last = v + 1;
    while (last < vectors && begin[last] == begin[v] && end[last] == end[v]) ++last;
    return last;
  }

  /// Returns whether four vectors begin in order and end in order, and all are active in between: the edge of a causal
  /// mask or a window.
  bool edge() const {
    const bool same = begin[0] == begin[3] && end[0] == end[3];
    return !same && begin[0] <= begin[1] && begin[1] <= begin[2] && begin[2] <= begin[3] && begin[3] < end[0] &&
           end[0] <= end[1] && end[1] <= end[2] && end[2] <= end[3];
  }

 private:
  void add(int from, int to, int first_vector, int last_vector, int whole_from) {
    for (int v = first_vector; v < last_vector; ++v) {
      if (end[v] == 0) begin[v] = from;
      gaps |= end[v] != 0 && end[v] != from;
      end[v] = to;
    }
    const int before = count - 1;
    if (count > 0 && first[before] == first_vector && last[before] == last_vector && whole[before] == whole_from) {
      key[count] = to;
      return;
    }
    key[count] = from;
    key[count + 1] = to;
    first[count] = first_vector;
    last[count] = last_vector;
    whole[count] = whole_from;
    ++count;
  }
};

}  // namespace attn::kernels
