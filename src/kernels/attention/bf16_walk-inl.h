// src/kernels/attention/bf16_walk-inl.h: one strip of bf16 rows on its way over the keys, in blocks of 256.
//  As walk-inl.h, but both products take pairs: (2d, 2d + 1) of a row for the scores, keys (2j, 2j + 1) for the output,
// so K is read as it lies, V's rows are interleaved two by two for the block, and weights are rounded to bf16 before
// they are summed.
#if defined(ATTN_BF16_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_WALK_INL_H
#undef ATTN_BF16_WALK_INL_H
#else
#define ATTN_BF16_WALK_INL_H
#endif

#include "kernels/attention/amx_tiles-inl.h"
#include "kernels/attention/bf16_few_bytes-inl.h"
#include "kernels/attention/bf16_few_rows-inl.h"
#include "kernels/attention/bf16_strip-inl.h"
#include "kernels/attention/bf16_tiles-inl.h"
#include "kernels/attention/bf16_weights-inl.h"
#include "kernels/attention/walk-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Words (low, high) from two rows of bf16.
HWY_INLINE void interleave_rows(const std::uint16_t* low, const std::uint16_t* high, std::int64_t count,
                                std::uint32_t* to) {
  for (std::int64_t c = 0; c < count; c += 16)
    _mm512_store_si512(to + c, words_of_rows(low + c, high + c, first_lanes(count - c)));
}

class Bf16Walk : public Walk<float, std::uint16_t> {
 public:
  using Blocks = Bf16Walk;
  static constexpr int block_keys = bf16_key_block;
  Bf16Strip wide;
  std::int64_t pairs;
  bool tiles = false;  // products by tile registers, which TiledBf16Walk has shaped
  // how, and how for the values of few rows: a caller's callable may leave the registers with other shapes, or none
  const Tiles *shape = nullptr, *few_shape = nullptr;
  // one row only: V rows that it does not see are taken as 0, so that NaN and inf in them are silent
  bool silence = false;
  bool silent[block_keys];  // which, of the block: weights take the place of the scores
  bool by_bytes = false;    // the block's keys and values are read as bytes
  BlockScales scales;

  /// `registers_of_bytes`: whether few rows may read 8 bits in registers.
  Bf16Walk(const AttentionProblem& p, const LaneMap& lane_map, void* scratch, bool registers_of_bytes = true)
      : Walk(p, lane_map, Bf16Strip(scratch, p).rest, 0, Bf16Strip::value_words(p.value_dim)), wide(scratch, p),
        pairs(Bf16Strip::pairs(p.dim)) {
    scales.there = k.scales != nullptr;
    std::memset(wide.zeros, 0, sizeof(std::uint16_t) * static_cast<std::size_t>(p.value_dim));
    spread_next(few ? 4 : (block_keys + p.value_dim) / tile_keys(4, registers), block_keys);
    few_bytes =
        registers_of_bytes && few && in_byte_tiles(p, Element::sm8, p.keys_begin(map.batch)) && looks_up_bytes();
    if (few_bytes) rows_out = RowOutput<float>(strip.block, p.value_dim);  // no column is read past a row
  }
  static std::size_t scratch_bytes(const AttentionProblem& p) {
    return Bf16Strip::bytes(p) + ScoreVectors<float>::bytes(p);
  }
  static void begin_task(const AttentionProblem& p, std::int64_t rows, void* scratch) {
    std::uint8_t* const ready = Bf16Strip(scratch, p).ready;
    std::memset(ready, 0, 2 * Bf16Strip::most_blocks);
    ready[2 * Bf16Strip::most_blocks] =
        of_8_bits(p.k.element) || (p.copy_rows && rows >= least_copying_strips * bf16_rows);
  }

