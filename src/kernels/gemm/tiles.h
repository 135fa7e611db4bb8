// src/kernels/gemm/tiles.h: how a matrix product is cut: by shape alone, never by the number of threads.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Products of a chain before its sum is added to the result: part of the order of operations (docs/numerics.md section 5).
inline constexpr int k_block = 256;

/// Rows of a register tile: 9 x 3 vectors use 27 of 32 accumulators, 6 x 2 use 12 of AVX2's 16. 12 x 2 loses 1 to 4 points
/// (more of B is read per FMA).
inline constexpr int max_tile_rows = 9;

#ifndef ATTN_TUNE
/// Words of k that a tile walks at once: a packed panel of B (48 columns) stays in L2. Less where A is packed too.
inline constexpr std::int64_t chunk_words = 2048;
inline constexpr std::int64_t packed_chunk_words = 512;

/// Rows and panels of columns of one part of the work. A part packs its own columns of B: 512 rows make that 1 to 3 % of its
/// time.
inline constexpr std::int64_t part_rows = 512;
inline constexpr std::int64_t part_panels = 8;
#else
extern std::int64_t chunk_words, packed_chunk_words, part_rows, part_panels;
#endif

/// `total` cut into `pieces` pieces as even as can be: where piece i begins.
inline constexpr std::int64_t even_cut(std::int64_t total, std::int64_t pieces, std::int64_t i) {
  return total / pieces * i + (i < total % pieces ? i : total % pieces);
}
inline constexpr std::int64_t pieces_of(std::int64_t total, std::int64_t most) { return (total + most - 1) / most; }

}  // namespace attn::kernels
