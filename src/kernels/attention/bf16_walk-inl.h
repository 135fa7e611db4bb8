// src/kernels/attention/bf16_walk-inl.h: one strip of bf16 rows on its way over the keys, in blocks of 256.
//
// As walk-inl.h, but both products take pairs: (2d, 2d + 1) of a row for the scores, keys (2j, 2j + 1) for the output, so K is read
// as it lies, V's rows are interleaved two by two for the block, and weights are rounded to bf16 before they are summed.
#if defined(ATTN_BF16_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_WALK_INL_H
#undef ATTN_BF16_WALK_INL_H
#else
#define ATTN_BF16_WALK_INL_H
#endif

#include "kernels/attention/bf16_tiles-inl.h"
#include "kernels/attention/walk-inl.h"

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
#pragma GCC target("avx512bf16")
namespace attn::kernels::HWY_NAMESPACE {

/// Beyond what a strip of f32 has: queries, weights, keys and values as pairs.
struct Bf16Strip {
  static constexpr int R = bf16_rows, keys = bf16_key_block;
  std::uint32_t* q;  // [ceil(D / 2)][R]
  float* s;          // [256][R]
  std::uint32_t* p;  // [128][R]
  std::uint32_t* v;  // [128][value words]
  std::uint32_t* k;  // [256][ceil(D / 2)], used where D is odd
  void* rest;        // a Strip<float>

  static std::int64_t pairs(std::int64_t dim) { return (dim + 1) / 2; }
  static std::int64_t value_words(std::int64_t value_dim) { return (value_dim + 15) / 16 * 16; }
  static std::size_t bytes(std::int64_t dim, std::int64_t value_dim) {
    const std::int64_t words = (pairs(dim) + 15) / 16 * 16 * R + keys * R + keys / 2 * R + keys / 2 * value_words(value_dim) + (dim % 2) * keys * pairs(dim);
    return 4 * static_cast<std::size_t>((words + 15) / 16 * 16) + Strip<float>::bytes(0, value_dim);
  }
  Bf16Strip(void* scratch, std::int64_t dim, std::int64_t value_dim) {
    auto* next = static_cast<std::uint32_t*>(scratch);
    const auto take = [&next](std::int64_t words) {
      std::uint32_t* taken = next;
      next += (words + 15) / 16 * 16;
      return taken;
    };
    q = take(pairs(dim) * R);
    s = reinterpret_cast<float*>(take(keys * R));
    p = take(keys / 2 * R);
    v = take(keys / 2 * value_words(value_dim));
    k = take((dim % 2) * keys * pairs(dim));
    rest = next;
  }
};

/// Words (low, high) from two rows of bf16; a row that does not exist counts as 0.
HWY_INLINE void interleave_rows(const std::uint16_t* low, const std::uint16_t* high, std::int64_t count, std::uint32_t* to) {
  for (std::int64_t c = 0; c < count; c += 16) {
    const __mmask16 mask = count - c >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (count - c)) - 1);
    const __m512i a = low ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, low + c)) : _mm512_setzero_si512();
    const __m512i b = high ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, high + c)) : _mm512_setzero_si512();
    _mm512_store_si512(to + c, _mm512_or_si512(a, _mm512_slli_epi32(b, 16)));
  }
}

class Bf16Walk : public Walk<float, std::uint16_t> {
 public:
  static constexpr int block_keys = bf16_key_block;
  Bf16Strip wide;
  std::int64_t pairs;
  bool silence = false;  // one row only: V rows that it does not see are taken as 0, so that NaN and inf in them are silent

  Bf16Walk(const AttentionProblem& p, const LaneMap& lane_map, void* scratch)
      : Walk(p, lane_map, Bf16Strip(scratch, p.dim, p.value_dim).rest, 0), wide(scratch, p.dim, p.value_dim), pairs(Bf16Strip::pairs(p.dim)) {}
  static std::size_t scratch_bytes(std::int64_t dim, std::int64_t value_dim) { return Bf16Strip::bytes(dim, value_dim); }

