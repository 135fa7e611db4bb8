// src/kernels/gemm/gemm.cc: y = a b + bias, blocked and packed, compiled once for every instruction set.
#include "kernels/gemm/target.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gemm/gemm.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstring>

#include "kernels/turn-inl.h"
#include "kernels/gemm/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Elements between packed tiles of A: whole-vector stores run over the end of a row of a tile by less than this.
inline constexpr std::int64_t tile_pad = 16;

/// How one product is cut: columns into panels of whole vectors, panels and rows into parts.
template <typename T>
struct GemmCut {
  static constexpr int N = static_cast<int>(HWY_LANES(T)), panel = gemm_vectors * N;
  const GemmProblem& p;
  std::int64_t vectors = pieces_of(p.n, N);
  std::int64_t panels = pieces_of(vectors, gemm_vectors);
  std::int64_t column_parts = pieces_of(panels, part_panels);
  std::int64_t row_parts = pieces_of(p.m, part_rows);
  bool pack_a = p.a_stride[1] != 1;

  explicit GemmCut(const GemmProblem& problem) : p(problem) {}
  std::int64_t parts() const { return column_parts * row_parts; }
  std::int64_t most_rows() const { return pieces_of(p.m, row_parts); }
  std::int64_t most_panels() const { return pieces_of(panels, column_parts); }
  std::size_t scratch_bytes() const {
    const std::int64_t b_words = k_block * panel * most_panels() + 16 * panel;  // the prefetch runs ahead
    const std::int64_t a_words = pack_a ? (k_block + tile_pad) * (most_rows() + gemm_rows) : 0;
    return sizeof(T) * static_cast<std::size_t>(b_words + a_words);
  }
};

/// steps rows of `width` columns of B, side by side in vectors; columns that do not exist are 0.
template <typename T>
HWY_NOINLINE void pack_panel(const GemmProblem& p, std::int64_t k, int steps, std::int64_t column, int columns, int width, T* to) {
  const hn::ScalableTag<T> d;
  constexpr int N = static_cast<int>(HWY_LANES(T));
  const T* from = static_cast<const T*>(p.b) + k * p.b_stride[0] + column * p.b_stride[1];
  if (columns < width)
    for (int s = 0; s < steps; ++s)
      for (int c = columns; c < width; ++c) to[s * width + c] = T{0};
  if (p.b_stride[1] == 1) {
    for (int s = 0; s < steps; ++s, from += p.b_stride[0]) {
      // short runs at a large stride defeat the hardware's own prefetch: 12 rows ahead
      hwy::Prefetch(from + 12 * p.b_stride[0]);
      int c = 0;
      for (; c + N <= columns; c += N) hn::StoreU(hn::LoadU(d, from + c), d, to + s * width + c);
      for (; c < columns; ++c) to[s * width + c] = from[c];
    }
  } else if (p.b_stride[0] == 1) {
    turn(from, p.b_stride[1], std::int64_t{columns}, std::int64_t{steps}, to, std::int64_t{width});
  } else {
    for (int s = 0; s < steps; ++s)
      for (int c = 0; c < columns; ++c) to[s * width + c] = from[s * p.b_stride[0] + c * p.b_stride[1]];
  }
}

/// `rows` rows of A as tiles of [steps][rows of the tile], each `k_block` steps long: for an A whose columns are not neighbours.
template <typename T>
HWY_NOINLINE void pack_tiles(const GemmProblem& p, std::int64_t row, std::int64_t rows, std::int64_t tiles, std::int64_t k, int steps, T* to) {
  const hn::ScalableTag<T> d;
  constexpr int N = static_cast<int>(HWY_LANES(T));
  const T* from = static_cast<const T*>(p.a) + row * p.a_stride[0] + k * p.a_stride[1];
  for (int s = 0; s < steps; ++s, from += p.a_stride[1]) {
    hwy::Prefetch(from + 12 * p.a_stride[1]);
    for (std::int64_t t = 0; t < tiles; ++t) {
      const std::int64_t first = even_cut(rows, tiles, t), count = even_cut(rows, tiles, t + 1) - first;
      T* tile = to + first * k_block + t * tile_pad + s * count;
      if (p.a_stride[0] == 1 && first + gemm_rows + N <= rows) {  // whole vectors: what runs over is written again or never read
        for (int i = 0; i < gemm_rows; i += N) hn::StoreU(hn::LoadU(d, from + first + i), d, tile + i);
      } else {
        for (std::int64_t i = 0; i < count; ++i) tile[i] = from[(first + i) * p.a_stride[0]];
      }
    }
  }
}

