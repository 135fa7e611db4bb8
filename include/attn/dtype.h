// include/attn/dtype.h: defines the element types, and the two 16-bit float types that C++20 does not have.
#pragma once
#include <attn/export.h>

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string_view>

namespace attn {

enum class Dtype : std::uint8_t { f32, f64, bf16, f16, i64, i32, boolean };

/// bfloat16: the upper half of an f32. Conversion from f32 rounds to nearest even; NaN stays NaN (quiet).
struct ATTN_API bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value);
  explicit operator float() const;
};

/// IEEE binary16. Conversion from f32 rounds to nearest even, denormals included.
struct ATTN_API float16 {
  std::uint16_t bits = 0;
  float16() = default;
  explicit float16(float value);
  explicit operator float() const;
};

/// Returns the bytes of one element.
ATTN_API std::size_t size_of(Dtype dtype);
/// Returns "f32", "f64", "bf16", "f16", "i64", "i32" or "bool".
ATTN_API std::string_view name_of(Dtype dtype);
/// Prints name_of(dtype).
ATTN_API std::ostream& operator<<(std::ostream& out, Dtype dtype);
/// Returns torch's name: "float32", "bfloat16", "int64", "bool", ...
ATTN_API std::string_view torch_name_of(Dtype dtype);
/// Returns the dtype of either name (attn's or torch's); ValueError lists the names.
ATTN_API Dtype dtype_from_name(std::string_view name);
inline bool is_floating(Dtype dtype) { return dtype <= Dtype::f16; }
inline bool is_integral(Dtype dtype) { return dtype == Dtype::i64 || dtype == Dtype::i32; }

template <typename T>
struct DtypeOf;
template <>
struct DtypeOf<float> {
  static constexpr Dtype value = Dtype::f32;
};
template <>
struct DtypeOf<double> {
  static constexpr Dtype value = Dtype::f64;
};
template <>
struct DtypeOf<bfloat16> {
  static constexpr Dtype value = Dtype::bf16;
};
template <>
struct DtypeOf<float16> {
  static constexpr Dtype value = Dtype::f16;
};
template <>
struct DtypeOf<std::int64_t> {
  static constexpr Dtype value = Dtype::i64;
};
template <>
struct DtypeOf<std::int32_t> {
  static constexpr Dtype value = Dtype::i32;
};
template <>
struct DtypeOf<bool> {
  static constexpr Dtype value = Dtype::boolean;
};
template <typename T>
inline constexpr Dtype dtype_of = DtypeOf<T>::value;

/// A number used with a tensor: x + 1, full({2}, 0.5). It never changes the dtype of a floating tensor (torch's rule).
class Scalar {
 public:
  Scalar(double value) : float_(value), integer_(static_cast<std::int64_t>(0)), kind_(Kind::floating) {}
  Scalar(float value) : Scalar(static_cast<double>(value)) {}
  Scalar(std::int64_t value) : float_(static_cast<double>(value)), integer_(value), kind_(Kind::integral) {}
  Scalar(int value) : Scalar(static_cast<std::int64_t>(value)) {}
  Scalar(bool value) : float_(value ? 1.0 : 0.0), integer_(value ? 1 : 0), kind_(Kind::boolean) {}
  bool is_floating() const { return kind_ == Kind::floating; }
  bool is_boolean() const { return kind_ == Kind::boolean; }
  double to_double() const { return float_; }
  std::int64_t to_int() const { return kind_ == Kind::floating ? static_cast<std::int64_t>(float_) : integer_; }

 private:
  enum class Kind : std::uint8_t { floating, integral, boolean };
  double float_;
  std::int64_t integer_;
  Kind kind_;
};

}  // namespace attn