  void load_queries() {
    for (std::int64_t n = 0; n < map.heads; ++n) {
      const auto* q = static_cast<const std::uint16_t*>(problem.q) + map.batch * problem.q_stride[0] + (map.head + n) * problem.q_stride[1] +
                      map.row * problem.q_stride[2];
      std::uint32_t* to = wide.q + n * map.rows;
      const std::int64_t stride = problem.q_stride[2], whole = stride % 2 == 0 ? problem.dim / 2 : 0;
      turn(reinterpret_cast<const float*>(q), stride / 2, map.rows, whole, reinterpret_cast<float*>(to), std::int64_t{bf16_rows});
      for (std::int64_t i = 0; i < map.rows; ++i)  // what words do not reach: an odd last element, or all of it at an odd stride
        for (std::int64_t c = whole; c < pairs; ++c) {
          const std::uint16_t* pair = q + i * stride + 2 * c;
          to[c * bf16_rows + i] = pair[0] | (2 * c + 1 < problem.dim ? std::uint32_t{pair[1]} << 16 : 0);
        }
    }
    for (int lane = static_cast<int>(map.count()); lane < vectors * 16; ++lane)
      for (std::int64_t c = 0; c < pairs; ++c) wide.q[c * bf16_rows + lane] = 0;
  }

  /// K's rows as words; copied where the last pair would reach past the row.
  void key_rows(std::int64_t first, int keys, const std::uint32_t** rows) {
    for (int r = 0; r < keys; ++r) {
      const std::uint16_t* row = k_base + k.offset(first + r);
      if (problem.dim % 2 == 0) {
        rows[r] = reinterpret_cast<const std::uint32_t*>(row);
        continue;
      }
      std::uint32_t* copy = wide.k + r * pairs;
      std::memcpy(copy, row, 2 * static_cast<std::size_t>(problem.dim));
      copy[pairs - 1] &= 0xFFFF;
      rows[r] = copy;
    }
  }

  void value_rows(std::int64_t first, int keys) {
    const std::int64_t words = Bf16Strip::value_words(problem.value_dim);
    const auto row = [&](int r) -> const std::uint16_t* {
      if (r >= keys || (silence && wide.s[r * bf16_rows] == -std::numeric_limits<float>::infinity())) return nullptr;
      return v_base + v.offset(first + r);
    };
    for (int r = 0; r < keys; r += 2) interleave_rows(row(r), row(r + 1), problem.value_dim, wide.v + r / 2 * words);
  }

