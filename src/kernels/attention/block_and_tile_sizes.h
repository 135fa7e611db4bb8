// src/kernels/attention/block_and_tile_sizes.h: defines the sizes of blocks, splits and tiles, each with the reason for
// its number.
#pragma once
#include <cstdint>

namespace attn::kernels {

/// Keys of a block and of a split. They are part of the order of operations (docs/numerics.md section 3), not tuning
/// parameters.
inline constexpr int kv_block = 64;
inline constexpr int kv_split = 1024;
inline constexpr int bf16_kv_block = 256;

/// Query rows of a query tile, one per lane. 64 rows of f32, or 32 of f64, fit four AVX-512 vectors, so an element of K
/// is broadcast once for all of them, and the visibility bits of a key are one 64-bit word. 32 rows of f32 lose about
/// 10 %, because K is read twice.
template <typename T>
inline constexpr int query_tile_rows = sizeof(T) == 4 ? 64 : 32;

/// The most query rows of a tile that are computed as decode rows, with keys or value columns in the lanes. A tile with
/// more rows has its query rows in the lanes, and fills enough of them.
inline constexpr int max_decode_rows = 8;

/// Returns the keys (or value columns) of a register tile of `vectors` vectors: about 24 of 32 registers are
/// accumulators, 12 of 16 in AVX2. Fewer vectors need more keys to hide the latency of the FMAs. 6 x 4, 8 x 2, 8 x 3
/// and 12 x 2 are equally fast; 4 x 4 is 13 % slower.
inline constexpr int tile_keys(int vectors, int registers) {
  if (registers == 16) return vectors == 2 ? 6 : 12;
  return vectors == 4 ? 6 : vectors == 3 ? 8 : vectors == 2 ? 12 : 16;
}

/// The minimum number of query tiles of a task for which copying K and V once pays off.
inline constexpr int least_copying_tiles = 4;

/// On the causal diagonal, which vectors of query rows take part is decided once for this many adjacent keys.
inline constexpr int trim_keys = 16;

}  // namespace attn::kernels
