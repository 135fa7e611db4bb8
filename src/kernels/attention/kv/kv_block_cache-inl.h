// src/kernels/attention/kv/kv_block_cache-inl.h: converts or copies K/V rows before use: rows of a narrower type, or
// rows that conflict in cache sets.
//  K and V in int8, or in bf16 and f16 if the target has no product for them, are converted one block at a time: 64
// rows of T, which stay in L1 while they are used. The first blocks of a head are kept for the other query tiles of the
// task, as far as they fit in L2. Conversion is exact; int8 is then multiplied by its scale with one rounding, as
// kernels/ref does.
//  Rows at a large power-of-two stride ([B, T, H, D] in memory) conflict in the cache sets (copy_rows): the query
// tiles of a task then read a copy. (1, 16, 1024, 64) takes 0.86 of the time that it takes without the copy.
#if defined(ATTN_KV_BLOCK_CACHE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_KV_BLOCK_CACHE_INL_H
#undef ATTN_KV_BLOCK_CACHE_INL_H
#else
#define ATTN_KV_BLOCK_CACHE_INL_H
#endif

#include "kernels/prefetch/prefetch_line.h"
#include "kernels/attention/kv_rows.h"
#include "kernels/attention/query_lanes-inl.h"
#include "kernels/simd/widen-inl.h"
#include "kernels/simd/transpose-inl.h"

#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Prefetches `bytes` bytes of the row that is 24 KB after row j (int8: its share of the group, and its scales).
HWY_INLINE void prefetch_row_ahead(const KvRows& head, std::int64_t bytes, std::int64_t j, std::int64_t end) {
  if (bytes == 0 || (j += 1 + 24576 / bytes) >= end) return;
  const Address next = address_of(row_at(head, j)) +
                       static_cast<Address>(head.interleave_width == 0 ? 0 : j % KvRows::group_rows * bytes);
  for (std::int64_t byte = 0; byte < bytes; byte += KvRows::line) prefetch_l2(next + static_cast<Address>(byte));
  if (head.scales != nullptr) prefetch_l2(address_of(scales_at(head, j)));
}

/// Converts int8 values to the other representation (kernels/element.h).
template <class D>
HWY_INLINE hn::Vec<D> other_form(D d, hn::Vec<D> bytes) {
  return hn::IfNegativeThenElse(bytes, hn::Sub(hn::Set(d, -128), bytes), bytes);
}

/// Converts `count` values, a multiple of 16, to the other representation.
HWY_INLINE void to_other_form(const std::int8_t* from, std::int64_t count, std::int8_t* to) {
  std::int64_t i = 0;
  const auto whole_vectors = [&](auto d) HWY_ATTR {
    for (constexpr auto N = static_cast<std::int64_t>(hn::MaxLanes(d)); i + N <= count; i += N)
      hn::StoreU(other_form(d, hn::LoadU(d, from + i)), d, to + i);
  };
  whole_vectors(hn::Repartition<std::int8_t, Tag<float>>());
  whole_vectors(hn::CappedTag<std::int8_t, 16>());
}

/// Holds columns [first, first + columns) of a group of int8 rows as i8: at most 64 columns, first a multiple of 64;
/// the 16 rows are `stride` apart.
struct Int8Block {
  const std::int8_t* bytes;
  std::int64_t stride;
  alignas(64) std::int8_t transposed[KvRows::group_rows * KvRows::line];

  HWY_NOINLINE Int8Block(const KvRows& head, const char* group, std::int64_t first, std::int64_t columns) {
    constexpr std::int64_t rows = KvRows::group_rows, line = KvRows::line, word = KvRows::k_interleave_width;
    bytes = reinterpret_cast<const std::int8_t*>(group) + head.element_offset(0, first);
    stride = columns;
    const bool other = head.element == Element::sign_magnitude8;
    if (head.interleave_width != word) {
      if (!other) return;
      to_other_form(bytes, rows * columns, transposed);
      bytes = transposed;
      return;
    }
    const std::int64_t whole = columns / word * word;
    transpose(reinterpret_cast<const float*>(bytes), rows, whole / word, rows, reinterpret_cast<float*>(transposed),
              line / word);
    for (std::int64_t d = whole; d < columns; ++d)  // an incomplete width at the end
      for (std::int64_t i = 0; i < rows; ++i) transposed[i * line + d] = group[head.element_offset(i, first + d)];
    if (other) to_other_form(transposed, rows * line, transposed);
    bytes = transposed;
    stride = line;
  }
};

