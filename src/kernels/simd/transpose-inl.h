// src/kernels/simd/transpose-inl.h: transposes matrices in registers: as many rows as a vector has lanes, 16 bytes of
// each row at a time.
#if defined(ATTN_TRANSPOSE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_TRANSPOSE_INL_H
#undef ATTN_TRANSPOSE_INL_H
#else
#define ATTN_TRANSPOSE_INL_H
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Number of 16-byte pieces in a vector.
template <class D>
inline constexpr int vector_pieces = static_cast<int>(hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) / 16);

/// Loads the 16-byte pieces at in[0] + offset, in[1] + offset ... into one vector.
template <class D>
HWY_INLINE hn::Vec<D> load_pieces(D d, const hn::TFromD<D>* const* HWY_RESTRICT in, std::int64_t offset) {
  if constexpr (vector_pieces<D> == 1) {
    return hn::LoadU(d, in[0] + offset);
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, load_pieces(half, in + vector_pieces<D> / 2, offset), load_pieces(half, in, offset));
  }
}

/// The number of columns in 16 bytes of a row, which are transposed at a time.
template <typename T>
inline constexpr int transposed_columns = 16 / sizeof(T);

/// Loads 16 bytes of as many rows as a vector has lanes and transposes them: column[c] holds element c of all these
/// rows. Rows are `stride` elements apart; in[i] is the address of row i * transposed_columns.
template <class D>
HWY_INLINE void load_transposed(D d, const float* const* HWY_RESTRICT in, std::int64_t stride,
                                hn::Vec<D> (&column)[4]) {
  const hn::Vec<D> row[4] = {load_pieces(d, in, 0), load_pieces(d, in, stride), load_pieces(d, in, 2 * stride),
                             load_pieces(d, in, 3 * stride)};
  const hn::Repartition<double, D> w;
  const auto ab_low = hn::BitCast(w, hn::InterleaveLower(d, row[0], row[1])),
             ce_low = hn::BitCast(w, hn::InterleaveLower(d, row[2], row[3]));
  const auto ab_high = hn::BitCast(w, hn::InterleaveUpper(d, row[0], row[1])),
             ce_high = hn::BitCast(w, hn::InterleaveUpper(d, row[2], row[3]));
  column[0] = hn::BitCast(d, hn::InterleaveLower(w, ab_low, ce_low));
  column[1] = hn::BitCast(d, hn::InterleaveUpper(w, ab_low, ce_low));
  column[2] = hn::BitCast(d, hn::InterleaveLower(w, ab_high, ce_high));
  column[3] = hn::BitCast(d, hn::InterleaveUpper(w, ab_high, ce_high));
}
template <class D>
HWY_INLINE void load_transposed(D d, const double* const* HWY_RESTRICT in, std::int64_t stride,
                                hn::Vec<D> (&column)[2]) {
  const auto a = load_pieces(d, in, 0), b = load_pieces(d, in, stride);
  column[0] = hn::InterleaveLower(d, a, b);
  column[1] = hn::InterleaveUpper(d, a, b);
}

/// Reads rows by load_transposed, 16 bytes of each row in a step.
template <class D>
struct RowsInStep {
  using T = hn::TFromD<D>;
  static constexpr int side = transposed_columns<T>;
  const T* at[vector_pieces<D>];
  std::int64_t stride;

  HWY_INLINE RowsInStep(const T* in, std::int64_t row_stride) : stride(row_stride) {
    _Pragma("GCC unroll 16") for (int i = 0; i < vector_pieces<D>; ++i) {
      at[i] = in + i * side * stride;
#if HWY_COMPILER_GCC || HWY_COMPILER_CLANG
      // holds each address in a register: their distances do not fit an addressing mode, and GCC would compute every
      // address again in each step
      asm("" : "+r"(at[i]));
#endif
    }
  }
  HWY_INLINE void next(D d, hn::Vec<D> (&column)[side]) {
    load_transposed(d, at, stride, column);
    _Pragma("GCC unroll 16") for (int i = 0; i < vector_pieces<D>; ++i) at[i] += side;
  }
};

/// Copies one element by memcpy. Two adjacent 16-bit numbers may be moved as one 32-bit T, at any even address: an
/// access through T* would need 4-byte alignment.
template <typename T>
HWY_INLINE void move_one(const void* from, void* to) {
  std::memcpy(to, from, sizeof(T));
}

/// Transposes rows from r on, as many at a time as D has lanes, and returns the first row that is left.
template <class D>
HWY_INLINE std::int64_t transpose_rows(D d, const hn::TFromD<D>* in, std::int64_t in_stride, std::int64_t r,
                                       std::int64_t rows, std::int64_t columns, hn::TFromD<D>* out,
                                       std::int64_t out_stride) {
  constexpr std::int64_t N = static_cast<std::int64_t>(hn::MaxLanes(D())), side = transposed_columns<hn::TFromD<D>>;
  for (; r + N <= rows; r += N) {
    RowsInStep<D> from(in + r * in_stride, in_stride);
    std::int64_t c = 0;
    for (; c + side <= columns; c += side) {
      hn::Vec<D> column[side];
      from.next(d, column);
      for (std::int64_t i = 0; i < side; ++i) hn::StoreU(column[i], d, out + (c + i) * out_stride + r);
    }
    for (; c < columns; ++c)
      for (std::int64_t i = 0; i < N; ++i)
        move_one<hn::TFromD<D>>(in + (r + i) * in_stride + c, out + c * out_stride + r + i);
  }
  return r;
}

#if HWY_COMPILER_GCC_ACTUAL
// otherwise GCC makes a clone of the function, of 3 kB, for every constant stride
#define ATTN_ONE_COPY [[gnu::noinline, gnu::noclone]]
#else
#define ATTN_ONE_COPY HWY_NOINLINE
#endif

/// Computes out[c][r] = in[r][c] for r < rows, c < columns. Reads and writes nothing else.
template <typename T>
ATTN_ONE_COPY void transpose(const T* in, std::int64_t in_stride, std::int64_t rows, std::int64_t columns, T* out,
                             std::int64_t out_stride) {
  std::int64_t r = transpose_rows(hn::ScalableTag<T>(), in, in_stride, 0, rows, columns, out, out_stride);
  if constexpr (vector_pieces<hn::ScalableTag<T>> == 4)
    r = transpose_rows(hn::Half<hn::ScalableTag<T>>(), in, in_stride, r, rows, columns, out, out_stride);
  r = transpose_rows(hn::Full128<T>(), in, in_stride, r, rows, columns, out, out_stride);
  for (; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) move_one<T>(in + r * in_stride + c, out + c * out_stride + r);
}
#undef ATTN_ONE_COPY

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
