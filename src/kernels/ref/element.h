// src/kernels/ref/element.h: reads elements of any storage type in the compute type, and writes them with one rounding.
#pragma once
#include "kernels/attention/problem.h"
#include "kernels/half.h"
#include "kernels/ref/math.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

// f16 (binary16): conversions round to nearest even and keep denormals. GCC 12 has _Float16 in C++ on x86 only.
#if defined(__aarch64__)
typedef __fp16 Half;
#elif defined(__wasm__)
struct Half {
  std::uint16_t bits;
  Half() = default;
  explicit Half(float x) : bits(half::to_f16(x)) {}
  explicit operator float() const { return half::from_f16(bits); }
  bool operator==(Half other) const { return float(*this) == float(other); }
};
#else
__extension__ typedef _Float16 Half;
#endif

inline float bf16_to_f32(std::uint16_t bits) { return from_bits<float>(static_cast<std::uint32_t>(bits) << 16); }

/// Rounds to bf16, to nearest even; a NaN becomes the canonical NaN.
inline std::uint16_t bf16_of_f32(float x) {
  const std::uint32_t bits = to_bits(canonical(x));
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/// Reads element `i` from `base`, exactly, as T.
template <typename T>
T load(const void* base, Element element, std::int64_t i) {
  switch (element) {
    case Element::f64: return static_cast<T>(static_cast<const double*>(base)[i]);
    case Element::bf16: return static_cast<T>(bf16_to_f32(static_cast<const std::uint16_t*>(base)[i]));
    case Element::f16: return static_cast<T>(static_cast<float>(static_cast<const Half*>(base)[i]));
    case Element::f32: return static_cast<T>(static_cast<const float*>(base)[i]);
    default: return static_cast<T>(number_of(element, static_cast<const std::int8_t*>(base)[i]));
  }
}

/// Writes an element, rounded once; a zero becomes +0, a NaN the canonical NaN.
template <typename T>
void store(void* base, Element element, std::int64_t i, T value) {
  const T x = canonical(value);
  switch (element) {
    case Element::f64: static_cast<double*>(base)[i] = static_cast<double>(x) + 0.0; break;
    case Element::bf16: {
      const std::uint16_t bits = bf16_of_f32(static_cast<float>(x));
      static_cast<std::uint16_t*>(base)[i] = bits == 0x8000u ? std::uint16_t{0} : bits;
      break;
    }
    case Element::f16: {
      const Half half = static_cast<Half>(static_cast<float>(x));
      static_cast<Half*>(base)[i] = half == Half(0) ? Half(0) : half;
      break;
    }
    default: static_cast<float*>(base)[i] = static_cast<float>(x) + 0.0f;
  }
}

/// Calls run(T()) with the compute type of an element.
template <class F>
auto by_compute_type(Element element, F&& run) {
  return element == Element::f64 ? run(double()) : run(float());
}
/// Returns the bytes of scratch of Rows<T>, which tells how many elements of T it needs.
template <template <typename> class Rows>
std::size_t bytes_for(const AttentionProblem& p) {
  return by_compute_type(p.element,
                         [&]<typename T>(T) { return sizeof(T) * static_cast<std::size_t>(Rows<T>::elements(p)); });
}

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
