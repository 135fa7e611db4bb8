// src/attention/cache/row_storage_formats.h: how a cache stores rows: the names of the formats, their element types,
// and the rounding of rows to 8 bits.
#pragma once
#include <attn/cache.h>

#include "attention/element.h"
#include "attention/schedule/vector_kernels.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string_view>
#include <type_traits>

namespace attn {

/// The names of the formats, in the order of KvStorage.
inline constexpr std::array storage_names{"same", "int8"};
inline KvStorage storage_of(std::string_view name) {
  return static_cast<KvStorage>(std::find(storage_names.begin(), storage_names.end(), name) - storage_names.begin());
}

/// Returns the element type of a cache's rows; `options` are complete.
inline kernels::Element stored_element(const KvCacheOptions& options) {
  if (options.storage == KvStorage::same) return element_of(options.dtype);
  return int8_form(options.dtype, options.head_dim, options.value_dim,
                   options.scale_group == 0 ? std::max(options.head_dim, options.value_dim) : options.scale_group);
}

template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Converts an element to the type in which it is computed: f64 for f64, else f32.
template <typename T>
Wide<T> wide(T x) {
  if constexpr (std::is_same_v<T, bfloat16>) return std::bit_cast<float>(std::uint32_t{x.bits} << 16);
  else return static_cast<Wide<T>>(x);
}

/// Returns the scale max |x| / 127, computed in the wide type, as f32; NaN if an element is inf or NaN, or if f32
/// cannot hold the scale. The compiler vectorises this loop because magnitudes are compared as the integers of their
/// bits.
template <typename T>
float scale_of(const T* from, std::int64_t count) {
  using W = Wide<T>;
  using Bits = std::conditional_t<sizeof(W) == 8, std::int64_t, std::int32_t>;
  constexpr Bits magnitude = std::numeric_limits<Bits>::max(),
                 infinity = std::bit_cast<Bits>(std::numeric_limits<W>::infinity());
  Bits most = 0;
  for (std::int64_t d = 0; d < count; ++d) {
    const Bits bits = std::bit_cast<Bits>(wide(from[d])) & magnitude;
    most = bits > most ? bits : most;
  }
  const float scale =
      most < infinity ? static_cast<float>(std::bit_cast<W>(most) / 127) : std::numeric_limits<float>::infinity();
  return std::isfinite(scale) ? scale : std::numeric_limits<float>::quiet_NaN();
}

/// Writes element / scale, rounded to the nearest integer, ties to even, and limited to +-127; writes 1 if the scale is
/// NaN, 0 if it is 0. After adding 1.5 * 2^23 (f64: 2^52) the low bits of the sum hold the nearest integer.
template <typename T>
void round_to(const T* from, std::int64_t count, float scale, std::int8_t* to) {
  using W = Wide<T>;
  using Bits = std::conditional_t<sizeof(W) == 8, std::int64_t, std::int32_t>;
  constexpr W whole = sizeof(W) == 8 ? W(0x1.8p52) : W(0x1.8p23);
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

/// Converts `count` int8 values in place from two's complement to the form in which the cache stores them.
inline void to_form(kernels::Element kept, std::int64_t count, std::int8_t* bytes) {
  if (kept == kernels::Element::i8) return;
  for (std::int64_t d = 0; d < count; ++d) bytes[d] = kernels::other_form(bytes[d]);
}

/// Rounds `count` elements to 8 bits with one scale, which it returns. Calls write(first, end, bytes) for at most 64
/// elements at a time.
template <typename T, typename F>
float round_group(kernels::Element kept, const T* from, std::int64_t count, F&& write) {
  constexpr std::int64_t most = 64;
  const float scale = scale_of(from, count);
  std::int8_t bytes[most];
  for (std::int64_t first = 0, end; first < count; first = end) {
    end = std::min(first + most, count);
    round_to(from + first, end - first, scale, bytes);
    to_form(kept, end - first, bytes);
    write(first, end, bytes);
  }
  return scale;
}

/// Converts `count` bytes that share a scale to f32 or f64, as attention reads them.
template <typename T>
void widen_bytes(kernels::Element kept, const std::int8_t* bytes, std::int64_t count, float scale, T* to) {
  for (std::int64_t d = 0; d < count; ++d)
    to[d] = static_cast<T>(kernels::number_of(kept, bytes[d])) * static_cast<T>(scale);
}

}  // namespace attn
