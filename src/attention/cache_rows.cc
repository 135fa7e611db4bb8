// src/attention/cache_rows.cc: rows written as they are or rounded to 8 bits, moved from page to page, and read back.
#include "attention/cache_rows.h"

#include <fmt/format.h>

#include "attention/element.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

namespace attn {
namespace {

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// An element as what is computed in.
template <typename T>
Wide<T> wide(T x) {
  if constexpr (std::is_same_v<T, bfloat16>) return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
  else return static_cast<Wide<T>>(x);
}

std::size_t bytes_of(std::initializer_list<std::int64_t> factors) {
  std::size_t bytes = 1;
  for (const std::int64_t factor : factors)
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(factor), &bytes) || bytes > (std::size_t{1} << 62))
      throw ValueError("KvCache: so many pages of such rows are more bytes than can be counted");
  return bytes;
}

/// scale = max |x| / 127 in the type that is computed in, stored as f32; values to nearest, ties to even. inf or NaN: all NaN. Loops that the compiler
/// turns into vectors: magnitudes are compared as the whole numbers that their bits are, and the sum with 1.5 * 2^23 (2^52) has the nearest one in its bits.
template <typename T>
void quantise(const T* from, std::int64_t count, std::int8_t* to, float& scale) {
  using W = Wide<T>;
  using Bits = std::conditional_t<sizeof(W) == 8, std::int64_t, std::int32_t>;
  constexpr Bits magnitude = std::numeric_limits<Bits>::max(), infinity = std::bit_cast<Bits>(std::numeric_limits<W>::infinity());
  constexpr W whole = sizeof(W) == 8 ? W(0x1.8p52) : W(0x1.8p23);
  Bits most = 0;
  for (std::int64_t d = 0; d < count; ++d) {
    const Bits bits = std::bit_cast<Bits>(wide(from[d])) & magnitude;
    most = bits > most ? bits : most;
  }
  scale = most < infinity ? static_cast<float>(std::bit_cast<W>(most) / 127) : std::numeric_limits<float>::quiet_NaN();
  if (!std::isfinite(scale)) scale = std::numeric_limits<float>::quiet_NaN();
  if (std::isnan(scale) || scale == 0) {
    std::memset(to, std::isnan(scale) ? 1 : 0, static_cast<std::size_t>(count));
    return;
  }
  const W step = static_cast<W>(scale);
  for (std::int64_t d = 0; d < count; ++d) {
    const Bits steps = std::bit_cast<Bits>(wide(from[d]) / step + whole) - std::bit_cast<Bits>(whole);
    to[d] = static_cast<std::int8_t>(steps < -127 ? -127 : steps > 127 ? 127 : steps);
  }
}

}  // namespace

PagedRows::PagedRows(const RowLayout& layout, std::int64_t page_rows) : layout_(layout), page_rows_(page_rows) {
  const std::size_t bytes = bytes_of({layout.pages + 1, layout.heads, page_rows, layout.dim, static_cast<std::int64_t>(layout.element_bytes())});
  data_.reset(runtime::allocate(bytes));
  if (layout.group != 0) scales_.reset(runtime::allocate(bytes_of({layout.pages + 1, layout.heads, page_rows, layout.groups(), 4})));
  clear(zero_page(), page_rows);
}

template <typename T>
void PagedRows::write_row(char* to, float* scales, const T* from) const noexcept {
  if (layout_.group == 0) {
    std::memcpy(to, from, sizeof(T) * static_cast<std::size_t>(layout_.dim));
    return;
  }
  auto* const values = reinterpret_cast<std::int8_t*>(to);
  for (std::int64_t d = 0; d < layout_.dim; d += layout_.group)
    quantise(from + d, std::min(layout_.group, layout_.dim - d), values + d, *scales++);
}