template <typename T>
void gemm_part(const GemmProblem& p, std::int64_t part, T* scratch) {
  const GemmCut<T> cut(p);
  constexpr int N = GemmCut<T>::N, panel = GemmCut<T>::panel;
  const std::int64_t column_part = part % cut.column_parts, row_part = part / cut.column_parts;
  const std::int64_t row = even_cut(p.m, cut.row_parts, row_part), row_end = even_cut(p.m, cut.row_parts, row_part + 1);
  const std::int64_t first_panel = even_cut(cut.panels, cut.column_parts, column_part), last_panel = even_cut(cut.panels, cut.column_parts, column_part + 1);
  T* packed_b = scratch;
  T* packed_a = scratch + k_block * panel * cut.most_panels() + 16 * panel;
  const std::int64_t tiles = pieces_of(row_end - row, gemm_rows);
  for (std::int64_t k = 0; k == 0 || k < p.k; k += k_block) {
    const int steps = static_cast<int>(p.k - k < k_block ? p.k - k : k_block);
    const bool last = k + k_block >= p.k;
    if (cut.pack_a) pack_tiles(p, row, row_end - row, tiles, k, steps, packed_a);
    for (std::int64_t q = first_panel; q < last_panel; ++q) {
      const std::int64_t vector = even_cut(cut.vectors, cut.panels, q), vectors = even_cut(cut.vectors, cut.panels, q + 1) - vector;
      const std::int64_t column = vector * N;
      const int width = static_cast<int>(vectors) * N, columns = static_cast<int>(p.n - column < width ? p.n - column : width);
      T* b = packed_b + (q - first_panel) * k_block * panel;
      pack_panel(p, k, steps, column, columns, width, b);
      GemmTile<T> tile;
      tile.b = b;
      tile.steps = steps;
      tile.columns = columns;
      tile.first = k == 0;
      alignas(64) T bias[panel] = {};
      if (last && p.bias) std::memcpy(bias, static_cast<const T*>(p.bias) + column, sizeof(T) * static_cast<std::size_t>(columns));
      tile.last = last;
      tile.bias = last && p.bias ? bias : nullptr;
      tile.y_stride = p.y_stride[0];
      tile.a_stride = cut.pack_a ? 1 : p.a_stride[0];
      for (std::int64_t t = 0; t < tiles; ++t) {
        const std::int64_t i = row + even_cut(row_end - row, tiles, t), end = row + even_cut(row_end - row, tiles, t + 1);
        tile.a = cut.pack_a ? packed_a + (i - row) * k_block + t * tile_pad : static_cast<const T*>(p.a) + i * p.a_stride[0] + k;
        tile.a_step = cut.pack_a ? end - i : 1;
        tile.y = static_cast<T*>(p.y) + i * p.y_stride[0] + column;
        gemm_tile_of<T>(static_cast<int>(end - i), static_cast<int>(vectors))(tile);
      }
    }
  }
}

std::int64_t gemm_parts(const GemmProblem& p) noexcept {
  if (p.m == 0 || p.n == 0) return 0;
  return p.element == Element::f64 ? GemmCut<double>(p).parts() : GemmCut<float>(p).parts();
}
std::size_t gemm_scratch(const GemmProblem& p) noexcept {
  if (p.m == 0 || p.n == 0) return 0;
  return p.element == Element::f64 ? GemmCut<double>(p).scratch_bytes() : GemmCut<float>(p).scratch_bytes();
}
void gemm_run(const GemmProblem& p, std::int64_t part, void* scratch) noexcept {
  if (p.element == Element::f64) {
    gemm_part(p, part, static_cast<double*>(scratch));
  } else {
    gemm_part(p, part, static_cast<float*>(scratch));
  }
}

extern const GemmTarget gemm_table;
const GemmTarget gemm_table = {HWY_TARGET == HWY_AVX2 ? "avx2" : HWY_TARGET == HWY_AVX3 ? "avx512" : "neon", gemm_parts, gemm_scratch, gemm_run};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace attn::kernels {

const GemmTarget* gemm_target(const char* name) noexcept {
  const GemmTarget* const built[] = {
#if HWY_TARGETS & HWY_AVX3
      &N_AVX3::gemm_table,
#endif
#if HWY_TARGETS & HWY_AVX2
      &N_AVX2::gemm_table,
#endif
#if HWY_TARGETS & HWY_NEON
      &N_NEON::gemm_table,
#endif
      nullptr};
  for (const GemmTarget* target : built)
    if (target != nullptr && std::strcmp(target->name, name) == 0) return target;
  return nullptr;
}

}  // namespace attn::kernels
#endif
