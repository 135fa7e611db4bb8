// src/kernels/attention/few_weights-inl.h: strips of few rows (decoding): scores to weights with keys in the lanes.
//
//   s [row][keys]   16 keys of a row are one vector: an exp2 of rows in the lanes would leave most lanes empty
//   p [key][rows]   for the output, which broadcasts each weight, and for the sum, a chain over the keys with rows in
//                   the lanes
#if defined(ATTN_FEW_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_FEW_WEIGHTS_INL_H
#undef ATTN_FEW_WEIGHTS_INL_H
#else
#define ATTN_FEW_WEIGHTS_INL_H
#endif

#include "kernels/attention/few_rows-inl.h"
#include "kernels/attention/weights-inl.h"
#include "kernels/turn-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// A block's scores of few rows, and their weights: so they lie in the place of a strip's turned biases, which they do
/// not meet.
template <typename T, int KEYS>
struct FewBlock {
  T* s;  // [few_rows][KEYS]
  T* p;  // [keys or pairs of them][few_rows]

  explicit FewBlock(const Strip<T>& strip) : s(strip.extra), p(strip.extra + few_rows * KEYS) {
    static_assert(2 * few_rows * KEYS <= key_block * strip_rows<T>);
  }
  /// So that weights of rows that are not there are numbers.
  void clear(int keys_or_pairs) { std::memset(p, 0, static_cast<std::size_t>(few_rows * keys_or_pairs) * sizeof(T)); }

  /// Hidden, all of it.
  void hide(int rows) {
    const Tag<T> d;
    for (int i = 0; i < rows * KEYS; i += lanes<T>) hn::Store(minus_infinity<T>(), d, s + i);
  }
  /// Scores of `rows` rows to or from those of lanes that are rows, [key][R].
  void from_lanes(const T* lanes_of_rows, int rows, int key, int end) {
    turn(lanes_of_rows + key * strip_rows<T>, std::int64_t{strip_rows<T>}, end - key, rows, s + key,
         std::int64_t{KEYS});
  }
  void to_lanes(T* lanes_of_rows, int rows, int key, int end) const {
    turn(s + key, std::int64_t{KEYS}, rows, end - key, lanes_of_rows + key * strip_rows<T>,
         std::int64_t{strip_rows<T>});
  }
};

/// weigh_block of `rows` rows and the keys [begin, end) that some of them see.
template <typename T>
HWY_NOINLINE void weigh_few(const Strip<T>& strip, const FewBlock<T, key_block>& block, int rows, int begin, int end) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  raise_maximum(strip, 1);
  for (int r = 0; r < rows; ++r) {
    T* const s = block.s + r * key_block;
    const auto reference = hn::Set(d, strip.reference[r]);
    for (int i = begin / N * N; i < end; i += N) hn::Store(weight_of<T>(hn::Load(d, s + i), reference), d, s + i);
  }
  turn(block.s + begin, std::int64_t{key_block}, rows, end - begin, block.p + begin * few_rows, std::int64_t{few_rows});
  const hn::CappedTag<T, few_rows> of_rows;
  constexpr int M = static_cast<int>(hn::MaxLanes(of_rows));
  hn::Vec<decltype(of_rows)> sum[few_rows / M];
  ATTN_UNROLL_FOR (auto& x : sum) x = hn::Zero(of_rows);
  for (int key = begin; key < end; ++key)
    ATTN_UNROLL_FOR (int x = 0; x < few_rows / M; ++x)
      sum[x] = hn::Add(sum[x], hn::Load(of_rows, block.p + key * few_rows + x * M));
  ATTN_UNROLL_FOR (int x = 0; x < few_rows / M; ++x) hn::Store(sum[x], of_rows, strip.sum + x * M);
  fold_sums(strip, 1);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
