// src/kernels/attention/pass/bf16_kv_rows-inl.h: returns the rows of K and V of a query tile in bf16: in place, or
// copied if their length is odd, if they conflict in cache sets, or if they are int8, which bf16 holds exactly.
//  The scale of an int8 key multiplies its score, that of a value its weight (docs/numerics.md section 3.8).
#if defined(ATTN_BF16_KV_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_KV_ROWS_INL_H
#undef ATTN_BF16_KV_ROWS_INL_H
#else
#define ATTN_BF16_KV_ROWS_INL_H
#endif

#include "kernels/attention/kv/kv_block_cache-inl.h"
#include "kernels/attention/pass/bf16_scratch-inl.h"
#include "kernels/x86/bf16_target.h"

#if HWY_TARGET == HWY_AVX3
#include <immintrin.h>

ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Converts `columns` integers to bf16.
HWY_INLINE void int8_row_to_bf16(const std::int8_t* row, std::int64_t columns, std::uint16_t* to) {
  for (std::int64_t c = 0; c < columns; c += 16) {
    const auto there = first_lanes(columns - c);
    const __m512 numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(there, row + c)));
    _mm256_mask_storeu_epi16(to + c, there, reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(numbers)));
  }
}

/// Converts int8 rows to bf16, `stride` elements apart, and prefetches later rows before rows.end.
HWY_NOINLINE inline void int8_rows_to_bf16(const KvRows& head, const KvRowRange& rows, std::int64_t columns,
                                           std::uint16_t* to, std::int64_t stride) {
  for_each_int8_block(head, rows.first, rows.keys, columns,
                      [&](int r, int count, std::int64_t c, std::int64_t width, const Int8Block& block) ATTN_BF16_ATTR {
                        for (int i = 0; i < count; ++i) {
                          if (c == 0) prefetch_row_ahead(head, columns, rows.first + r + i, rows.end);
                          int8_row_to_bf16(block.bytes + i * block.stride, width, to + (r + i) * stride + c);
                        }
                      });
}

/// Copies the scales of rows [first, first + count), one per row, to adjacent memory.
HWY_NOINLINE inline void scales_of_rows(const KvRows& head, std::int64_t first, int count, float* to) {
  for (int r = 0, rows; r < count; r += rows) {
    rows = static_cast<int>(rows_of_page(head, first + r, count - r));
    const float* const scales = scales_at(head, first + r);
    for (int i = 0; i < rows; i += 16) {
      const auto there = first_lanes(rows - i);
      _mm512_mask_storeu_ps(to + r + i, there, _mm512_maskz_loadu_ps(there, scales + i));
    }
  }
}

/// Prefetches the scales of rows [first, end), one line per 16 rows of a page, because a load would wait for memory.
HWY_NOINLINE inline void prefetch_scales(const KvRows& head, std::int64_t first, std::int64_t end) {
  for (std::int64_t rows; first < end; first += rows) {
    rows = rows_of_page(head, first, end - first);
    const Address at = address_of(scales_at(head, first));
    for (std::int64_t i = 0; i < rows; i += 16) prefetch_l2(at + 4 * static_cast<Address>(i));
  }
}

/// The scales of a block.
struct BlockScales {
  bool there;  // whether keys and values are int8
  alignas(64) float key[bf16_kv_block], value[bf16_kv_block];

  const float* of_keys(int first = 0) const { return there ? key + first : nullptr; }
  /// Loads the scales of the values; the scale of a `masked` key (null: none is) is 0.
  void load_values(const KvRows& v, std::int64_t first, int keys, const bool* masked) {
    if (!there) return;
    scales_of_rows(v, first, keys, value);
    for (int r = 0; masked && r < keys; ++r)
      if (masked[r]) value[r] = 0;
  }
};

/// Pointers to adjacent scales of a block, one per 16 scales.
struct ScalesBy16 {
  const float* at[bf16_kv_block / 16];
  explicit ScalesBy16(const float* scales) {
    for (int n = 0; n < bf16_kv_block / 16; ++n) at[n] = scales + 16 * n;
  }
};

