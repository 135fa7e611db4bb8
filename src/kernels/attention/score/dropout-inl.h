// src/kernels/attention/score/dropout-inl.h: applies dropout to a block of weights, with keep bits from memory or drawn
// by counter where they are used.
#if defined(ATTN_DROPOUT_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DROPOUT_INL_H
#undef ATTN_DROPOUT_INL_H
#else
#define ATTN_DROPOUT_INL_H
#endif

#include "kernels/attention/mask/active_vectors.h"
#include "kernels/attention/mask/transpose_bits-inl.h"
#include "kernels/attention/query_lanes-inl.h"
#include "kernels/philox.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

using Tag32 = hn::ScalableTag<std::uint32_t>;
using Tag64 = hn::ScalableTag<std::uint64_t>;
// a counter's word in the low half of every lane; the high half is ignored
using Words = hn::Vec<Tag64>;

HWY_INLINE Words times(Words x, std::uint32_t factor) {
  return hn::MulEven(hn::BitCast(Tag32(), x), hn::Set(Tag32(), factor));
}
HWY_INLINE Words high_half(Words x) { return hn::BitCast(Tag64(), hn::Shuffle2301(hn::BitCast(Tag32(), x))); }
HWY_INLINE Words of_word(std::uint32_t x) { return hn::Set(Tag64(), std::uint64_t{x}); }

/// Computes Philox with rows in the lanes and counters (item, head, row position, key position / 4). The part of the
/// first three rounds that depends on the rows only is computed once per block: 15 of the 20 products remain for each
/// four keys.
template <typename T>
class RowPhilox {
 public:
  static constexpr int R = query_tile_rows<T>, N = static_cast<int>(HWY_LANES(std::uint64_t));

  RowPhilox(const AttentionProblem& problem, const Task& tile) : philox_(problem.drop_seed) {
    alignas(64) std::uint64_t position[R] = {}, head[R] = {};
    const std::int64_t offset = problem.row_offset(tile, false);
    int lane = 0;
    for (std::int64_t n = 0; n < tile.heads; ++n)
      for (std::int64_t i = 0; i < tile.rows; ++i, ++lane) {
        position[lane] = static_cast<std::uint32_t>(tile.row + i + offset);
        head[lane] = static_cast<std::uint64_t>(problem.first_head + tile.head + n);
      }
    const auto [m0, m1] = Philox::multiplier;
    const auto item = static_cast<std::uint32_t>(problem.item(tile));
    of_item_ = std::uint64_t{m0} * item;
    const Tag64 d;
    for (int at = 0; at < lane; at += N) {
      // round 1
      const Words p = times(hn::Load(d, position + at), m1);
      const Words a0 = hn::Xor(hn::Xor(high_half(p), hn::Load(d, head + at)), of_word(key(0, 0)));
      // round 2
      const Words b = times(a0, m0);
      const Words b2 = hn::Xor(high_half(b), of_word(static_cast<std::uint32_t>(of_item_) ^ key(1, 1)));
      // round 3
      const Words c = times(b2, m1);
      hn::Store(p, d, a1_ + at);
      hn::Store(hn::Xor(b, of_word(key(1, 2))), d, b3_ + at);
      hn::Store(hn::Xor(high_half(c), of_word(key(0, 2))), d, c0_ + at);
      hn::Store(c, d, c1_ + at);
    }
  }

