// src/kernels/attention/softmax/epilogue-inl.h: finishes a query tile: adds the sink, divides by the sum, computes the
// log-sum-exp and writes the rows to memory.
#if defined(ATTN_EPILOGUE_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_EPILOGUE_INL_H
#undef ATTN_EPILOGUE_INL_H
#else
#define ATTN_EPILOGUE_INL_H
#endif

#include "kernels/attention/mask/masked_values-inl.h"
#include "kernels/attention/softmax/online_softmax-inl.h"
#include "kernels/attention/softmax/output_accumulator-inl.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The state of a query tile after its last key.
template <typename T>
struct Totals {
  T* m;
  T* l;
  T* spare;  // memory of the same size
  OutputAccumulator<T> output;
};

/// Adds attention sinks: one logit per head that takes part in the softmax and has no value.
template <typename T>
HWY_NOINLINE void add_sinks(const T* sinks, const Task& tile, int vectors, const Totals<T>& totals) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  alignas(64) T of_lane[R] = {};
  for (std::int64_t n = 0; n < tile.heads; ++n)
    for (std::int64_t i = 0; i < tile.rows; ++i) of_lane[n * tile.rows + i] = sinks[tile.head + n];
  for (int v = 0; v < vectors; ++v) {
    const auto m = hn::Load(d, totals.m + v * N), l = hn::Load(d, totals.l + v * N),
               sink = hn::Load(d, of_lane + v * N);
    const auto nothing = hn::Eq(l, hn::Zero(d));  // a row that sees no key stays empty
    const auto maximum = hn::IfThenElse(nothing, m, hn::Max(m, sink));
    const auto reference = safe_reference<T>(maximum);
    const auto a = weight_of<T>(m, reference);
    hn::Store(maximum, d, totals.m + v * N);
    hn::Store(hn::IfThenZeroElse(nothing, hn::MulAdd(l, a, weight_of<T>(sink, reference))), d, totals.l + v * N);
    hn::Store(a, d, totals.spare + v * N);
  }
  totals.output.scale(totals.spare);
}

/// Computes output = fma(o, 1/l, +0); 0 for rows that see no key. Returns false when a result or a sum is NaN; the
/// query tile must then be recomputed (masked_values.h). Lanes without a row may hold any value.
template <typename T>
HWY_NOINLINE bool divide(std::int64_t rows, int vectors, const Totals<T>& totals) {
  const Tag<T> d;
  for (int x = 0; x < vectors * lanes<T>; x += lanes<T>) {
    const auto l = hn::Load(d, totals.l + x);
    hn::Store(hn::IfThenZeroElse(hn::Eq(l, hn::Zero(d)), hn::Div(hn::Set(d, T{1}), l)), d, totals.spare + x);
  }
  return totals.output.divide(totals.spare, rows);
}

/// Writes m, l and the log-sum-exp ln(l) + m, if the problem has arrays for them.
template <typename T>
HWY_NOINLINE void save_sums(const AttentionProblem& problem, const Task& tile, int vectors, const Totals<T>& totals) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  const auto save = [&](void* array, const T* values) {
    if (array == nullptr) return;
    for (std::int64_t n = 0; n < tile.heads; ++n)
      std::memcpy(static_cast<T*>(array) + (tile.batch * problem.q_heads + tile.head + n) * problem.q_rows + tile.row,
                  values + n * tile.rows, static_cast<std::size_t>(tile.rows) * sizeof(T));
  };
  for (int v = 0; v < vectors; ++v) {
    const auto l = canonical_lanes<T>(hn::Load(d, totals.l + v * N));
    hn::Store(l, d, totals.l + v * N);
    hn::Store(hn::IfThenElse(hn::Eq(l, l), hn::Load(d, totals.m + v * N), l), d, totals.m + v * N);
  }
  save(problem.max, totals.m);
  save(problem.sum, totals.l);
  if (problem.logsumexp == nullptr) return;
  // log2 in f64 for both types, as the reference code does
  const Tag<double> wide;
  const hn::Rebind<T, Tag<double>> part;  // as many T as a vector has f64
  const auto ln2 = hn::Set(part, Constants<T>::ln2);
  for (std::int64_t r = 0; r < tile.count(); r += lanes<double>) {  // if no key was seen: log2(0) = -inf, m = -inf
    const auto l = hn::Load(part, totals.l + r), m = hn::Load(part, totals.m + r);
    if constexpr (sizeof(T) == sizeof(double)) hn::Store(hn::MulAdd(log2_f64(wide, l), ln2, m), part, totals.l + r);
    else hn::Store(hn::MulAdd(hn::DemoteTo(part, log2_f64(wide, hn::PromoteTo(wide, l))), ln2, m), part, totals.l + r);
  }
  save(problem.logsumexp, totals.l);
}

/// Rounds f32 to bf16 in the upper half of each 32-bit lane, to nearest even.
HWY_INLINE hn::Vec<hn::ScalableTag<std::uint32_t>> rounded_to_bf16(hn::Vec<Tag<float>> x) {
  const hn::ScalableTag<std::uint32_t> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
  const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd);
  const auto number = hn::RebindMask(du, hn::Eq(x, x));
  return hn::And(hn::IfThenElse(number, rounded, hn::Set(du, 0x7FC00000)), hn::Set(du, 0xFFFF0000));
}