void PagedRows::write(PagePlace to, const Tensor& source, std::int64_t from, std::int64_t count) noexcept {
  const auto rows = [&]<typename T>(const T* data) {
    for (std::int64_t h = 0; h < layout_.heads; ++h)
      for (std::int64_t n = 0; n < count; ++n)
        write_row(at(to.page, h, to.row + n), layout_.group == 0 ? nullptr : scales(to.page, h, to.row + n),
                  data + h * source.stride(0) + (from + n) * source.stride(1));
  };
  switch (layout_.dtype) {
    case Dtype::f64: return rows(static_cast<const double*>(source.data()));
    case Dtype::bf16: return rows(static_cast<const bfloat16*>(source.data()));
    case Dtype::f16: return rows(static_cast<const float16*>(source.data()));
    default: return rows(static_cast<const float*>(source.data()));
  }
}

void PagedRows::copy(std::int64_t page, const PagedRows& source, std::int64_t source_page, std::int64_t count) noexcept {
  if (count == 0) return;
  for (std::int64_t h = 0; h < layout_.heads; ++h) {
    std::memcpy(at(page, h, 0), source.at(source_page, h, 0), static_cast<std::size_t>(count * layout_.dim) * layout_.element_bytes());
    if (layout_.group != 0)
      std::memcpy(scales(page, h, 0), source.scales(source_page, h, 0), sizeof(float) * static_cast<std::size_t>(count * layout_.groups()));
  }
}

void PagedRows::clear(std::int64_t page, std::int64_t count) noexcept {
  for (std::int64_t h = 0; h < layout_.heads; ++h) {
    std::memset(at(page, h, 0), 0, static_cast<std::size_t>(count * layout_.dim) * layout_.element_bytes());
    if (layout_.group != 0) std::fill_n(scales(page, h, 0), count * layout_.groups(), 0.0F);
  }
}

template <typename T>
void PagedRows::read(PagePlace from, std::int64_t count, T* to, std::int64_t head_stride) const {
  const auto rows = [&]<typename S>(const S*) {
    for (std::int64_t h = 0; h < layout_.heads; ++h)
      for (std::int64_t n = 0; n < count; ++n) {
        const auto* row = reinterpret_cast<const S*>(at(from.page, h, from.row + n));
        T* const result = to + h * head_stride + n * layout_.dim;
        const float* const scale = layout_.group == 0 ? nullptr : scales(from.page, h, from.row + n);
        for (std::int64_t d = 0; d < layout_.dim; ++d) {
          result[d] = static_cast<T>(static_cast<Wide<S>>(row[d]));
          if (scale) result[d] = result[d] * static_cast<T>(scale[d / layout_.group]);
        }
      }
  };
  if (layout_.group != 0) return rows(static_cast<const std::int8_t*>(nullptr));
  switch (layout_.dtype) {
    case Dtype::f64: return rows(static_cast<const double*>(nullptr));
    case Dtype::bf16: return rows(static_cast<const bfloat16*>(nullptr));
    case Dtype::f16: return rows(static_cast<const float16*>(nullptr));
    default: return rows(static_cast<const float*>(nullptr));
  }
}
template void PagedRows::read(PagePlace, std::int64_t, float*, std::int64_t) const;
template void PagedRows::read(PagePlace, std::int64_t, double*, std::int64_t) const;

kernels::KeyRows PagedRows::describe() const {
  kernels::KeyRows rows;
  rows.base = data_.get();
  rows.row_stride = layout_.dim;
  rows.page_stride = layout_.heads * page_rows_ * layout_.dim;
  while ((std::int64_t{1} << rows.page_shift) < page_rows_) ++rows.page_shift;
  rows.element = layout_.group == 0 ? element_of(layout_.dtype) : kernels::Element::i8;
  if (layout_.group != 0) {
    rows.scales = static_cast<const float*>(scales_.get());
    rows.scale_stride = layout_.groups();
    rows.scale_head_stride = page_rows_ * layout_.groups();
    rows.scale_page_stride = layout_.heads * page_rows_ * layout_.groups();
    rows.scale_group = static_cast<int>(layout_.group);
  }
  return rows;
}

}  // namespace attn
