// src/kernels/attention/kv_rows.h: computes addresses of rows of K and V: contiguous, strided, paged or quantised.
#pragma once
#include "kernels/attention/problem.h"

namespace attn::kernels {

/// Returns the rows of one head of one batch item; `stride`: between batch items, between heads.
inline KvRows rows_of_head(const KvRows& rows, const std::int64_t (&stride)[2], std::int64_t b, std::int64_t head) {
  KvRows own = rows;
  own.base = static_cast<const char*>(rows.base) + bytes_of(rows.element) * (b * stride[0] + head * stride[1]);
  if (rows.pages != nullptr) own.pages += b * rows.pages_stride;
  if (rows.scales != nullptr) own.scales += b * rows.scale_batch_stride + head * rows.scale_head_stride;
  return own;
}

/// Returns whether values are the first elements of their keys, as in latent attention: what was read for the scores is
/// in the caches when the output needs it.
inline bool values_in_keys(const AttentionProblem& p) {
  return p.v.base == p.k.base && p.v.element == p.k.element && p.v.row_stride == p.k.row_stride &&
         p.v.pages == p.k.pages && p.v.page_stride == p.k.page_stride && p.k.scales == nullptr &&
         p.k_heads == p.v_heads && p.value_dim <= p.dim && p.k_stride[0] == p.v_stride[0] &&
         p.k_stride[1] == p.v_stride[1];
}

/// Returns the address of row j of a head; for int8 that of the group that contains it.
inline const char* row_at(const KvRows& head, std::int64_t j) {
  return static_cast<const char*>(head.base) + bytes_of(head.element) * head.offset(j);
}

/// Returns the address of the scales of row j, one per scale group.
inline const float* scales_at(const KvRows& head, std::int64_t j) { return head.scales + head.scale_offset(j); }

/// Returns how many rows from j on are contiguous in one page, at most `most`.
inline std::int64_t rows_of_page(const KvRows& head, std::int64_t j, std::int64_t most) {
  if (head.pages == nullptr) return most;
  const std::int64_t page_rows = std::int64_t{1} << head.page_shift, left = page_rows - (j & (page_rows - 1));
  return left < most ? left : most;
}

/// Returns whether `count` rows of a head conflict in the caches: rows whose stride is a multiple of a large power of
/// two map to few cache sets. (1, 16, 1024, 64) in [B, T, H, D], rows 4 KB apart, takes 1.2 times as long as in [B, H,
/// T, D].
inline bool collide(const KvRows& rows, std::int64_t columns, std::int64_t count) {
  constexpr std::int64_t most_bytes = std::int64_t{1} << 19;
  const std::int64_t apart = rows.row_stride * bytes_of(rows.element);
  return count > 1 && rows.pages == nullptr && rows.row_stride > columns && count * (apart & -apart) > most_bytes;
}

/// Writes the addresses of rows [first, first + count) to `rows`.
template <typename T>
[[gnu::noinline]] void row_pointers(const KvRows& head, std::int64_t first, std::int64_t count, const T** rows) {
  const std::int64_t step = bytes_of(head.element) * head.row_stride;
  for (std::int64_t r = 0, end; r < count; r = end) {
    end = r + rows_of_page(head, first + r, count - r);
    const char* row = row_at(head, first + r);
    for (; r < end; ++r, row += step) rows[r] = reinterpret_cast<const T*>(row);
  }
}

}  // namespace attn::kernels
