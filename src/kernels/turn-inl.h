// src/kernels/turn-inl.h: rows to lanes and back: 4 x 4 (f64: 2 x 2) blocks of 128 bits.
#if defined(ATTN_TURN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_TURN_INL_H
#undef ATTN_TURN_INL_H
#else
#define ATTN_TURN_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// A square of 16-byte rows, turned in registers.
HWY_INLINE void turn_square(const float* HWY_RESTRICT in, std::int64_t in_stride, float* HWY_RESTRICT out, std::int64_t out_stride) {
  const hn::Full128<float> d;
  const hn::Full128<double> w;
  const auto a = hn::LoadU(d, in), b = hn::LoadU(d, in + in_stride), c = hn::LoadU(d, in + 2 * in_stride), e = hn::LoadU(d, in + 3 * in_stride);
  const auto ab_low = hn::BitCast(w, hn::InterleaveLower(d, a, b)), ce_low = hn::BitCast(w, hn::InterleaveLower(d, c, e));
  const auto ab_high = hn::BitCast(w, hn::InterleaveUpper(d, a, b)), ce_high = hn::BitCast(w, hn::InterleaveUpper(d, c, e));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, ab_low, ce_low)), d, out);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, ab_low, ce_low)), d, out + out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(w, ab_high, ce_high)), d, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(w, ab_high, ce_high)), d, out + 3 * out_stride);
}
HWY_INLINE void turn_square(const double* HWY_RESTRICT in, std::int64_t in_stride, double* HWY_RESTRICT out, std::int64_t out_stride) {
  const hn::Full128<double> d;
  const auto a = hn::LoadU(d, in), b = hn::LoadU(d, in + in_stride);
  hn::StoreU(hn::InterleaveLower(d, a, b), d, out);
  hn::StoreU(hn::InterleaveUpper(d, a, b), d, out + out_stride);
}

/// out[c][r] = in[r][c] for r < rows, c < columns. Reads and writes nothing else.
template <typename T>
HWY_NOINLINE void turn(const T* in, std::int64_t in_stride, std::int64_t rows, std::int64_t columns, T* out, std::int64_t out_stride) {
  constexpr std::int64_t side = 16 / sizeof(T);
  std::int64_t r = 0;
  for (; r + side <= rows; r += side) {
    std::int64_t c = 0;
    for (; c + side <= columns; c += side) turn_square(in + r * in_stride + c, in_stride, out + c * out_stride + r, out_stride);
    for (; c < columns; ++c)
      for (std::int64_t i = 0; i < side; ++i) out[c * out_stride + r + i] = in[(r + i) * in_stride + c];
  }
  for (; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) out[c * out_stride + r] = in[r * in_stride + c];
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
