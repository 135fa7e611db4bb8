// src/kernels/attention/pass/bf16_scratch-inl.h: lays out the scratch memory of a query tile in bf16, where a pair is a
// 32-bit word, and transposes queries to it.
#if defined(ATTN_BF16_SCRATCH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_SCRATCH_INL_H
#undef ATTN_BF16_SCRATCH_INL_H
#else
#define ATTN_BF16_SCRATCH_INL_H
#endif

#include "kernels/attention/pass/query_tile_pass-inl.h"
#include "kernels/attention/tiles/amx_forward_products-inl.h"
#include "kernels/simd/transpose-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// The memory that bf16 needs besides the scratch of a query tile in f32: queries, weights, keys and values as pairs.
struct Bf16Scratch {
  static constexpr int R = bf16_rows, keys = bf16_kv_block;
  std::uint32_t* q;  // [ceil(D / 2)][R]
  float* s;          // [256][R]
  std::uint32_t* p;  // [128][R]
  // [2][blocks]  whether the keys, then the pairs of values of a block are cached already; and one more: whether the
  //              task copies keys
  std::uint8_t* ready;
  std::uint32_t* v;  // [blocks][128][value words]
  // [key_places()][256][ceil(D / 2)], copies: of rows with cache-set conflicts, an odd number of elements, or int8
  std::uint32_t* k;
  std::uint32_t* decode_queries;  // [ceil(D / 2)][max_decode_rows]
  std::uint32_t* zeros;           // zeros, for a masked row of V
  std::uint32_t* tile_rows_copy;  // [64][ceil(D / 2)]
  std::uint32_t* paired;   // [16][value words]  prefill: rows of V before they are transposed; decode: sums of a block
  std::uint32_t* numbers;  // [256][value words / 2]  int8 values

  static std::int64_t pairs(std::int64_t dim) { return (dim + 1) / 2; }
  static std::int64_t value_words(std::int64_t value_dim) { return (value_dim + 15) / 16 * 16; }
  /// Returns the number of slots for blocks of keys, and of pairs of values, that are cached for the other query tiles
  /// of a task, with one more slot that later blocks share; at most most_blocks.
  static std::int64_t cached_blocks(const AttentionProblem& p) {
    const std::int64_t blocks = (p.k_rows + keys - 1) / keys;
    return p.q_rows <= R ? 1 : blocks < most_blocks ? blocks + 1 : most_blocks;
  }
  /// Returns the number of slots for keys; the last is for blocks that are not cached.
  static std::int64_t key_places(const AttentionProblem& p) {
    return p.copy_rows || is_int8(p.k.element) ? cached_blocks(p) : p.dim % 2;
  }
  static constexpr std::int64_t most_blocks = 64;

  Bf16Scratch(Arena& arena, const AttentionProblem& problem) {
    const std::int64_t dim = problem.dim, words = value_words(problem.value_dim);
    const auto take = [&arena](std::int64_t count) { return arena.take<std::uint32_t>(count); };
    ready = arena.take<std::uint8_t>(2 * most_blocks + 1);
    q = take(pairs(dim) * R);
    s = arena.take<float>(keys * R);
    p = take(keys / 2 * R);
    v = take(cached_blocks(problem) * keys / 2 * words);
    k = take(key_places(problem) * keys * pairs(dim));
    decode_queries = take(pairs(dim) * max_decode_rows);
    zeros = take(words / 2);
    tile_rows_copy = take(4 * tile_rows * pairs(dim));
    paired = take(tile_rows * words);
    numbers = take(is_int8(problem.v.element) ? keys * words / 2 : 0);
  }
};

/// The scratch of a query tile in bf16.
struct Bf16Memory {
  Bf16Scratch wide;
  QueryTileMemory<float> tile;

  Bf16Memory(Arena& arena, const AttentionProblem& p) : wide(arena, p), tile(arena, p, 0) {}
};

/// Transposes the pairs of columns of Q to [ceil(D / 2)][width].
HWY_NOINLINE inline void transpose_pairs(const AttentionProblem& p, const Task& tile, std::uint32_t* q,
                                         std::int64_t width) {
  tile.for_each_piece(p.q_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start, std::int64_t stride) {
    const auto* const from = static_cast<const std::uint16_t*>(p.q) + start;
    std::uint32_t* const to = q + first;
    const std::int64_t whole = stride % 2 == 0 ? p.dim / 2 : 0;
    transpose(reinterpret_cast<const float*>(from), stride / 2, rows, whole, reinterpret_cast<float*>(to), width);
    // elements that do not fill a word: an odd last element, or all elements at an odd stride
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t c = whole; c < Bf16Scratch::pairs(p.dim); ++c) {
        const std::uint16_t* const pair = from + i * stride + 2 * c;
        to[c * width + i] = pair[0] | (2 * c + 1 < p.dim ? std::uint32_t{pair[1]} << 16 : 0);
      }
  });
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
