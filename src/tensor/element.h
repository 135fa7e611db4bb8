// src/tensor/element.h: gives the C++ type of a dtype and the type in which its elements are computed, and converts
// single elements.
#pragma once
#include <attn/dtype.h>

#include "kernels/half.h"

#include <limits>
#include <type_traits>

namespace attn {

template <typename T>
inline constexpr bool is_half = std::is_same_v<T, bfloat16> || std::is_same_v<T, float16>;

/// Gives the type in which T is computed: f32 for bf16 and f16 (rounded once), T itself for all other types.
template <typename T>
using Compute = std::conditional_t<is_half<T>, float, T>;
inline Dtype compute_dtype(Dtype dtype) { return dtype == Dtype::bf16 || dtype == Dtype::f16 ? Dtype::f32 : dtype; }

template <typename T>
inline Compute<T> widen(T value) {
  if constexpr (std::is_same_v<T, bfloat16>) return half::from_bf16(value.bits);
  else if constexpr (std::is_same_v<T, float16>) return half::from_f16(value.bits);
  else return value;
}

/// Converts as C++ does, except that a float that the integer type cannot hold (NaN included) gives the smallest
/// integer. bf16 and f16 are rounded from f32.
template <typename To, typename From>
inline To convert(From from) {
  const auto value = widen(from);
  if constexpr (std::is_same_v<To, bfloat16>) {
    bfloat16 result;
    result.bits = half::to_bf16(static_cast<float>(value));
    return result;
  } else if constexpr (std::is_same_v<To, float16>) {
    float16 result;
    result.bits = half::to_f16(static_cast<float>(value));
    return result;
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<decltype(value)>) {
    constexpr double bound = std::is_same_v<To, std::int64_t> ? 0x1p63 : 0x1p31;
    const double wide = static_cast<double>(value);
    return wide > -bound - 1 && wide < bound ? static_cast<To>(value) : std::numeric_limits<To>::min();
  } else {
    return static_cast<To>(value);
  }
}

template <typename T>
inline T from_scalar(Scalar value) {
  if constexpr (std::is_integral_v<T>)
    return value.is_floating() ? convert<T>(value.to_double()) : convert<T>(value.to_int());
  else return convert<T>(value.to_double());
}

template <typename T>
struct Type {
  using type = T;
};

/// Calls function(Type<T>{}) with the C++ type T of `dtype`.
template <typename F>
decltype(auto) with_type(Dtype dtype, F&& function) {
  switch (dtype) {
    case Dtype::f32: return function(Type<float>{});
    case Dtype::f64: return function(Type<double>{});
    case Dtype::bf16: return function(Type<bfloat16>{});
    case Dtype::f16: return function(Type<float16>{});
    case Dtype::i64: return function(Type<std::int64_t>{});
    case Dtype::i32: return function(Type<std::int32_t>{});
    default: return function(Type<bool>{});
  }
}

}  // namespace attn
