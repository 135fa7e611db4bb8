// src/kernels/simd/multiply_add-inl.h: defines the multiply-accumulate step of each element type: which word it reads
// of an operand, and the instruction.
#if defined(ATTN_MULTIPLY_ADD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_MULTIPLY_ADD_INL_H
#undef ATTN_MULTIPLY_ADD_INL_H
#else
#define ATTN_MULTIPLY_ADD_INL_H
#endif

#include "kernels/simd/lanes-inl.h"

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// f32 and f64: a word is one element, and a step is one fused multiply-add.
template <typename T>
struct MultiplyAdd {
  using Item = T;  // element type of the operands
  using Word = T;  // what one step reads of an operand
  using Sum = T;
  static constexpr int depth = 1;  // items per word
  static HWY_INLINE Vector<T> broadcast(T word) { return hn::Set(Tag<T>(), word); }
  static HWY_INLINE Vector<T> step(Vector<T> a, Vector<T> b, Vector<T> sum) { return hn::MulAdd(a, b, sum); }
};

#if HWY_TARGET == HWY_AVX3
/// bf16: a word is the pair of items (2k, 2k + 1), and a step is one vdpbf16ps. The instruction is written in assembly,
/// because the rest of this target must run on processors without it.
struct DotPairs {
  using Item = std::uint16_t;
  using Word = std::uint32_t;
  using Sum = float;
  static constexpr int depth = 2;
  /// Broadcasts the word as an integer. On Zen 5 a broadcast of f32 from memory occupies a slot of the multipliers, and
  /// a step would take 1.33 times as long.
  template <typename T>
  static HWY_INLINE Vector<float> broadcast(T word) {
    return hn::BitCast(Tag<float>(), hn::Set(Tag<std::uint32_t>(), __builtin_bit_cast(std::uint32_t, word)));
  }
  static HWY_INLINE Vector<float> step(Vector<float> a, Vector<float> b, Vector<float> sum) {
    asm("vdpbf16ps %2, %1, %0" : "+v"(sum.raw) : "v"(b.raw), "v"(a.raw));
    return sum;
  }
};
#endif

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