  /// Weights rounded to bf16, the rounded ones summed, pairs stored: `keys` rows of V vectors.
  template <int V>
  HWY_INLINE void weigh_pairs(int key, int keys, int vector) {
    const Tag<float> d;
    const int at = vector * 16;
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    hn::Vec<Tag<float>> reference[V];
    __m512 sum[V];
    ATTN_UNROLL for (int v = 0; v < V; ++v) reference[v] = hn::Load(d, strip.reference + at + v * 16);
    ATTN_UNROLL for (int v = 0; v < V; ++v) sum[v] = _mm512_load_ps(strip.sum + at + v * 16);
    for (int r = key; r < key + keys; r += 2) {
      const float* s = wide.s + r * bf16_rows + at;
      std::uint32_t* p = wide.p + r / 2 * bf16_rows + at;
      ATTN_UNROLL for (int v = 0; v < V; ++v) {
        const __m512 low = weight_of<float>(hn::Load(d, s + v * 16), reference[v]).raw;
        const __m512 high = r + 1 < key + keys ? weight_of<float>(hn::Load(d, s + bf16_rows + v * 16), reference[v]).raw : _mm512_setzero_ps();
        const __m512i words = _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
        sum[v] = _mm512_add_ps(sum[v], _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
        sum[v] = _mm512_add_ps(sum[v], _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)))));
        _mm512_store_si512(p + v * 16, words);
      }
    }
    ATTN_UNROLL for (int v = 0; v < V; ++v) _mm512_store_ps(strip.sum + at + v * 16, sum[v]);
  }

  void weigh(const Groups& groups) {
    raise_maximum(strip, vectors);
    for (int g = 0; g < groups.count; ++g)
      for_each_tile(groups.first[g], groups.last[g],
                    [&]<int V>(int v) HWY_ATTR { weigh_pairs<V>(groups.key[g], groups.key[g + 1] - groups.key[g], v); });
    fold_sums(strip, vectors);
  }

  /// Softcap, bias and hiding, 64 keys at a time.
  void modify(std::int64_t first, int keys, const Word* visible, const Groups& groups) {
    restart_maximum(strip);
    for (int part = 0; part < keys; part += key_block) {
      const int end = part + key_block < keys ? part + key_block : keys;
      Groups inside;
      for (int g = 0; g < groups.count; ++g) {
        const int begin = groups.key[g] > part ? groups.key[g] : part, stop = groups.key[g + 1] < end ? groups.key[g + 1] : end;
        if (begin >= stop) continue;
        inside.key[inside.count] = begin - part;
        inside.key[inside.count + 1] = stop - part;
        inside.first[inside.count] = groups.first[g];
        inside.last[inside.count] = groups.last[g];
        ++inside.count;
      }
      Strip<float> view = strip;
      view.s = wide.s + part * bf16_rows;
      modify_block(problem, map, first + part, end - part, visible ? visible + part : nullptr, inside, view);
    }
  }

  void block(std::int64_t first, int keys, const Word* visible) {
    const std::uint32_t* rows[bf16_key_block];
    key_rows(first, keys, rows);
    const Groups groups = visible ? Groups::trimmed(visible, keys, vectors, 16) : Groups::all(keys, vectors);
    for (int x = 0; x < vectors; ++x) _mm512_store_ps(strip.alpha + x * 16, _mm512_load_ps(strip.m + x * 16));
    for (int g = 0; g < groups.count; ++g) {
      const int key = groups.key[g], count = groups.key[g + 1] - key;
      const KeptMaximum<float> kept(strip, groups.first[g], groups.whole[g] > groups.first[g] ? groups.whole[g] : groups.first[g]);
      for_each_tile(groups.first[g], groups.last[g], [&]<int V>(int x) HWY_ATTR {
        bf16_score_columns<V>(wide.q + x * 16, rows + key, count, pairs, static_cast<float>(problem.scale), wide.s + key * bf16_rows + x * 16,
                              strip.alpha + x * 16);
      });
      kept.restore();
    }
    if (has_modifiers(problem)) {
      modify(first, keys, visible, groups);
    } else if (visible) {
      Strip<float> view = strip;
      view.s = wide.s;
      hide_partial(visible, groups, view);
    }
    value_rows(first, keys);
    weigh(groups);
    fold_pairs(groups);
  }

  template <Fold FOLD>
  void output(const Groups& groups, int g, float* o) {
    const std::int64_t words = Bf16Strip::value_words(problem.value_dim);
    const int key = groups.key[g], count = (groups.key[g + 1] - key + 1) / 2;
    for_each_tile(groups.first[g], groups.last[g], [&]<int V>(int x) HWY_ATTR {
      bf16_output_columns<V, FOLD>(wide.p + key / 2 * bf16_rows + x * 16, wide.v + key / 2 * words, words, count, problem.value_dim, o + x * 16,
                                   strip.alpha + x * 16);
    });
  }

  void fold_pairs(const Groups& groups) {
    const bool whole = groups.count == 1 && groups.first[0] == 0 && groups.last[0] == vectors;
    if (whole && fresh) {
      output<Fold::first>(groups, 0, strip.o);
    } else if (whole) {
      output<Fold::rescale>(groups, 0, strip.o);
    } else {
      float* target = fresh ? strip.o : strip.block;
      clear(target);
      for (int g = 0; g < groups.count; ++g) output<Fold::resume>(groups, g, target);
      if (!fresh) fold_block();
    }
    fresh = false;
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
