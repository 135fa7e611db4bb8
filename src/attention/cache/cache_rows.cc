// src/attention/cache/cache_rows.cc: writes rows to pages, in their dtype or rounded to 8 bits, copies rows between
// pages, and reads them back.
#include "attention/cache/cache_rows.h"

#include "runtime/format.h"

#include "attention/cache/row_storage_formats.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace attn {
namespace {

std::int64_t counted(bool overflows, std::uint64_t bytes) {
  if (overflows || bytes > PTRDIFF_MAX / 2)
    throw ValueError("KvCache: so many pages of such rows are more bytes than can be counted");
  return static_cast<std::int64_t>(bytes);
}
std::int64_t bytes_of(std::initializer_list<std::int64_t> factors) {
  std::int64_t bytes = 1;
  for (const std::int64_t factor : factors) {
    std::uint64_t product = 0;
    const bool overflows = __builtin_mul_overflow(bytes, factor, &product);
    bytes = counted(overflows, product);
  }
  return bytes;
}
/// Returns the sum of two numbers of bytes, each rounded up to whole cache lines.
std::int64_t lines_of(std::int64_t bytes, std::int64_t more) {
  return counted(false,
                 runtime::aligned(static_cast<std::size_t>(bytes)) + runtime::aligned(static_cast<std::size_t>(more)));
}

/// Converts a row to f32 or f64.
template <typename T>
void widen_row(Dtype dtype, const void* row, std::int64_t count, T* to) {
  const auto widen = [&]<typename S>(const S* from) {
    for (std::int64_t d = 0; d < count; ++d) to[d] = static_cast<T>(static_cast<Wide<S>>(from[d]));
  };
  switch (dtype) {
    case Dtype::f64: return widen(static_cast<const double*>(row));
    case Dtype::bf16: return widen(static_cast<const bfloat16*>(row));
    case Dtype::f16: return widen(static_cast<const float16*>(row));
    default: return widen(static_cast<const float*>(row));
  }
}

}  // namespace

PagedRows::PagedRows(const RowLayout& layout, std::int64_t page_rows) : layout_(layout) {
  head_bytes_ = bytes_of({page_rows, layout.dim, static_cast<std::int64_t>(layout.element_bytes())});
  if (layout.group != 0) {
    scales_begin_ = lines_of(head_bytes_, 0);
    head_bytes_ = lines_of(head_bytes_, bytes_of({page_rows, layout.groups(), 4}));
  }
  data_.reset(runtime::allocate(static_cast<std::size_t>(bytes_of({layout.pages + 1, layout.heads, head_bytes_}))));
  if (layout.group != 0) {
    rows_.scale_stride = layout.groups();
    rows_.scale_head_stride = head_bytes_ / 4;
    rows_.scale_page_stride = layout.heads * rows_.scale_head_stride;
    rows_.scale_group = static_cast<int>(layout.group);
  }
  rows_.row_stride = layout.dim;
  rows_.page_stride = layout.heads * head_stride();
  while ((std::int64_t{1} << rows_.page_shift) < page_rows) ++rows_.page_shift;
  rows_.interleave_width = layout.interleave_width;
  rows_.element = layout.element;
  clear(zero_page(), page_rows);
}

template <typename F>
void PagedRows::for_each_run(std::int64_t row, std::int64_t first, std::int64_t end, F&& visit) const {
  const std::int64_t whole = layout_.dim / Rows::k_interleave_width * Rows::k_interleave_width;
  for (std::int64_t d = first, count; d < end; d += count) {
    const std::int64_t place = rows_.element_offset(row, d);
    // Complete interleaved words of a row are visited with a constant length, so that the compiler knows the length of
    // each copy.
    if (layout_.interleave_width == Rows::k_interleave_width && d % Rows::k_interleave_width == 0 && d < whole &&
        end - d >= Rows::k_interleave_width) {
      const std::int64_t words = (std::min(end, whole) - d) / Rows::k_interleave_width;
      for (std::int64_t n = 0; n < words; ++n)
        visit(place + n * Rows::k_interleave_width * Rows::group_rows, d - first + n * Rows::k_interleave_width,
              std::integral_constant<std::int64_t, Rows::k_interleave_width>());
      count = words * Rows::k_interleave_width;
    } else {
      count = std::min(d / layout_.interleave_width * layout_.interleave_width + layout_.interleave_width, end) - d;
      visit(place, d - first, count);
    }
  }
}