class Bf16KvRows {
 public:
  BlockScales scales;

  Bf16KvRows(const AttentionProblem& p, const Task& tile, const KvRows& k, const KvRows& v, const Bf16Scratch& scratch)
      : p_(p), k_(k), v_(v), wide_(scratch), pairs_(Bf16Scratch::pairs(p.dim)), keys_begin_(p.keys_begin(tile)) {
    scales.there = k.scales != nullptr;
    std::memset(wide_.zeros, 0, sizeof(std::uint16_t) * static_cast<std::size_t>(p.value_dim));
  }

  /// Returns the cache slot of a block's keys or pairs of values; blocks that are not cached share the last slot.
  std::int64_t slot_of(std::int64_t first) const {
    const std::int64_t last = Bf16Scratch::cached_blocks(p_) - 1, block = (first - keys_begin_) / bf16_kv_block;
    return block < last ? block : last;
  }
  bool stays(std::int64_t place) const { return place < Bf16Scratch::cached_blocks(p_) - 1; }

  /// Writes the addresses of K's rows as words. Rows are copied if their last pair would reach past the row, if they
  /// are int8, or if the task's query tiles share the copies.
  HWY_NOINLINE void keys(const KvRowRange& range, const std::uint32_t** rows) const {
    const std::int64_t place = slot_of(range.first);
    const bool keeps = wide_.ready[2 * Bf16Scratch::most_blocks] != 0 && stays(place);
    if (p_.dim % 2 == 0 && !keeps && k_.scales == nullptr) return row_pointers(k_, range.first, range.keys, rows);
    // the last slot is for blocks that are not cached
    const std::int64_t slot = keeps ? place : Bf16Scratch::key_places(p_) - 1;
    std::uint32_t* const to = wide_.k + slot * bf16_kv_block * pairs_;
    for (int r = 0; r < range.keys; ++r) rows[r] = to + r * pairs_;
    if (keeps && wide_.ready[place] != 0) return;
    wide_.ready[place] = keeps;
    copy_keys(range, to);
  }

  /// Writes the addresses of V's rows. Rows that are `masked` (null: none is), and those that pad the last `unit` of
  /// rows, point to a row of zeros.
  HWY_NOINLINE void values(const KvRowRange& range, const bool* masked, int unit, const std::uint16_t** rows) const {
    const auto* zeros = reinterpret_cast<const std::uint16_t*>(wide_.zeros);
    int r = range.keys;
    if (scales.there) {
      const std::int64_t stride = Bf16Scratch::value_words(p_.value_dim);
      auto* const copies = reinterpret_cast<std::uint16_t*>(wide_.numbers);
      int8_rows_to_bf16(v_, range, p_.value_dim, copies, stride);
      for (r = 0; r < range.keys; ++r) rows[r] = copies + r * stride;
    } else {
      row_pointers(v_, range.first, range.keys, rows);
    }
    for (; r % unit != 0; ++r) rows[r] = zeros;
    for (r = 0; masked && r < range.keys; ++r)
      if (masked[r]) rows[r] = zeros;
  }

 private:
  HWY_NOINLINE void copy_keys(const KvRowRange& range, std::uint32_t* to) const {
    if (p_.dim % 2 != 0)
      for (int r = 0; r < range.keys; ++r) to[r * pairs_ + pairs_ - 1] = 0;
    if (scales.there) return int8_rows_to_bf16(k_, range, p_.dim, reinterpret_cast<std::uint16_t*>(to), 2 * pairs_);
    const std::uint16_t* rows[bf16_kv_block];
    row_pointers(k_, range.first, range.keys, rows);
    for (int r = 0; r < range.keys; ++r) std::memcpy(to + r * pairs_, rows[r], 2 * static_cast<std::size_t>(p_.dim));
  }

  const AttentionProblem& p_;
  const KvRows &k_, &v_;
  const Bf16Scratch& wide_;
  std::int64_t pairs_, keys_begin_;
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