  /// Computes words 0 to 3 for keys 4 group ... 4 group + 3 and COUNT vectors of lanes from `at` on.
  template <int COUNT>
  HWY_INLINE void words(std::uint32_t group, int at, Words (&w)[4][COUNT]) const {
    const auto [m0, m1] = Philox::multiplier;
    const Tag64 d;
    const std::uint32_t a2 = static_cast<std::uint32_t>(of_item_ >> 32) ^ group ^ key(1, 0);
    const std::uint64_t p = std::uint64_t{m1} * a2;
    const Words high = of_word(static_cast<std::uint32_t>(p >> 32) ^ key(0, 1)),
                low = of_word(static_cast<std::uint32_t>(p));
    ATTN_UNROLL_FOR (int n = 0; n < COUNT; ++n) {
      const int lane = at + n * N;
      const Words q = times(hn::Xor(hn::Load(d, a1_ + lane), high), m0);  // round 3
      w[0][n] = hn::Xor(hn::Load(d, c0_ + lane), low);
      w[1][n] = hn::Load(d, c1_ + lane);
      w[2][n] = hn::Xor(high_half(q), hn::Load(d, b3_ + lane));
      w[3][n] = q;
    }
    for (int round = 3; round < Philox::rounds; ++round) {
      const Words k0 = of_word(key(0, round)), k1 = of_word(key(1, round));
      ATTN_UNROLL_FOR (int n = 0; n < COUNT; ++n) {
        const Words p0 = times(w[0][n], m0), p1 = times(w[2][n], m1);
        w[0][n] = hn::Xor(hn::Xor(high_half(p1), w[1][n]), k0);
        w[1][n] = p1;
        w[2][n] = hn::Xor(hn::Xor(high_half(p0), w[3][n]), k1);
        w[3][n] = p0;
      }
    }
  }

 private:
  std::uint32_t key(int n, int round) const {
    return philox_.key[n] + static_cast<std::uint32_t>(round) * Philox::key_step[n];
  }

  Philox philox_;
  std::uint64_t of_item_;
  alignas(64) std::uint64_t a1_[R], b3_[R], c0_[R], c1_[R];
};

/// Multiplies each weight by `scale` if its word is at least `least`, else sets it to 0.
HWY_INLINE Vector<float> kept(Vector<float> weight, Vector<float> scale, const Words (&w)[2], std::uint32_t least) {
  const Tag32 d;
  const auto word = hn::ConcatEven(d, hn::BitCast(d, w[1]), hn::BitCast(d, w[0]));
  return hn::IfThenZeroElse(hn::RebindMask(Tag<float>(), hn::Lt(word, hn::Set(d, least))), hn::Mul(weight, scale));
}
HWY_INLINE Vector<double> kept(Vector<double> weight, Vector<double> scale, const Words (&w)[1], std::uint32_t least) {
  const Tag64 d;
  const auto word = hn::And(w[0], hn::Set(d, std::uint64_t{0xFFFFFFFF}));
  return hn::IfThenZeroElse(hn::RebindMask(Tag<double>(), hn::Lt(word, hn::Set(d, std::uint64_t{least}))),
                            hn::Mul(weight, scale));
}

/// Applies dropout to the keys of a block that share a counter, for VECTORS vectors of rows.
template <typename T, int VECTORS>
HWY_INLINE void drop_four(const RowPhilox<T>& philox, std::uint32_t group, int vector, const int (&row)[4],
                          std::uint32_t least, Vector<T> scale, T* s) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>, each = N / RowPhilox<T>::N;
  Words w[4][VECTORS * each];
  philox.template words<VECTORS * each>(group, vector * N, w);
  ATTN_UNROLL_FOR (int n = 0; n < 4; ++n) {
    if (row[n] < 0) continue;
    ATTN_UNROLL_FOR (int v = 0; v < VECTORS; ++v) {
      T* place = s + row[n] * R + (vector + v) * N;
      Words of_vector[each];
      ATTN_UNROLL_FOR (int e = 0; e < each; ++e) of_vector[e] = w[n][v * each + e];
      hn::Store(kept(hn::Load(d, place), scale, of_vector, least), d, place);
    }
  }
}

template <typename T>
HWY_NOINLINE void drop_by_counter(const AttentionProblem& problem, const Task& tile, std::int64_t first,
                                  const ActiveRanges& ranges, T* s) {
  // several vectors at a time hide the latency of the products: four vectors of counters, two with 16 registers
  constexpr int side_by_side = (registers == 16 ? 2 : 4) * RowPhilox<T>::N / lanes<T>;
  const RowPhilox<T> philox(problem, tile);
  const auto scale = hn::Set(Tag<T>(), static_cast<T>(problem.keep_scale));
  const auto least = static_cast<std::uint32_t>(problem.drop_least);
  const std::int64_t position = problem.key_position(tile, first);
  for (int g = 0; g < ranges.count; ++g)
    for (std::int64_t group = (position + ranges.key[g]) / 4; group * 4 < position + ranges.key[g + 1]; ++group) {
      int row[4];
      for (int n = 0; n < 4; ++n) {
        const auto r = static_cast<int>(group * 4 + n - position);
        row[n] = r >= ranges.key[g] && r < ranges.key[g + 1] ? r : -1;
      }
      int v = ranges.first[g];
      for (; v + side_by_side <= ranges.last[g]; v += side_by_side)
        drop_four<T, side_by_side>(philox, static_cast<std::uint32_t>(group), v, row, least, scale, s);
      for (; v < ranges.last[g]; ++v)
        drop_four<T, 1>(philox, static_cast<std::uint32_t>(group), v, row, least, scale, s);
    }
}

