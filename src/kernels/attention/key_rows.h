// src/kernels/attention/key_rows.h: where the rows of one head are in memory, whatever they are stored in.
#pragma once
#include "kernels/attention/problem.h"

namespace attn::kernels {

constexpr std::int64_t bytes_of(Element element) {
  return element == Element::f64 ? 8 : element == Element::f32 ? 4 : element == Element::i8 ? 1 : 2;
}

/// The rows of one head of one batch item; `stride` between items and heads.
inline KeyRows rows_of_head(const KeyRows& rows, const std::int64_t (&stride)[2], std::int64_t b, std::int64_t head) {
  KeyRows own = rows;
  own.base = static_cast<const char*>(rows.base) + bytes_of(rows.element) * (b * stride[0] + head * stride[1]);
  if (rows.pages != nullptr) own.pages += b * rows.pages_stride;
  if (rows.scales != nullptr) own.scales += b * rows.scale_batch_stride + head * rows.scale_head_stride;
  return own;
}

/// Row j of a head.
inline const char* row_at(const KeyRows& head, std::int64_t j) { return static_cast<const char*>(head.base) + bytes_of(head.element) * head.offset(j); }

/// Its scales, one a group.
inline const float* scales_at(const KeyRows& head, std::int64_t j) {
  if (head.pages == nullptr) return head.scales + j * head.scale_stride;
  const std::int64_t place = (std::int64_t{head.pages[j >> head.page_shift]} << head.page_shift) + (j & ((std::int64_t{1} << head.page_shift) - 1));
  return head.scales + place * head.scale_stride;
}

}  // namespace attn::kernels