template <typename T>
void PagedRows::write_row(PagePlace to, std::int64_t head, const T* from) const noexcept {
  char* const row = at(to.page, head, to.row);
  if (layout_.group == 0) {
    std::memcpy(row, from, sizeof(T) * static_cast<std::size_t>(layout_.dim));
    return;
  }
  float* const scale = scales(to.page, head, to.row);
  for (std::int64_t d = 0, n = 0; d < layout_.dim; d += layout_.group, ++n)
    scale[n] =
        round_group(layout_.element, from + d, std::min(layout_.group, layout_.dim - d),
                    [&](std::int64_t first, std::int64_t end, const std::int8_t* bytes) {
                      for_each_run(to.row, d + first, d + end, [&](std::int64_t place, std::int64_t at, auto count) {
                        std::memcpy(row + place, bytes + at, static_cast<std::size_t>(count));
                      });
                    });
}

void PagedRows::write(PagePlace to, const Tensor& source, std::int64_t from, std::int64_t count) noexcept {
  const auto rows = [&]<typename T>(const T* data) {
    for (std::int64_t h = 0; h < layout_.heads; ++h)
      for (std::int64_t n = 0; n < count; ++n)
        write_row({to.page, to.row + n}, h, data + h * source.stride(0) + (from + n) * source.stride(1));
  };
  switch (layout_.dtype) {
    case Dtype::f64: return rows(static_cast<const double*>(source.data()));
    case Dtype::bf16: return rows(static_cast<const bfloat16*>(source.data()));
    case Dtype::f16: return rows(static_cast<const float16*>(source.data()));
    default: return rows(static_cast<const float*>(source.data()));
  }
}

void PagedRows::copy(std::int64_t page, const PagedRows& source, std::int64_t source_page,
                     std::int64_t count) noexcept {
  if (count == 0) return;
  for (std::int64_t h = 0; h < layout_.heads; ++h) {
    std::memcpy(at(page, h, 0), source.at(source_page, h, 0), bytes_of_rows(count));
    if (layout_.group != 0)
      std::memcpy(scales(page, h, 0), source.scales(source_page, h, 0),
                  sizeof(float) * static_cast<std::size_t>(count * layout_.groups()));
  }
}

void PagedRows::clear(std::int64_t page, std::int64_t count) noexcept {
  for (std::int64_t h = 0; h < layout_.heads; ++h) {
    std::memset(at(page, h, 0), 0, bytes_of_rows(count));
    if (layout_.group != 0) std::fill_n(scales(page, h, 0), count * layout_.groups(), 0.0F);
  }
}

template <typename T>
void PagedRows::read(PagePlace from, std::int64_t count, T* to, std::int64_t head_stride) const {
  for (std::int64_t h = 0; h < layout_.heads; ++h)
    for (std::int64_t row = from.row; row < from.row + count; ++row) {
      const char* const place = at(from.page, h, row);
      T* const result = to + h * head_stride + (row - from.row) * layout_.dim;
      if (layout_.group == 0) {
        widen_row(layout_.dtype, place, layout_.dim, result);
        continue;
      }
      const float* const scale = scales(from.page, h, row);
      std::int8_t bytes[Rows::line];
      for (std::int64_t d = 0, n = 0; d < layout_.dim; d += layout_.group, ++n)
        for (std::int64_t c = d, last, end = std::min(d + layout_.group, layout_.dim); c < end; c = last) {
          last = std::min(c + Rows::line, end);
          for_each_run(row, c, last, [&](std::int64_t at_byte, std::int64_t at, auto count) {
            std::memcpy(bytes + at, place + at_byte, static_cast<std::size_t>(count));
          });
          widen_bytes(layout_.element, bytes, last - c, scale[n], result + c);
        }
    }
}
template void PagedRows::read(PagePlace, std::int64_t, float*, std::int64_t) const;
template void PagedRows::read(PagePlace, std::int64_t, double*, std::int64_t) const;

kernels::KvRows PagedRows::describe() const {
  Rows rows = rows_;
  rows.base = data_.get();
  if (layout_.group != 0) rows.scales = scales(0, 0, 0);
  return rows;
}

}  // namespace attn
