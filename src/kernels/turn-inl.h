// src/kernels/turn-inl.h: rows to lanes and back, in blocks of 16 bytes from as many rows as a vector has lanes.
#if defined(ATTN_TURN_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_TURN_INL_H
#undef ATTN_TURN_INL_H
#else
#define ATTN_TURN_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Pieces of 16 bytes, `stride` elements apart, side by side in a vector.
template <class D>
HWY_INLINE hn::Vec<D> load_pieces(D d, const hn::TFromD<D>* HWY_RESTRICT in, std::int64_t stride) {
  constexpr std::size_t bytes = hn::MaxLanes(D()) * sizeof(hn::TFromD<D>);
  if constexpr (bytes == 16) {
    return hn::LoadU(d, in);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_pieces(half, in + static_cast<std::int64_t>(bytes) / 32 * stride, stride), load_pieces(half, in, stride));
  }
}

/// Columns that 16 bytes of a row hold: so many are turned together.
template <typename T>
inline constexpr int turned_columns = 16 / sizeof(T);

/// As many rows as a vector has lanes, 16 bytes of each: every group of 16 bytes is turned in itself, and each column is a vector.
template <class D>
HWY_INLINE void load_turned(D d, const float* HWY_RESTRICT in, std::int64_t in_stride, hn::Vec<D> (&column)[4]) {
  const hn::Repartition<double, D> w;
  const auto a = load_pieces(d, in, 4 * in_stride), b = load_pieces(d, in + in_stride, 4 * in_stride);
  const auto c = load_pieces(d, in + 2 * in_stride, 4 * in_stride), e = load_pieces(d, in + 3 * in_stride, 4 * in_stride);
  const auto ab_low = hn::BitCast(w, hn::InterleaveLower(d, a, b)), ce_low = hn::BitCast(w, hn::InterleaveLower(d, c, e));
  const auto ab_high = hn::BitCast(w, hn::InterleaveUpper(d, a, b)), ce_high = hn::BitCast(w, hn::InterleaveUpper(d, c, e));
  column[0] = hn::BitCast(d, hn::InterleaveLower(w, ab_low, ce_low));
  column[1] = hn::BitCast(d, hn::InterleaveUpper(w, ab_low, ce_low));
  column[2] = hn::BitCast(d, hn::InterleaveLower(w, ab_high, ce_high));
  column[3] = hn::BitCast(d, hn::InterleaveUpper(w, ab_high, ce_high));
}
template <class D>
HWY_INLINE void load_turned(D d, const double* HWY_RESTRICT in, std::int64_t in_stride, hn::Vec<D> (&column)[2]) {
  const auto a = load_pieces(d, in, 2 * in_stride), b = load_pieces(d, in + in_stride, 2 * in_stride);
  column[0] = hn::InterleaveLower(d, a, b);
  column[1] = hn::InterleaveUpper(d, a, b);
}

/// One element. Rows of 16-bit numbers are turned two numbers at a time: such a pair may stand at any even address.
template <typename T>
HWY_INLINE void move_one(const T* from, T* to) {
  std::memcpy(to, from, sizeof(T));
}

/// Rows [r, rows) as long as they fill D's lanes; returns the first that is left.
template <class D>
HWY_INLINE std::int64_t turn_rows(D d, const hn::TFromD<D>* in, std::int64_t in_stride, std::int64_t r, std::int64_t rows, std::int64_t columns,
                                  hn::TFromD<D>* out, std::int64_t out_stride) {
  constexpr std::int64_t N = static_cast<std::int64_t>(hn::MaxLanes(D())), side = turned_columns<hn::TFromD<D>>;
  for (; r + N <= rows; r += N) {
    std::int64_t c = 0;
    for (; c + side <= columns; c += side) {
      hn::Vec<D> column[side];
      load_turned(d, in + r * in_stride + c, in_stride, column);
      for (std::int64_t i = 0; i < side; ++i) hn::StoreU(column[i], d, out + (c + i) * out_stride + r);
    }
    for (; c < columns; ++c)
      for (std::int64_t i = 0; i < N; ++i) move_one(in + (r + i) * in_stride + c, out + c * out_stride + r + i);
  }
  return r;
}

/// out[c][r] = in[r][c] for r < rows, c < columns. Reads and writes nothing else.
template <typename T>
HWY_NOINLINE void turn(const T* in, std::int64_t in_stride, std::int64_t rows, std::int64_t columns, T* out, std::int64_t out_stride) {
  std::int64_t r = turn_rows(hn::ScalableTag<T>(), in, in_stride, 0, rows, columns, out, out_stride);
  r = turn_rows(hn::Full128<T>(), in, in_stride, r, rows, columns, out, out_stride);
  for (; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) move_one(in + r * in_stride + c, out + c * out_stride + r);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
