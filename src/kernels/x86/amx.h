// src/kernels/x86/amx.h: declares AMX: eight tile registers of 16 rows of 64 bytes, and the bf16 product of two of
// them.
//
//   tile_dot<C, A, B>():   C[m][n] += sum over pairs k of A[m][k] B[k][n]     m, n < 16 f32, k < 16 pairs of bf16
//  The order of the sum, for each element: the even and the odd members of the pairs form two chains of fused
// multiply-adds from +0, k ascending; the sum of both chains is added to C. Denormals are read and written as 0,
// rounding is to nearest. The instructions are written in assembly, because the rest of the target must run on
// processors without them.
#pragma once

#if defined(__x86_64__)
#include <cstdint>
#include <cstring>

namespace attn::kernels {

inline constexpr int tile_rows = 16;
inline constexpr int tile_pairs = 16;                      // bf16 pairs in a row of A, rows of B
inline constexpr int tile_items = 2 * tile_pairs;          // items of k that one product multiplies
inline constexpr int tile_words = tile_rows * tile_pairs;  // 32-bit words of a whole tile

/// Holds the shapes of the eight tile registers: whole tiles, except those changed by `shaped`. `begin` configures the
/// processor; the destructor releases the tiles.
class AmxTiles {
 public:
  AmxTiles() {
    shape_.palette = 1;
    for (int t = 0; t < 8; ++t) shaped(t, tile_rows, tile_pairs);
  }
  ~AmxTiles() { asm volatile("tilerelease" ::: "memory"); }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;

  void shaped(int tile, int rows, int words) {
    shape_.rows[tile] = static_cast<std::uint8_t>(rows);
    shape_.row_bytes[tile] = static_cast<std::uint16_t>(4 * words);
  }
  /// Applies the shapes; the registers then hold 0.
  void begin() const { asm volatile("ldtilecfg %0" : : "m"(shape_) : "memory"); }

 private:
  struct alignas(64) Shape {
    std::uint8_t palette = 0, start_row = 0, reserved[14] = {};
    std::uint16_t row_bytes[16] = {};
    std::uint8_t rows[16] = {};
  } shape_;
};

template <int TILE>
inline __attribute__((always_inline)) void tile_zero() {
  asm volatile("tilezero %%tmm%c0" : : "i"(TILE));
}
/// Loads rows that are `stride` bytes apart, at any address.
template <int TILE>
inline __attribute__((always_inline)) void tile_load(const void* from, std::int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(TILE) : "memory");
}
template <int TILE>
inline __attribute__((always_inline)) void tile_store(void* to, std::int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(TILE) : "memory");
}
template <int C, int A, int B>
inline __attribute__((always_inline)) void tile_dot() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(C), "i"(A), "i"(B));
}

}  // namespace attn::kernels
#endif
