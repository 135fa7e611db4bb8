// src/kernels/attention/softmax/decode_softmax-inl.h: computes the online softmax of decode rows, keys in the lanes.
//
//   s [row][keys]   16 keys of a row are one vector: an exp2 of rows in the lanes would leave most lanes empty
//   p [key][rows]   for the output, which broadcasts each weight, and for the sum, a chain over the keys with rows in
//                   the lanes
#if defined(ATTN_DECODE_SOFTMAX_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_SOFTMAX_INL_H
#undef ATTN_DECODE_SOFTMAX_INL_H
#else
#define ATTN_DECODE_SOFTMAX_INL_H
#endif

#include "kernels/attention/softmax/online_softmax-inl.h"
#include "kernels/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// A block's scores of decode rows, and their weights. They share memory with the transposed biases, which are not in
/// use at the same time.
template <typename T, int KEYS>
struct DecodeScores {
  T* s;  // [max_decode_rows][KEYS]
  T* p;  // [keys or pairs of them][max_decode_rows]

  explicit DecodeScores(const QueryTileScratch<T>& scratch)
      : s(scratch.extra), p(scratch.extra + max_decode_rows * KEYS) {
    static_assert(2 * max_decode_rows * KEYS <= kv_block * query_tile_rows<T>);
  }
  /// Sets weights to 0, so that those of missing rows are numbers.
  void clear(int keys_or_pairs) const {
    std::memset(p, 0, static_cast<std::size_t>(max_decode_rows * keys_or_pairs) * sizeof(T));
  }

  /// Transposes scores of `rows` rows to [key][R], the layout with query rows in the lanes.
  void to_lanes(T* lanes_of_rows, int rows, int key, int end) const {
    transpose(s + key, std::int64_t{KEYS}, rows, end - key, lanes_of_rows + key * query_tile_rows<T>,
              std::int64_t{query_tile_rows<T>});
  }
};

/// Computes the online softmax of a block, as weigh_block does, for `rows` decode rows and keys [begin, end), the range
/// that some row sees.
template <typename T>
HWY_NOINLINE void decode_softmax(const QueryTileScratch<T>& scratch, const DecodeScores<T, kv_block>& block, int rows,
                                 int begin, int end) {
  const Tag<T> d;
  constexpr int N = lanes<T>;
  raise_maximum(scratch, 1);
  for (int r = 0; r < rows; ++r) {
    T* const s = block.s + r * kv_block;
    const auto reference = hn::Set(d, scratch.reference[r]);
    for (int i = begin / N * N; i < end; i += N) hn::Store(weight_of<T>(hn::Load(d, s + i), reference), d, s + i);
  }
  transpose(block.s + begin, std::int64_t{kv_block}, rows, end - begin, block.p + begin * max_decode_rows,
            std::int64_t{max_decode_rows});
  const hn::CappedTag<T, max_decode_rows> of_rows;
  constexpr int M = static_cast<int>(hn::MaxLanes(of_rows));
  hn::Vec<decltype(of_rows)> sum[max_decode_rows / M];
  ATTN_UNROLL_FOR (auto& x : sum) x = hn::Zero(of_rows);
  for (int key = begin; key < end; ++key)
    ATTN_UNROLL_FOR (int x = 0; x < max_decode_rows / M; ++x)
      sum[x] = hn::Add(sum[x], hn::Load(of_rows, block.p + key * max_decode_rows + x * M));
  ATTN_UNROLL_FOR (int x = 0; x < max_decode_rows / M; ++x) hn::Store(sum[x], of_rows, scratch.sum + x * M);
  accumulate_sums(scratch, 1);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
