// src/kernels/attention/pass/bf16_forward_pass-inl.h: the forward pass of one query tile in bf16, in blocks of 256
// keys.
//  As forward_pass-inl.h, but both products take pairs: (2d, 2d + 1) of a row for the scores, keys (2j, 2j + 1) for the
// output, so K is read in place, V's rows are interleaved two by two for the block, and weights are rounded to bf16
// before they are summed.
#if defined(ATTN_BF16_FORWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_FORWARD_PASS_INL_H
#undef ATTN_BF16_FORWARD_PASS_INL_H
#else
#define ATTN_BF16_FORWARD_PASS_INL_H
#endif

#include "kernels/attention/tiles/amx_bf16-inl.h"
#include "kernels/attention/tiles/bf16_decode_int8-inl.h"
#include "kernels/attention/tiles/bf16_decode-inl.h"
#include "kernels/attention/pass/bf16_scratch-inl.h"
#include "kernels/attention/tiles/bf16_prefill-inl.h"
#include "kernels/attention/softmax/bf16_softmax-inl.h"
#include "kernels/attention/pass/forward_pass-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Interleaves two rows of bf16 to words (low, high).
HWY_INLINE void interleave_rows(const std::uint16_t* low, const std::uint16_t* high, std::int64_t count,
                                std::uint32_t* to) {
  for (std::int64_t c = 0; c < count; c += 16)
    _mm512_store_si512(to + c, words_of_rows(low + c, high + c, first_lanes(count - c)));
}

class Bf16ForwardPass : public ForwardPass<float, std::uint16_t> {
 public:
  using Blocks = Bf16ForwardPass;
  static constexpr int block_keys = bf16_kv_block;
  Bf16Scratch wide;
  std::int64_t pairs;
  bool uses_amx = false;  // products by AMX, whose tiles AmxForwardPass has configured
  // Tile configurations for prefill and for PV in decode; a caller's callable may change the current one.
  const AmxTiles *shape = nullptr, *decode_shape = nullptr;
  // For a single row: V rows that are masked for it count as 0, so that NaN and inf in them have no effect.
  bool mask_hidden_values = false;
  bool masked[block_keys];  // which keys of the block are masked, noted because weights overwrite the scores
  bool by_int8 = false;     // the block's keys and values are read as bytes
  BlockScales scales;

  /// `registers_of_bytes`: whether decode rows may read int8 in registers.
  Bf16ForwardPass(const AttentionProblem& p, const QueryTile& lane_map, void* memory, bool registers_of_bytes = true)
      : ForwardPass(p, lane_map, Bf16Scratch(memory, p).rest, 0, Bf16Scratch::value_words(p.value_dim)),
        wide(memory, p), pairs(Bf16Scratch::pairs(p.dim)) {
    scales.there = k.scales != nullptr;
    std::memset(wide.zeros, 0, sizeof(std::uint16_t) * static_cast<std::size_t>(p.value_dim));
    spread_next(decode ? 4 : (block_keys + p.value_dim) / tile_keys(4, registers), block_keys);
    decode_int8 = registers_of_bytes && decode &&
                  in_int8_tiles(p, Element::sign_magnitude8, p.keys_begin(tile.batch)) && has_int8_lut();
    if (decode_int8) rows_out = DecodeOutput<float>(scratch.block, p.value_dim);  // no column beyond a row is read
  }
  static std::size_t scratch_bytes(const AttentionProblem& p) {
    return Bf16Scratch::bytes(p) + ScoreVectors<float>::bytes(p);
  }
  static void begin_task(const AttentionProblem& p, std::int64_t rows, void* memory) {
    std::uint8_t* const ready = Bf16Scratch(memory, p).ready;
    std::memset(ready, 0, 2 * Bf16Scratch::most_blocks);
    ready[2 * Bf16Scratch::most_blocks] =
        of_8_bits(p.k.element) || (p.copy_rows && rows >= least_copying_tiles * bf16_rows);
  }