  HWY_NOINLINE void load_queries() {
    const bool rows_alone = few_bytes && !silence;  // nobody reads them as lanes
    std::uint32_t* const queries = rows_alone ? wide.few_queries : wide.q;
    const std::int64_t width = rows_alone ? few_rows : bf16_rows;
    if (map.count() < vectors * 16 && !rows_alone)  // lanes without a row
      for (std::int64_t c = 0; c < pairs; ++c)
        _mm512_store_si512(wide.q + c * bf16_rows + (vectors - 1) * 16, _mm512_setzero_si512());
    map.for_each_piece(problem.q_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start,
                                             std::int64_t stride) ATTN_BF16_ATTR {
      const auto* const q = static_cast<const std::uint16_t*>(problem.q) + start;
      std::uint32_t* const to = queries + first;
      const std::int64_t whole = stride % 2 == 0 ? problem.dim / 2 : 0;
      turn(reinterpret_cast<const float*>(q), stride / 2, rows, whole, reinterpret_cast<float*>(to), width);
      // what words do not reach: an odd last element, or all of it at an odd stride
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t c = whole; c < pairs; ++c) {
          const std::uint16_t* const pair = q + i * stride + 2 * c;
          to[c * width + i] = pair[0] | (2 * c + 1 < problem.dim ? std::uint32_t{pair[1]} << 16 : 0);
        }
    });
    if (!few) return;
    if (!keys_in_lanes) clear_scores(wide.s, block_keys);
    FewBlock<float, block_keys>(strip).clear(block_keys / 2);
    if (tiles || rows_alone) return;
    for (std::int64_t c = 0; c < pairs; ++c)
      std::memcpy(wide.few_queries + c * few_rows, wide.q + c * bf16_rows, few_rows * sizeof(std::uint32_t));
  }

  /// Where a block's keys or pairs of values are kept; the last place is for those that do not stay.
  std::int64_t place_of(std::int64_t first) const {
    const std::int64_t last = Bf16Strip::kept_blocks(problem) - 1,
                       block = (first - problem.keys_begin(map.batch)) / block_keys;
    return block < last ? block : last;
  }
  bool stays(std::int64_t place) const { return place < Bf16Strip::kept_blocks(problem) - 1; }

  /// K's rows as words; copied where the last pair would reach past the row, they are of 8 bits, or the task's strips
  /// share the copies.
  HWY_NOINLINE void key_rows(std::int64_t first, int keys, const std::uint32_t** rows) {
    const std::int64_t place = place_of(first);
    const bool keeps = wide.ready[2 * Bf16Strip::most_blocks] != 0 && stays(place);
    if (problem.dim % 2 == 0 && !keeps && k.scales == nullptr) return row_pointers(k, first, keys, rows);
    std::uint32_t* const to = keeps ? wide.k + place * block_keys * pairs : spare_keys();
    for (int r = 0; r < keys; ++r) rows[r] = to + r * pairs;
    if (keeps && wide.ready[place] != 0) return;
    wide.ready[place] = keeps;
    copy_keys(first, keys, to);
  }
  /// The place of those that do not stay.
  std::uint32_t* spare_keys() const { return wide.k + (Bf16Strip::key_places(problem) - 1) * block_keys * pairs; }
  HWY_NOINLINE void copy_keys(std::int64_t first, int keys, std::uint32_t* to) const {
    if (problem.dim % 2 != 0)
      for (int r = 0; r < keys; ++r) to[r * pairs + pairs - 1] = 0;
    if (scales.there)
      return numbers_of_rows(k, {first, keys, walk_end}, problem.dim, reinterpret_cast<std::uint16_t*>(to), 2 * pairs);
    const std::uint16_t* rows[block_keys];
    row_pointers(k, first, keys, rows);
    for (int r = 0; r < keys; ++r) std::memcpy(to + r * pairs, rows[r], 2 * static_cast<std::size_t>(problem.dim));
  }

  /// What the row does not see of the block, by the mask (it may have left a key without a score) or by its scores.
  void note_silent(const float* s, int stride, int keys, const Word* visible) {
    for (int r = 0; silence && r < keys; ++r)
      silent[r] = (visible && visible[r] % 2 == 0) || s[r * stride] == -std::numeric_limits<float>::infinity();
  }

  /// V's rows, an even number of them: one of zeros for a row that does not exist or is silenced.
  HWY_NOINLINE void value_rows(std::int64_t first, int keys, const std::uint16_t** rows) const {
    const auto* zeros = reinterpret_cast<const std::uint16_t*>(wide.zeros);
    if (scales.there) {
      const std::int64_t stride = Bf16Strip::value_words(problem.value_dim);
      auto* const copies = reinterpret_cast<std::uint16_t*>(wide.numbers);
      numbers_of_rows(v, {first, keys, walk_end}, problem.value_dim, copies, stride);
      for (int r = 0; r < keys; ++r) rows[r] = copies + r * stride;
    } else {
      row_pointers(v, first, keys, rows);
    }
    for (int r = 0; silence && r < keys; ++r)
      if (silent[r]) rows[r] = zeros;
    for (const int unit = tiles ? tile_items : 2; keys % unit != 0; ++keys) rows[keys] = zeros;
  }

  /// V's rows two by two, in tiles where products are by tiles, kept for the strips that follow.
  const std::uint32_t* value_pairs(std::int64_t first, int keys) {
    const std::int64_t words = Bf16Strip::value_words(problem.value_dim), place = place_of(first);
    std::uint32_t* const to = wide.v + place * (block_keys / 2) * words;
    std::uint8_t& ready = wide.ready[Bf16Strip::most_blocks + place];
    if (ready != 0) return to;
    ready = stays(place) && !silence;
    const std::uint16_t* rows[block_keys];
    value_rows(first, keys, rows);
    if (tiles)
      for (int r = 0; r < keys; r += tile_items)
        turn_values(rows + r, problem.value_dim, words, wide.paired, to + r / 2 * words);
    else
      for (int r = 0; r < keys; r += 2) interleave_rows(rows[r], rows[r + 1], problem.value_dim, to + r / 2 * words);
    return to;
  }

  /// Weights rounded to bf16, the rounded ones summed, pairs stored: `keys` rows of V vectors. `keep`: the others too,
  /// for dropout.
  template <int V>
  HWY_INLINE void weigh_pairs(int key, int keys, int vector, bool keep) {
    const int at = vector * 16;
    float* s = wide.s + key * bf16_rows + at;
    std::uint32_t* p = wide.p + key / 2 * bf16_rows + at;
    __m512 reference[V], sum[V];
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) reference[v] = _mm512_load_ps(strip.reference + at + v * 16);
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) sum[v] = _mm512_load_ps(strip.sum + at + v * 16);
    const auto pair = [&](int v, __m512 low, __m512 high) ATTN_BF16_ATTR {
      const __m512i words = bf16_pairs(low, high);
      sum[v] = dot_pair(sum[v], words, _mm512_set1_epi32(0x3F803F80));  // times (1, 1)
      _mm512_store_si512(p + v * 16, words);
    };
    const auto weight = [&](int v, float* score) ATTN_BF16_ATTR {
      const __m512 w = bf16_weight(_mm512_load_ps(score), reference[v]);
      if (keep) _mm512_store_ps(score, w);
      return w;
    };
    int r = 0;
    for (; r + 2 <= keys; r += 2, s += 2 * bf16_rows, p += bf16_rows)
      ATTN_UNROLL_FOR (int v = 0; v < V; ++v) pair(v, weight(v, s + v * 16), weight(v, s + bf16_rows + v * 16));
    if (r < keys)
      ATTN_UNROLL_FOR (int v = 0; v < V; ++v) pair(v, weight(v, s + v * 16), _mm512_setzero_ps());
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) _mm512_store_ps(strip.sum + at + v * 16, sum[v]);
  }

  /// Weights that were not rounded yet, dropped or times the scales of their values; then the pairs again: the sums
  /// have the weights before it.
  void drop_or_scale(std::int64_t first, const Groups& groups, bool dropout) {
    if (dropout) drop_block(problem, map, first, groups, wide.s);
    for (int g = 0; g < groups.count; ++g)
      for (int r = groups.key[g]; r < groups.key[g + 1]; r += 2)
        for (int v = groups.first[g]; v < groups.last[g]; ++v) {
          const auto weight = [&](int key) ATTN_BF16_ATTR {
            if (key >= groups.key[g + 1]) return _mm512_setzero_ps();
            const __m512 w = _mm512_load_ps(wide.s + key * bf16_rows + v * 16);
            return scales.there ? _mm512_mul_ps(w, _mm512_set1_ps(scales.value[key])) : w;
          };
          _mm512_store_si512(wide.p + r / 2 * bf16_rows + v * 16, bf16_pairs(weight(r), weight(r + 1)));
        }
  }

  void weigh(const Groups& groups, bool keep) {
    raise_maximum(strip, vectors);
    for (int g = 0; g < groups.count; ++g)
      for_each_tile(groups.first[g], groups.last[g], [&]<int V>(int v) ATTN_BF16_ATTR {
        weigh_pairs<V>(groups.key[g], groups.key[g + 1] - groups.key[g], v, keep);
      });
    fold_sums(strip, vectors);
  }

  /// Softcap, bias and hiding, 64 keys at a time.
  void modify(std::int64_t first, int keys, const Word* visible, const Groups& groups) {
    restart_maximum(strip);
    for (int part = 0; part < keys; part += key_block) {
      const int end = part + key_block < keys ? part + key_block : keys;
      Groups inside;
      for (int g = 0; g < groups.count; ++g) {
        const int begin = groups.key[g] > part ? groups.key[g] : part,
                  stop = groups.key[g + 1] < end ? groups.key[g + 1] : end;
        if (begin >= stop) continue;
        inside.key[inside.count] = begin - part;
        inside.key[inside.count + 1] = stop - part;
        inside.first[inside.count] = groups.first[g];
        inside.last[inside.count] = groups.last[g];
        inside.whole[inside.count] = 0;
        ++inside.count;
      }
      Strip<float> view = strip;
      view.s = wide.s + part * bf16_rows;
      modify_block(problem, map, first + part, end - part, visible ? visible + part : nullptr, inside, view, score_mod);
    }
    // it may have multiplied bf16 itself; no register is in use here
    if (tiles && problem.score_callback.call != nullptr) shape->begin();
  }

  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const std::uint32_t* rows[bf16_key_block];
    TileAhead ahead{.next = &next, .biases = {}, .next_lines = next_lines};
    strip.ahead = !few && !tiles && next.lines() > 0 ? &ahead : nullptr;
    const std::int64_t burst = strip.ahead ? 0 : next_lines;
    next.fetch(burst);
    by_bytes = few_bytes && !silence;
    if (scales.there && !by_bytes) {
      ask_for_scales(v, first, first + keys);
      scales_of_rows(k, first, keys, scales.key);
    }
    if (!by_bytes) key_rows(first, keys, rows);
    const Groups groups = visible ? Groups::trimmed(visible, keys, vectors, 16) : Groups::all(keys, vectors);
    ask_ahead(first, keys, groups);
    for (int x = 0; x < vectors; ++x) _mm512_store_ps(strip.alpha + x * 16, _mm512_load_ps(strip.m + x * 16));
    const bool modified = has_modifiers(problem);
    FewBlock<float, block_keys> few_block(strip);
    if (keys_in_lanes && groups.gaps) few_block.hide(static_cast<int>(map.count()));
    for (int g = 0; g < groups.count; ++g)
      if (by_bytes) score_bytes(groups.range(g, nullptr));
      else
        for_each_slice(groups.range(g, modified ? nullptr : visible),
                       [&](const ScoreRange& range) ATTN_BF16_ATTR { score(rows, range); });
    if (by_bytes || (keys_in_lanes && tiles))
      finish_few(of_block(rows, few_block.s), groups, modified ? nullptr : visible);
    next.fetch(burst);
    if (keys_in_lanes) {
      note_silent(few_block.s, 1, keys, visible);
      weigh_few(strip, few_block, static_cast<int>(map.count()), groups.begin[0], groups.end[0], wide.p, k_ahead,
                scales.there);
      if (scales.there && !by_bytes) {
        scales.load_values(v, first, keys, silence ? silent : nullptr);
        scale_few(few_block, static_cast<int>(map.count()), groups.begin[0], groups.end[0], ScalesBy16(scales.value).at,
                  wide.p);
      }
      FewSum sum{reinterpret_cast<const std::uint32_t*>(few_block.p) + groups.begin[0] / 2 * few_rows, strip.sum};
      if (tiles) sum.make((groups.end[0] + 1) / 2 - groups.begin[0] / 2);
      tiles ? fold_few_by_tiles(first, keys, groups, wide.p)
            : fold_few(first, keys, groups, {wide.p, 1, block_keys / 2}, sum);
      return fold_sums(strip, 1);
    }
    if (few && !tiles) few_block.to_lanes(wide.s, static_cast<int>(map.count()), 0, keys);
    if (modified) modify(first, keys, visible, groups);
    if (kept_scores.wanted()) kept_scores.keep(first, groups, vectors, wide.s);
    next.fetch(burst);
    const bool dropout = problem.drops() || problem.keep != nullptr;
    note_silent(wide.s, bf16_rows, keys, visible);
    scales.load_values(v, first, keys, silence ? silent : nullptr);
    weigh(groups, dropout || scales.there);
    if (dropout || scales.there) drop_or_scale(first, groups, dropout);
    next.fetch(burst);
    if (groups.gaps) clear_gaps(groups, wide.p, 2);
    if (tiles) fill_units(groups);
    if (!few) return fold_pairs(groups, value_pairs(first, keys));
    if (tiles) {
      const int pair = groups.begin[0] / tile_items * tile_pairs,
                end = (groups.end[0] + tile_items - 1) / tile_items * tile_pairs;
      turn(reinterpret_cast<const float*>(wide.p + pair * bf16_rows), std::int64_t{bf16_rows}, std::int64_t{end - pair},
           std::int64_t{tile_rows}, reinterpret_cast<float*>(wide.tile_weights + pair), std::int64_t{block_keys / 2});
    }
    tiles ? fold_few_by_tiles(first, keys, groups, wide.tile_weights)
          : fold_few(first, keys, groups, {wide.p, bf16_rows, 1}, {});
  }

  Bf16Scores of_block(const std::uint32_t* const* rows, float* s) const {
    return {wide.q, rows, pairs, static_cast<float>(problem.scale), s, strip.alpha, strip.ahead, scales.of_keys()};
  }

  void score(const std::uint32_t* const* rows, const ScoreRange& range) {
    const Bf16Scores scores = of_block(rows, wide.s);
    const int count = static_cast<int>(map.count());
    const FewBlock<float, block_keys> few_block(strip);
    if (keys_in_lanes && tiles)
      return tiled_few_scores(of_block(rows, few_block.s), range.key, range.end, count, k_ahead, wide.tile_rows_copy);
    if (!few || tiles) {
      for_each_tile(range.first, range.last, [&]<int V>(int x) ATTN_BF16_ATTR {
        tiles ? tiled_score_columns<V>(scores, range, x, wide.tile_rows_copy) : bf16_score_columns<V>(scores, range, x);
      });
      return;
    }
    const FewScores<float> to{few_block.s, block_keys, strip.alpha};
    const auto* words = reinterpret_cast<const float* const*>(rows);
    for_each_few_keys(
        words, range.key, range.end,
        [&](int key, int vectors_of_keys) ATTN_BF16_ATTR {
          few_scores(to, words + key, key, vectors_of_keys, count,
                     Bf16FewScoresTile{pairs, scores.scale, wide.few_queries, &k_ahead, this->scales.of_keys(key)});
        },
        [&](int key, int end) ATTN_BF16_ATTR { score_in_lanes(scores, range, key, end); });
    few_maxima(to, count, range.key, range.end, range.of_vector(0));
  }
  void score_in_lanes(const Bf16Scores& scores, const ScoreRange& range, int key, int end) {
    bf16_score_columns<1>(scores, {key, end, 0, 1, range.visible, range.whole}, 0);
    FewBlock<float, block_keys>(strip).from_lanes(wide.s, static_cast<int>(map.count()), key, end);
  }

  /// Sums of products with keys of 8 bits.
  void score_bytes(const ScoreRange& range) {
    const FewScores<float> to{FewBlock<float, block_keys>(strip).s, block_keys, strip.alpha};
    for_each_byte_keys(k_groups, range.key, range.end, block_keys,
                       [&](int key, int vectors_of_keys, const ByteKeys& found) ATTN_BF16_ATTR {
                         k_groups.use<true>(key, std::min(key + 16 * vectors_of_keys, range.end));
                         few_scores<byte_vectors>(
                             to, found, 0, key, vectors_of_keys, static_cast<int>(map.count()),
                             Bf16FewScoresByteTile{wide.few_queries, problem.dim, found, key, k_groups});
                       });
  }
  void finish_few(const Bf16Scores& scores_of_block, const Groups& groups, const Word* visible) {
    const ScalesBy16 copied(scales.key);
    const float* const* const of_keys = by_bytes ? k_groups.scales() : scales.there ? copied.at : nullptr;
    finish_few_scores(scores_of_block, of_keys, groups.begin[0], groups.end[0], static_cast<int>(map.count()), visible,
                      tiles ? &k_ahead : nullptr);
  }

  /// The block's values to few rows, in parts, after which more memory may be asked for; `sum` of their weights
  /// meanwhile.
  void fold_few(std::int64_t first, int keys, const Groups& groups, const FewPairs& p, FewSum sum) {
    if (by_bytes) return fold_bytes(groups, p, sum);
    constexpr int part_pairs = few_part / 2;
    const std::uint16_t* rows[block_keys];
    value_rows(first, keys, rows);
    const int begin = groups.begin[0] / 2, end = (groups.end[0] + 1) / 2;
    for (int pair = begin; pair < end; pair += part_pairs) {
      const int last = pair + part_pairs < end ? pair + part_pairs : end;
      v_ahead.use(2 * last < keys ? 2 * (last - pair) : keys - 2 * pair);
      rows_out.for_each(static_cast<int>(map.count()),
                        Bf16FewRowsTile{rows + 2 * pair, problem.value_dim, last - pair, p.from(pair), sum,
                                        fold_few_part(pair == begin, last == end)});
      if (sum.p) sum.p += (last - pair) * few_rows;
    }
    fresh = false;
  }

  void fold_bytes(const Groups& groups, const FewPairs& p, FewSum sum) {
    const int begin = groups.begin[0] / 2 * 2, end = groups.end[0], rows = static_cast<int>(map.count());
    for (int key = begin; key < end; key += key_block) {
      const int last = key + key_block < end ? key + key_block : end;
      v_groups.use<true>(key, last);
      if (keys_in_lanes) scale_few(FewBlock<float, block_keys>(strip), rows, key, last, v_groups.scales(), wide.p);
      rows_out.for_each(rows, Bf16FewRowsByteTile{ByteColumns(v), v_groups, key, last, p.from(key / 2), sum,
                                                  fold_few_part(key == begin, last == end)});
      if (sum.p) sum.p += (last - key) / 2 * few_rows;
    }
    fresh = false;
  }

  /// The block's values to few rows by tiles, queries as rows: 32 keys at a time, two by two as they come from memory.
  /// weights [16][128].
  HWY_NOINLINE void fold_few_by_tiles(std::int64_t first, int keys, const Groups& groups,
                                      const std::uint32_t* weights) {
    const std::int64_t words = Bf16Strip::value_words(problem.value_dim);
    const std::uint16_t* rows[block_keys];
    value_rows(first, keys, rows);
    const int begin = groups.begin[0] / tile_items * tile_items, end = groups.end[0];
    few_shape->begin();
    for (int key = begin; key < end; key += tile_items) {
      v_ahead.use(keys - key < tile_items ? keys - key : tile_items);
      pair_rows_in_halves(rows + key, problem.value_dim, words, v_ahead, wide.v);
      tiled_few_outputs({weights + key / 2, wide.v, words, problem.value_dim, static_cast<int>(map.count()),
                         key == begin, key + tile_items >= end, fresh},
                        strip.alpha, v_ahead, reinterpret_cast<float*>(wide.paired), strip.block);
    }
    shape->begin();
    fresh = false;
  }

  /// Weight 0 for the keys that make a vector's first and last unit of 32 whole.
  void fill_units(const Groups& groups) const {
    const auto fill = [&](int v, int key, int end) {
      for (int pair = (key + 1) / 2; pair < end / 2; ++pair)
        _mm512_store_si512(wide.p + pair * bf16_rows + v * 16, _mm512_setzero_si512());
    };
    for (int v = 0; v < vectors; ++v) {
      fill(v, groups.begin[v] / tile_items * tile_items, groups.begin[v]);
      fill(v, groups.end[v], (groups.end[v] + tile_items - 1) / tile_items * tile_items);
    }
  }

  void fold_pairs(const Groups& groups, const std::uint32_t* v_pairs) {
    const std::int64_t words = Bf16Strip::value_words(problem.value_dim);
    fold_ranges(groups, [&]<Fold FOLD>(int begin, int end, int first, int last) {
      const int unit = begin / tile_items, units = (end + tile_items - 1) / tile_items - unit;
      for_each_tile(first, last, [&]<int V>(int x) ATTN_BF16_ATTR {
        if (tiles)
          return tiled_output_columns<V, FOLD>(wide.p + unit * tile_pairs * bf16_rows + x * 16,
                                               v_pairs + unit * tile_pairs * words, words, units, problem.value_dim,
                                               strip.o + x * 16, strip.alpha + x * 16);
        bf16_output_columns<V, FOLD>(wide.p + begin / 2 * bf16_rows + x * 16, v_pairs + begin / 2 * words, words,
                                     (end - begin + 1) / 2, problem.value_dim, strip.o + x * 16, strip.alpha + x * 16,
                                     strip.ahead);
      });
    });
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