/// Splits rows [first, first + count) of int8 into runs of at most 64 elements: visit(r, rows, first column, columns,
/// piece); row r begins at block.bytes.
template <typename F>
HWY_INLINE void for_each_int8_block(const KvRows& head, std::int64_t first, int count, std::int64_t columns,
                                    F&& visit) {
  constexpr int rows = static_cast<int>(KvRows::group_rows);
  for (int r = 0, there; r < count; r += there) {
    const int row = static_cast<int>((first + r) % rows);
    there = count - r < rows - row ? count - r : rows - row;
    for (std::int64_t c = 0; c < columns; c += KvRows::line) {
      const std::int64_t width = columns - c < KvRows::line ? columns - c : KvRows::line;
      Int8Block block(head, row_at(head, first + r), c, width);
      block.bytes += row * block.stride;
      visit(r, there, c, width, block);
    }
  }
}

/// Rows of K or V: `keys` rows from `first` on; valid rows end before `end`.
struct KvRowRange {
  std::int64_t first;
  int keys;
  std::int64_t end;
};

/// The converted blocks of K and V. T: the type that the forward pass reads.
template <typename T>
class KvBlockCache {
 public:
  static constexpr Element element = sizeof(T) == 8 ? Element::f64 : sizeof(T) == 4 ? Element::f32 : Element::bf16;
  enum Side { keys, values };

  static bool widens(const AttentionProblem& p) { return differs(p.k) || differs(p.v); }
  /// Takes one slot for blocks that are not cached, and two (K and V) for each cached block.
  KvBlockCache(Arena& arena, const AttentionProblem& p)
      : stride_(stride(p)), widens_(widens(p)), copies_(copies(p)), cached_blocks_(needed() ? cached_blocks(p) : 0) {
    if (!needed()) return;
    copies_in_task_ = arena.take<bool>(1);
    kept_ = arena.take<std::uint8_t>(2 * most_blocks);
    memory_ = arena.take<T>((1 + 2 * cached_blocks_) * kv_block * stride_);
  }
  /// Called before the query tiles of a task, which have `rows` rows together: empties the cache.
  void begin_task(std::int64_t rows) const {
    if (!needed()) return;
    std::memset(kept_, 0, 2 * most_blocks);
    *copies_in_task_ = rows >= least_copying_tiles * query_tile_rows<T>;
  }
  /// Called before a query tile: decides whether rows are copied.
  void begin_tile() {
    copies_ = copies_ && *copies_in_task_;
    if (!needed()) cached_blocks_ = 0;
  }
  bool needed() const { return widens_ || copies_; }
  bool widens() const { return widens_; }
  /// Returns whether the block is cached for the following query tiles.
  bool keeps(std::int64_t block) const { return block < cached_blocks_; }

  /// Does the same as load() for block number `block` of the head's keys, and keeps the rows of a cached block. If the
  /// task copies rows, those that are T already are copied there too.
  void load_block(Side side, std::int64_t block, const KvRows& head, std::int64_t columns, const KvRowRange& rows,
                  const T** to) const {
    if (!differs(head) && !copies_) return;
    if (!keeps(block)) return load(head, columns, rows, to);
    T* const place = slot_of(side, block);
    std::uint8_t& kept = kept_[2 * block + side];
    if (kept == 0) load_at(place, head, columns, rows, to);
    for (int r = 0; r < rows.keys; ++r) to[r] = place + r * stride_;
    kept = 1;
  }