  HWY_NOINLINE void load_queries() {
    const bool rows_alone = decode_int8 && !mask_hidden_values;  // nobody reads them as lanes
    std::uint32_t* const queries = rows_alone ? wide.decode_queries : wide.q;
    const std::int64_t width = rows_alone ? max_decode_rows : bf16_rows;
    if (tile.count() < vectors * 16 && !rows_alone)  // lanes without a row
      for (std::int64_t c = 0; c < pairs; ++c)
        _mm512_store_si512(wide.q + c * bf16_rows + (vectors - 1) * 16, _mm512_setzero_si512());
    tile.for_each_piece(problem.q_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start,
                                              std::int64_t stride) ATTN_BF16_ATTR {
      const auto* const q = static_cast<const std::uint16_t*>(problem.q) + start;
      std::uint32_t* const to = queries + first;
      const std::int64_t whole = stride % 2 == 0 ? problem.dim / 2 : 0;
      transpose(reinterpret_cast<const float*>(q), stride / 2, rows, whole, reinterpret_cast<float*>(to), width);
      // elements outside of whole words: an odd last element, or all elements at an odd stride
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t c = whole; c < pairs; ++c) {
          const std::uint16_t* const pair = q + i * stride + 2 * c;
          to[c * width + i] = pair[0] | (2 * c + 1 < problem.dim ? std::uint32_t{pair[1]} << 16 : 0);
        }
    });
    if (!decode) return;
    if (!keys_in_lanes) clear_scores(wide.s, block_keys);
    DecodeScores<float, block_keys>(scratch).clear(block_keys / 2);
    if (uses_amx || rows_alone) return;
    for (std::int64_t c = 0; c < pairs; ++c)
      std::memcpy(wide.decode_queries + c * max_decode_rows, wide.q + c * bf16_rows,
                  max_decode_rows * sizeof(std::uint32_t));
  }

  /// Returns the cache slot of a block's keys or pairs of values; blocks that are not cached share the last slot.
  std::int64_t slot_of(std::int64_t first) const {
    const std::int64_t last = Bf16Scratch::cached_blocks(problem) - 1,
                       block = (first - problem.keys_begin(tile.batch)) / block_keys;
    return block < last ? block : last;
  }
  bool stays(std::int64_t place) const { return place < Bf16Scratch::cached_blocks(problem) - 1; }

  /// K's rows as words; copied where the last pair would reach past the row, they are of int8, or the task's query
  /// tiles share the copies.
  HWY_NOINLINE void key_rows(std::int64_t first, int keys, const std::uint32_t** rows) {
    const std::int64_t place = slot_of(first);
    const bool keeps = wide.ready[2 * Bf16Scratch::most_blocks] != 0 && stays(place);
    if (problem.dim % 2 == 0 && !keeps && k.scales == nullptr) return row_pointers(k, first, keys, rows);
    std::uint32_t* const to = keeps ? wide.k + place * block_keys * pairs : spare_keys();
    for (int r = 0; r < keys; ++r) rows[r] = to + r * pairs;
    if (keeps && wide.ready[place] != 0) return;
    wide.ready[place] = keeps;
    copy_keys(first, keys, to);
  }
  /// Returns the slot for blocks that are not cached.
  std::uint32_t* spare_keys() const { return wide.k + (Bf16Scratch::key_places(problem) - 1) * block_keys * pairs; }
  HWY_NOINLINE void copy_keys(std::int64_t first, int keys, std::uint32_t* to) const {
    if (problem.dim % 2 != 0)
      for (int r = 0; r < keys; ++r) to[r * pairs + pairs - 1] = 0;
    if (scales.there)
      return int8_rows_to_bf16(k, {first, keys, kv_end}, problem.dim, reinterpret_cast<std::uint16_t*>(to), 2 * pairs);
    const std::uint16_t* rows[block_keys];
    row_pointers(k, first, keys, rows);
    for (int r = 0; r < keys; ++r) std::memcpy(to + r * pairs, rows[r], 2 * static_cast<std::size_t>(problem.dim));
  }

  /// Notes which keys of the block are masked for the row, by the mask or by a score of -inf.
  void note_masked(const float* s, int stride, int keys, const Word* visible) {
    for (int r = 0; mask_hidden_values && r < keys; ++r)
      masked[r] = (visible && visible[r] % 2 == 0) || s[r * stride] == -std::numeric_limits<float>::infinity();
  }

  /// Returns an even number of V's rows; zeros for a row that is missing or masked.
  HWY_NOINLINE void value_rows(std::int64_t first, int keys, const std::uint16_t** rows) const {
    const auto* zeros = reinterpret_cast<const std::uint16_t*>(wide.zeros);
    if (scales.there) {
      const std::int64_t stride = Bf16Scratch::value_words(problem.value_dim);
      auto* const copies = reinterpret_cast<std::uint16_t*>(wide.numbers);
      int8_rows_to_bf16(v, {first, keys, kv_end}, problem.value_dim, copies, stride);
      for (int r = 0; r < keys; ++r) rows[r] = copies + r * stride;
    } else {
      row_pointers(v, first, keys, rows);
    }
    for (int r = 0; mask_hidden_values && r < keys; ++r)
      if (masked[r]) rows[r] = zeros;
    for (const int unit = uses_amx ? tile_items : 2; keys % unit != 0; ++keys) rows[keys] = zeros;
  }

  /// V's rows two by two, in the layout of AMX tiles where AMX is used; cached for the query tiles that follow.
  const std::uint32_t* value_pairs(std::int64_t first, int keys) {
    const std::int64_t words = Bf16Scratch::value_words(problem.value_dim), place = slot_of(first);
    std::uint32_t* const to = wide.v + place * (block_keys / 2) * words;
    std::uint8_t& ready = wide.ready[Bf16Scratch::most_blocks + place];
    if (ready != 0) return to;
    ready = stays(place) && !mask_hidden_values;
    const std::uint16_t* rows[block_keys];
    value_rows(first, keys, rows);
    if (uses_amx)
      for (int r = 0; r < keys; r += tile_items)
        transpose_values(rows + r, problem.value_dim, words, wide.paired, to + r / 2 * words);
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
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) reference[v] = _mm512_load_ps(scratch.reference + at + v * 16);
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) sum[v] = _mm512_load_ps(scratch.sum + at + v * 16);
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
    ATTN_UNROLL_FOR (int v = 0; v < V; ++v) _mm512_store_ps(scratch.sum + at + v * 16, sum[v]);
  }

  /// Applies dropout and the scales of int8 values to the weights before rounding, then makes the pairs again. The sums
  /// keep the weights from before.
  void drop_or_scale(std::int64_t first, const ActiveRanges& ranges, bool dropout) {
    if (dropout) drop_block(problem, tile, first, ranges, wide.s);
    for (int g = 0; g < ranges.count; ++g)
      for (int r = ranges.key[g]; r < ranges.key[g + 1]; r += 2)
        for (int v = ranges.first[g]; v < ranges.last[g]; ++v) {
          const auto weight = [&](int key) ATTN_BF16_ATTR {
            if (key >= ranges.key[g + 1]) return _mm512_setzero_ps();
            const __m512 w = _mm512_load_ps(wide.s + key * bf16_rows + v * 16);
            return scales.there ? _mm512_mul_ps(w, _mm512_set1_ps(scales.value[key])) : w;
          };
          _mm512_store_si512(wide.p + r / 2 * bf16_rows + v * 16, bf16_pairs(weight(r), weight(r + 1)));
        }
  }

  void weigh(const ActiveRanges& ranges, bool keep) {
    raise_maximum(scratch, vectors);
    for (int g = 0; g < ranges.count; ++g)
      for_each_tile(ranges.first[g], ranges.last[g], [&]<int V>(int v) ATTN_BF16_ATTR {
        weigh_pairs<V>(ranges.key[g], ranges.key[g + 1] - ranges.key[g], v, keep);
      });
    accumulate_sums(scratch, vectors);
  }

  /// Applies softcap, bias and mask, 64 keys at a time.
  void apply_modifiers(std::int64_t first, int keys, const Word* visible, const ActiveRanges& ranges) {
    restart_maximum(scratch);
    for (int part = 0; part < keys; part += kv_block) {
      const int end = part + kv_block < keys ? part + kv_block : keys;
      ActiveRanges inside;
      for (int g = 0; g < ranges.count; ++g) {
        const int begin = ranges.key[g] > part ? ranges.key[g] : part,
                  stop = ranges.key[g + 1] < end ? ranges.key[g + 1] : end;
        if (begin >= stop) continue;
        inside.key[inside.count] = begin - part;
        inside.key[inside.count + 1] = stop - part;
        inside.first[inside.count] = ranges.first[g];
        inside.last[inside.count] = ranges.last[g];
        inside.whole[inside.count] = 0;
        ++inside.count;
      }
      QueryTileScratch<float> view = scratch;
      view.s = wide.s + part * bf16_rows;
      apply_score_modifiers(problem, tile, first + part, end - part, visible ? visible + part : nullptr, inside, view,
                            score_mod);
    }
    // the callable may have used AMX itself; no tile register is in use here
    if (uses_amx && problem.score_callback.call != nullptr) shape->begin();
  }

  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const std::uint32_t* rows[bf16_kv_block];
    scratch.ahead = !decode && !uses_amx && prefetch.left() ? &prefetch : nullptr;
    const auto fetch = [&] {
      if (scratch.ahead == nullptr) prefetch.fetch();
    };
    fetch();
    by_int8 = decode_int8 && !mask_hidden_values;
    if (scales.there && !by_int8) {
      prefetch_scales(v, first, first + keys);
      scales_of_rows(k, first, keys, scales.key);
    }
    if (!by_int8) key_rows(first, keys, rows);
    const ActiveRanges ranges =
        visible ? ActiveRanges::trimmed(visible, keys, vectors, 16) : ActiveRanges::all(keys, vectors);
    prefetch_kv(first, keys, ranges);
    for (int x = 0; x < vectors; ++x) _mm512_store_ps(scratch.alpha + x * 16, _mm512_load_ps(scratch.m + x * 16));
    const bool modified = has_modifiers(problem);
    DecodeScores<float, block_keys> decode_scores(scratch);
    if (keys_in_lanes && ranges.gaps) decode_scores.mask(static_cast<int>(tile.count()));
    for (int g = 0; g < ranges.count; ++g)
      if (by_int8) score_int8(ranges.range(g, nullptr));
      else
        for_each_slice(ranges.range(g, modified ? nullptr : visible),
                       [&](const ScoreRange& range) ATTN_BF16_ATTR { score(rows, range); });
    if (by_int8 || (keys_in_lanes && uses_amx))
      finish_decode(of_block(rows, decode_scores.s), ranges, modified ? nullptr : visible);
    fetch();
    if (keys_in_lanes) {
      note_masked(decode_scores.s, 1, keys, visible);
      decode_softmax(scratch, decode_scores, static_cast<int>(tile.count()), ranges.begin[0], ranges.end[0], wide.p,
                     k_stream, scales.there);
      if (scales.there && !by_int8) {
        scales.load_values(v, first, keys, mask_hidden_values ? masked : nullptr);
        scale_decode_weights(decode_scores, static_cast<int>(tile.count()), ranges.begin[0], ranges.end[0],
                             ScalesBy16(scales.value).at, wide.p);
      }
      DecodeWeightSum sum{
          reinterpret_cast<const std::uint32_t*>(decode_scores.p) + ranges.begin[0] / 2 * max_decode_rows, scratch.sum};
      if (uses_amx) sum.make((ranges.end[0] + 1) / 2 - ranges.begin[0] / 2);
      uses_amx ? accumulate_decode_by_amx(first, keys, ranges, wide.p)
               : accumulate_decode(first, keys, ranges, {wide.p, 1, block_keys / 2}, sum);
      return accumulate_sums(scratch, 1);
    }
    if (decode && !uses_amx) decode_scores.to_lanes(wide.s, static_cast<int>(tile.count()), 0, keys);
    if (modified) apply_modifiers(first, keys, visible, ranges);
    if (returned_weights.wanted()) returned_weights.keep(first, ranges, vectors, wide.s);
    fetch();
    const bool dropout = problem.drops() || problem.keep != nullptr;
    note_masked(wide.s, bf16_rows, keys, visible);
    scales.load_values(v, first, keys, mask_hidden_values ? masked : nullptr);
    weigh(ranges, dropout || scales.there);
    if (dropout || scales.there) drop_or_scale(first, ranges, dropout);
    fetch();
    if (ranges.gaps) clear_gaps(ranges, wide.p, 2);
    if (uses_amx) fill_units(ranges);
    if (!decode) return accumulate_pairs(ranges, value_pairs(first, keys));
    if (uses_amx) {
      const int pair = ranges.begin[0] / tile_items * tile_pairs,
                end = (ranges.end[0] + tile_items - 1) / tile_items * tile_pairs;
      transpose(reinterpret_cast<const float*>(wide.p + pair * bf16_rows), std::int64_t{bf16_rows},
                std::int64_t{end - pair}, std::int64_t{tile_rows}, reinterpret_cast<float*>(wide.tile_weights + pair),
                std::int64_t{block_keys / 2});
    }
    uses_amx ? accumulate_decode_by_amx(first, keys, ranges, wide.tile_weights)
             : accumulate_decode(first, keys, ranges, {wide.p, bf16_rows, 1}, {});
  }

  Bf16Scores of_block(const std::uint32_t* const* rows, float* s) const {
    return {wide.q, rows, pairs, static_cast<float>(problem.scale), s, scratch.alpha, scratch.ahead, scales.of_keys()};
  }

  void score(const std::uint32_t* const* rows, const ScoreRange& range) {
    const Bf16Scores scores = of_block(rows, wide.s);
    const int count = static_cast<int>(tile.count());
    const DecodeScores<float, block_keys> decode_scores(scratch);
    if (keys_in_lanes && uses_amx)
      return amx_decode_scores(of_block(rows, decode_scores.s), range.key, range.end, count, k_stream,
                               wide.tile_rows_copy);
    if (!decode || uses_amx) {
      for_each_tile(range.first, range.last, [&]<int V>(int x) ATTN_BF16_ATTR {
        uses_amx ? amx_score_columns<V>(scores, range, x, wide.tile_rows_copy)
                 : score_columns<DotPairs, V>(scores, range, x);
      });
      return;
    }
    const DecodeQk<float> to{decode_scores.s, block_keys, scratch.alpha};
    const auto* words = reinterpret_cast<const float* const*>(rows);
    for_each_decode_keys(
        words, range.key, range.end,
        [&](int key, int vectors_of_keys) ATTN_BF16_ATTR {
          decode_qk(to, words + key, key, vectors_of_keys, count,
                    Bf16DecodeQkTile{pairs, scores.scale, wide.decode_queries, &k_stream, this->scales.of_keys(key)});
        },
        [&](int key, int end) ATTN_BF16_ATTR { score_in_lanes(scores, range, key, end); });
    decode_maxima(to, count, range.key, range.end, range.of_vector(0));
  }
  void score_in_lanes(const Bf16Scores& scores, const ScoreRange& range, int key, int end) {
    score_columns<DotPairs, 1>(scores, {key, end, 0, 1, range.visible, range.whole}, 0);
    DecodeScores<float, block_keys>(scratch).from_lanes(wide.s, static_cast<int>(tile.count()), key, end);
  }

  /// Sums of products with int8 keys.
  void score_int8(const ScoreRange& range) {
    const DecodeQk<float> to{DecodeScores<float, block_keys>(scratch).s, block_keys, scratch.alpha};
    for_each_byte_keys(k_groups, range.key, range.end, block_keys,
                       [&](int key, int vectors_of_keys, const ByteKeys& found) ATTN_BF16_ATTR {
                         k_groups.use<true>(key, std::min(key + 16 * vectors_of_keys, range.end));
                         decode_qk<byte_vectors>(
                             to, found, 0, key, vectors_of_keys, static_cast<int>(tile.count()),
                             Bf16DecodeQkInt8Tile{wide.decode_queries, problem.dim, found, key, k_groups});
                       });
  }
  void finish_decode(const Bf16Scores& scores_of_block, const ActiveRanges& ranges, const Word* visible) {
    const ScalesBy16 copied(scales.key);
    const float* const* const of_keys = by_int8 ? k_groups.scales() : scales.there ? copied.at : nullptr;
    finish_decode_scores(scores_of_block, of_keys, ranges.begin[0], ranges.end[0], static_cast<int>(tile.count()),
                         visible, uses_amx ? &k_stream : nullptr);
  }

  /// PV of decode rows for a block, in parts, between which memory is prefetched; the first tile makes the `sum` of the
  /// weights.
  void accumulate_decode(std::int64_t first, int keys, const ActiveRanges& ranges, const DecodeWeightPairs& p,
                         DecodeWeightSum sum) {
    if (by_int8) return accumulate_int8(ranges, p, sum);
    constexpr int part_pairs = decode_pv_keys / 2;
    const std::uint16_t* rows[block_keys];
    value_rows(first, keys, rows);
    const int begin = ranges.begin[0] / 2, end = (ranges.end[0] + 1) / 2;
    for (int pair = begin; pair < end; pair += part_pairs) {
      const int last = pair + part_pairs < end ? pair + part_pairs : end;
      v_stream.use(2 * last < keys ? 2 * (last - pair) : keys - 2 * pair);
      rows_out.for_each(static_cast<int>(tile.count()),
                        Bf16DecodePvTile{rows + 2 * pair, problem.value_dim, last - pair, p.from(pair), sum,
                                         decode_epilogue(pair == begin, last == end)});
      if (sum.p) sum.p += (last - pair) * max_decode_rows;
    }
    fresh = false;
  }

  void accumulate_int8(const ActiveRanges& ranges, const DecodeWeightPairs& p, DecodeWeightSum sum) {
    const int begin = ranges.begin[0] / 2 * 2, end = ranges.end[0], rows = static_cast<int>(tile.count());
    for (int key = begin; key < end; key += kv_block) {
      const int last = key + kv_block < end ? key + kv_block : end;
      v_groups.use<true>(key, last);
      if (keys_in_lanes)
        scale_decode_weights(DecodeScores<float, block_keys>(scratch), rows, key, last, v_groups.scales(), wide.p);
      rows_out.for_each(rows, Bf16DecodePvInt8Tile{ByteColumns(v), v_groups, key, last, p.from(key / 2), sum,
                                                   decode_epilogue(key == begin, last == end)});
      if (sum.p) sum.p += (last - key) / 2 * max_decode_rows;
    }
    fresh = false;
  }

  /// PV of decode rows by AMX, queries as rows: 32 keys at a time, two by two as they come from memory.
  /// weights [16][128].
  HWY_NOINLINE void accumulate_decode_by_amx(std::int64_t first, int keys, const ActiveRanges& ranges,
                                             const std::uint32_t* weights) {
    const std::int64_t words = Bf16Scratch::value_words(problem.value_dim);
    const std::uint16_t* rows[block_keys];
    value_rows(first, keys, rows);
    const int begin = ranges.begin[0] / tile_items * tile_items, end = ranges.end[0];
    decode_shape->begin();
    for (int key = begin; key < end; key += tile_items) {
      v_stream.use(keys - key < tile_items ? keys - key : tile_items);
      pair_rows_in_halves(rows + key, problem.value_dim, words, v_stream, wide.v);
      amx_decode_outputs({weights + key / 2, wide.v, words, problem.value_dim, static_cast<int>(tile.count()),
                          key == begin, key + tile_items >= end, fresh},
                         scratch.alpha, v_stream, reinterpret_cast<float*>(wide.paired), scratch.block);
    }
    shape->begin();
    fresh = false;
  }

  /// Sets weights to 0 for the keys that pad a vector's first and last unit of 32.
  void fill_units(const ActiveRanges& ranges) const {
    const auto fill = [&](int v, int key, int end) {
      for (int pair = (key + 1) / 2; pair < end / 2; ++pair)
        _mm512_store_si512(wide.p + pair * bf16_rows + v * 16, _mm512_setzero_si512());
    };
    for (int v = 0; v < vectors; ++v) {
      fill(v, ranges.begin[v] / tile_items * tile_items, ranges.begin[v]);
      fill(v, ranges.end[v], (ranges.end[v] + tile_items - 1) / tile_items * tile_items);
    }
  }

  void accumulate_pairs(const ActiveRanges& ranges, const std::uint32_t* v_pairs) {
    const std::int64_t words = Bf16Scratch::value_words(problem.value_dim);
    accumulate_ranges(ranges, [&](int begin, int end, int first, int last) {
      const int unit = begin / tile_items, units = (end + tile_items - 1) / tile_items - unit;
      for_each_tile(first, last, [&]<int V>(int x) ATTN_BF16_ATTR {
        if (uses_amx)
          return amx_output_columns<V>(wide.p + unit * tile_pairs * bf16_rows + x * 16,
                                       v_pairs + unit * tile_pairs * words, words, units, problem.value_dim,
                                       scratch.o + x * 16, scratch.alpha + x * 16, fresh);
        output_columns<V>(OutputOperands<DotPairs, PairedRows>{wide.p + begin / 2 * bf16_rows + x * 16,
                                                               {v_pairs + begin / 2 * words, words},
                                                               (end - begin + 1) / 2,
                                                               scratch.o + x * 16,
                                                               scratch.alpha + x * 16,
                                                               fresh,
                                                               scratch.ahead},
                          0, problem.value_dim);
      });
    });
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
