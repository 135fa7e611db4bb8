// src/kernels/philox.h: computes counter-based random numbers (Philox): a word depends only on its counter, not on the
// order of draws.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Philox4x32-10. Source: Salmon, Moraes, Dror, Shaw 2011 ("Parallel random numbers: as easy as 1, 2, 3").
struct Philox {
  static constexpr int rounds = 10;
  static constexpr std::uint32_t multiplier[2] = {0xD2511F53u, 0xCD9E8D57u};
  static constexpr std::uint32_t key_step[2] = {0x9E3779B9u, 0xBB67AE85u};

  std::uint32_t key[2];
  explicit constexpr Philox(std::uint64_t seed)
      : key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)} {}

  /// Replaces a counter by its four random words.
  constexpr void words(std::uint32_t (&c)[4]) const {
    std::uint32_t k0 = key[0], k1 = key[1];
    for (int n = 0; n < rounds; ++n, k0 += key_step[0], k1 += key_step[1]) {
      const std::uint64_t p0 = std::uint64_t{multiplier[0]} * c[0], p1 = std::uint64_t{multiplier[1]} * c[2];
      c[0] = static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0;
      c[1] = static_cast<std::uint32_t>(p1);
      c[2] = static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1;
      c[3] = static_cast<std::uint32_t>(p0);
    }
  }
};

}  // namespace attn::kernels