  /// Converts rows of a head, `columns` elements each, and points to[...] at them; rows that are T already stay where
  /// they are, and `to` is not changed. Rows are read in order, and the row 24 KB ahead is prefetched.
  void load(const KvRows& head, std::int64_t columns, const KvRowRange& rows, const T** to) const {
    if (differs(head)) load_at(memory_, head, columns, rows, to);
  }

 private:
  static constexpr std::int64_t most_blocks = 256, most_widened_bytes = 512 << 10, most_copied_bytes = 2 << 20;
  static bool copies(const AttentionProblem& p) { return sizeof(T) >= sizeof(float) && p.copy_rows; }
  static bool differs(const KvRows& rows) { return rows.element != element; }
  /// Returns the elements of a row, rounded up to whole cache lines.
  static std::int64_t stride(const AttentionProblem& p) {
    constexpr std::int64_t line = 64 / sizeof(T);
    return ((p.dim > p.value_dim ? p.dim : p.value_dim) + line - 1) / line * line;
  }
  static std::int64_t cached_blocks(const AttentionProblem& p) {
    if (p.q_rows <= query_tile_rows<T>) return 0;
    const std::int64_t blocks = (p.k_rows + kv_block - 1) / kv_block;
    const std::int64_t block_bytes = std::int64_t{sizeof(T)} * kv_block * stride(p),
                       room = (widens(p) ? most_widened_bytes : most_copied_bytes) / (2 * block_bytes + 1);
    const std::int64_t most = room < most_blocks ? room : most_blocks;
    return blocks < most ? blocks : most;
  }

  HWY_NOINLINE void load_at(T* memory, const KvRows& head, std::int64_t columns, const KvRowRange& rows,
                            const T** to) const {
    for (int r = 0; r < rows.keys; ++r) to[r] = memory + r * stride_;
    if (bytes_of(head.element) == 1) return load_bytes(memory, head, columns, rows);
    for (int r = 0; r < rows.keys; ++r) {
      prefetch_row_ahead(head, bytes_of(head.element) * columns, rows.first + r, rows.end);
      row(head, columns, rows.first + r, memory + r * stride_);
    }
  }
  HWY_NOINLINE void load_bytes(T* memory, const KvRows& head, std::int64_t columns, const KvRowRange& rows) const {
    for_each_int8_block(head, rows.first, rows.keys, columns,
                        [&](int r, int count, std::int64_t c, std::int64_t width, const Int8Block& block) HWY_ATTR {
                          const float* scales = scales_at(head, rows.first + r);
                          for (int i = r; i < r + count; ++i, scales += head.scale_stride) {
                            if (c == 0) prefetch_row_ahead(head, columns, rows.first + i, rows.end);
                            T* const to = memory + i * stride_ + c;
                            const std::int8_t* const bytes = block.bytes + (i - r) * block.stride;
                            for (std::int64_t d = 0, next; d < width; d = next) {
                              const std::int64_t n = head.scale_group >= columns ? 0 : (c + d) / head.scale_group,
                                                 end = (n + 1) * head.scale_group - c;
                              next = end < width ? end : width;
                              const T scale = static_cast<T>(scales[n]);
                              widen_row(bytes + d, next - d, &scale, to + d);
                            }
                          }
                        });
  }
  T* slot_of(Side side, std::int64_t block) const { return memory_ + (1 + 2 * block + side) * kv_block * stride_; }

  static HWY_INLINE void row(const KvRows& head, std::int64_t columns, std::int64_t j, T* to) {
    const char* from = row_at(head, j);
    if (head.element == element) {
      std::memcpy(to, from, static_cast<std::size_t>(columns) * sizeof(T));
    } else if constexpr (sizeof(T) == 4) {
      widen_half_row(head.element, from, columns, to);
    }
  }

  std::int64_t stride_;
  bool widens_, copies_;
  std::int64_t cached_blocks_;
  bool* copies_in_task_ = nullptr;  // whether the task has enough query tiles for copying to pay off
  std::uint8_t* kept_ = nullptr;    // [blocks][2]
  T* memory_ = nullptr;             // [1 + 2 blocks][64][stride]
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
