// src/text/tokenizer/index_table.h: a hash table of indices of keys that are stored elsewhere.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attn::text {

/// Open addressing, 4 bytes a slot, 1.3 to 2.7 slots for a number: a vocabulary has some 10^5 tokens and merges, and
/// std::unordered_map would need 40 to 60 bytes for each, and an allocation. `same(number)` says whether a number is
/// the index of the key that is looked for; `hash` is that of this key.
class IndexTable {
 public:
  IndexTable() = default;
  /// Makes room for that many numbers.
  explicit IndexTable(std::size_t count) {
    std::size_t places = 16;
    while (3 * places < 4 * count) places *= 2;
    places_.assign(places, none);
  }

  /// Returns the number of the key, or -1.
  template <class Same>
  std::int32_t find(std::uint64_t hash, const Same& same) const {
    return places_.empty() ? none : places_[place_of(hash, same)];
  }
  /// Stores a number; it replaces the number of the same key.
  template <class Same>
  void put(std::uint64_t hash, std::int32_t number, const Same& same) {
    places_[place_of(hash, same)] = number;
  }

 private:
  static constexpr std::int32_t none = -1;

  template <class Same>
  std::size_t place_of(std::uint64_t hash, const Same& same) const {
    const std::size_t mask = places_.size() - 1;
    auto place = static_cast<std::size_t>(hash * 0x9E3779B97F4A7C15u >> 32) & mask;
    while (places_[place] != none && !same(places_[place])) place = (place + 1) & mask;
    return place;
  }

  std::vector<std::int32_t> places_;
};

}  // namespace attn::text