/// Computes a word for each key of a block, with one bit per row: whether dropout keeps the weight. The backward pass
/// needs these bits twice.
HWY_NOINLINE inline void kept_by_counter(const AttentionProblem& problem, const Task& tile, std::int64_t first,
                                         int keys, Word* kept) {
  using Rows = RowPhilox<float>;  // 64 rows, as in f32, whatever the compute type is
  const Tag64 d;
  const Rows philox(problem, tile);
  const auto least = hn::Set(d, problem.drop_least), word = hn::Set(d, std::uint64_t{0xFFFFFFFF});
  const std::int64_t position = problem.key_position(tile, first);
  for (int r = 0; r < keys; ++r) kept[r] = ~Word{0};
  for (std::int64_t group = position / 4; group * 4 < position + keys; ++group)
    // the loop is small, so that the processor computes the words of the next rows at the same time
    for (int at = 0; at < tile.rows; at += Rows::N) {
      Words w[4][1];
      philox.words<1>(static_cast<std::uint32_t>(group), at, w);
      for (int n = 0; n < 4; ++n) {
        const std::int64_t r = group * 4 + n - position;
        if (r < 0 || r >= keys) continue;
        std::uint8_t bits[8] = {};
        hn::StoreMaskBits(d, hn::Lt(hn::And(w[n][0], word), least), bits);
        kept[r] &= ~(Word{bits[0]} << at);
      }
    }
}

/// Computes one word per key: the rows whose weights dropout keeps, read from Task::keep.
inline void kept_words(const Task& tile, std::int64_t first, int keys, Word* kept) {
  for (std::int64_t i = 0; i < 64; ++i)
    kept[i] = i < tile.rows
                  ? bits_of_bytes(tile.keep + (tile.row + i - tile.first_row) * tile.keep_stride + first, 1, true, keys)
                  : 0;
  transpose_bits(kept);
}

/// Computes those bits by counter, or reads them from Task::keep.
HWY_INLINE void kept_rows(const AttentionProblem& problem, const Task& tile, std::int64_t first, int keys, Word* kept) {
  if (tile.keep == nullptr) kept_by_counter(problem, tile, first, keys, kept);
  else kept_words(tile, first, keys, kept);
}

/// Applies dropout by the bytes of Task::keep.
template <typename T>
HWY_NOINLINE void drop_by_bytes(const AttentionProblem& problem, const Task& tile, std::int64_t first,
                                const ActiveRanges& ranges, T* s) {
  const Tag<T> d;
  constexpr int R = query_tile_rows<T>, N = lanes<T>;
  const auto scale = hn::Set(d, static_cast<T>(problem.keep_scale));
  const int keys = ranges.key[ranges.count];
  for (int part = 0; part < keys; part += 64) {
    const int end = part + 64 < keys ? part + 64 : keys;
    alignas(64) Word kept_rows[64];
    kept_words(tile, first + part, end - part, kept_rows);
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g] > part ? ranges.key[g] : part; r < end && r < ranges.key[g + 1]; ++r)
        for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
          T* place = s + r * R + v * N;
          hn::Store(hn::IfThenElseZero(lanes_of<T>(kept_rows[r - part], v), hn::Mul(hn::Load(d, place), scale)), d,
                    place);
        }
  }
}

/// Applies dropout after the sum was computed: the weights of keys first ... at `s` are scaled or become 0.
template <typename T>
HWY_INLINE void drop_block(const AttentionProblem& problem, const Task& tile, std::int64_t first,
                           const ActiveRanges& ranges, T* s) {
  if (tile.keep == nullptr) drop_by_counter(problem, tile, first, ranges, s);
  else drop_by_bytes(problem, tile, first, ranges, s);
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