/// Rounds f32 to bf16 or f16 in the upper half of each 32-bit lane, to nearest even; values that round to -0 become +0.
HWY_INLINE hn::Vec<hn::ScalableTag<std::uint32_t>> rounded_to_half(Element element, hn::Vec<Tag<float>> x) {
  const hn::ScalableTag<std::uint32_t> du;
  const auto in_f16 = [&]() HWY_ATTR {
    const auto half = hn::DemoteTo(hn::Rebind<hwy::float16_t, Tag<float>>(), x);
    return hn::ShiftLeft<16>(hn::PromoteTo(du, hn::BitCast(hn::Rebind<std::uint16_t, Tag<float>>(), half)));
  };
  const auto half = element == Element::bf16 ? rounded_to_bf16(x) : in_f16();
  return hn::IfThenZeroElse(hn::Eq(half, hn::Set(du, 0x80000000)), half);
}

/// Writes rows of bf16 or f16: two columns become one word per lane, and the words are transposed.
inline void write_half_rows(const AttentionProblem& problem, const Task& tile, const float* o, float* spare) {
  constexpr int R = query_tile_rows<float>, N = lanes<float>;
  const hn::ScalableTag<std::uint32_t> du;
  const Tag<float> d;
  const std::int64_t words = problem.value_dim / 2;
  for (std::int64_t c = 0; c < problem.value_dim; ++c)
    for (std::int64_t at = 0; at < tile.count(); at += N) {
      const auto high = rounded_to_half(problem.element, hn::Load(d, o + c * R + at));
      float* place = spare + c / 2 * R + at;
      const auto word = c % 2 == 0 ? hn::ShiftRight<16>(high) : hn::Or(hn::BitCast(du, hn::Load(d, place)), high);
      hn::Store(hn::BitCast(d, word), d, place);
    }
  tile.for_each_piece(
      problem.out_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start, std::int64_t stride) HWY_ATTR {
        auto* const out = static_cast<std::uint16_t*>(problem.out) + start;
        const float* const lane = spare + first;
        const std::int64_t whole = stride % 2 == 0 ? words : 0;
        transpose(lane, std::int64_t{R}, whole, rows, reinterpret_cast<float*>(out), stride / 2);
        // elements that do not fill a word: an odd last column, or all columns at an odd stride
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t c = 2 * whole; c < problem.value_dim; ++c)
            std::memcpy(out + i * stride + c, reinterpret_cast<const char*>(lane + c / 2 * R + i) + c % 2 * 2, 2);
      });
}

template <class D>
HWY_INLINE void store_first(D d, hn::Vec<D> x, std::int64_t count, void* to) {
  if (count == static_cast<std::int64_t>(hn::MaxLanes(d))) return hn::StoreU(x, d, static_cast<hn::TFromD<D>*>(to));
  alignas(64) hn::TFromD<D> all[hn::MaxLanes(D())];
  hn::Store(x, d, all);
  std::memcpy(to, all, static_cast<std::size_t>(count) * sizeof(hn::TFromD<D>));
}
/// Writes the first `count` numbers of a vector in the output's dtype.
template <typename T>
HWY_INLINE void store_output(Element element, Vector<T> x, std::int64_t count, void* to) {
  if constexpr (sizeof(T) == 4) {
    const hn::RebindToSigned<Tag<T>> whole;
    const hn::Rebind<std::uint16_t, Tag<T>> half;
    if (element != Element::f32)
      return store_first(half, hn::DemoteTo(half, hn::BitCast(whole, hn::ShiftRight<16>(rounded_to_half(element, x)))),
                         count, to);
  }
  store_first(Tag<T>(), x, count, to);
}

/// Writes decode rows to memory; `row_output` says where their columns are.
template <typename T>
HWY_NOINLINE void write_decode_rows(const AttentionProblem& problem, const Task& tile,
                                    const OutputAccumulator<T>& output, const DecodeOutput<T>& row_output) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  const std::int64_t bytes = bytes_of(problem.element);
  tile.for_each_piece(
      problem.out_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start, std::int64_t stride) HWY_ATTR {
        for (std::int64_t i = 0; i < rows; ++i)
          for (std::int64_t v = 0; v < row_output.vectors(); ++v) {
            const std::int64_t column = row_output.column_of(v),
                               count = problem.value_dim - column < N ? problem.value_dim - column : N;
            if (count > 0)
              store_output<T>(problem.element, hn::Load(d, output.line(static_cast<int>(first + i)) + v * N), count,
                              static_cast<char*>(problem.out) + bytes * (start + i * stride + column));
          }
      });
}

/// Writes the rows of the query tile to memory. `spare`: memory of the size of the output.
template <typename T>
void write_rows(const AttentionProblem& problem, const Task& tile, const OutputAccumulator<T>& output,
                const DecodeOutput<T>& row_output, T* spare) {
  if (output.decode) return write_decode_rows(problem, tile, output, row_output);
  if constexpr (sizeof(T) == 4)
    if (problem.element != Element::f32) return write_half_rows(problem, tile, output.o, spare);
  tile.for_each_piece(problem.out_stride,
                      [&](std::int64_t first, std::int64_t rows, std::int64_t start, std::int64_t stride) HWY_ATTR {
                        transpose(output.o + first, std::int64_t{query_tile_rows<T>}, problem.value_dim, rows,
                                  static_cast<T*>(problem.out) + start, stride);
                      });
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
