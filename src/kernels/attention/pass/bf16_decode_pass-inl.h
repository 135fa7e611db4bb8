// src/kernels/attention/pass/bf16_decode_pass-inl.h: computes the forward pass of a query tile of at most 8 rows
// (decode) in bf16, in blocks of 256 keys: as decode_pass-inl.h does, but on pairs of columns or keys (32-bit words),
// and with products by AMX too.
#if defined(ATTN_BF16_DECODE_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_DECODE_PASS_INL_H
#undef ATTN_BF16_DECODE_PASS_INL_H
#else
#define ATTN_BF16_DECODE_PASS_INL_H
#endif

#include "kernels/attention/pass/decode_pass-inl.h"
#include "kernels/attention/pass/bf16_lane_weights-inl.h"
#include "kernels/attention/tiles/amx_forward_products-inl.h"
#include "kernels/attention/tiles/bf16_decode_int8-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class Bf16DecodePass : public DecodeStreams<float> {
 public:
  using Blocks = Bf16DecodePass;
  static constexpr int block_keys = bf16_kv_block;
  Bf16Scratch wide;
  Bf16KvRows kv;
  std::int64_t pairs;
  // If products are by AMX, the tile configurations of scores (the current one outside of PV) and of PV; else null.
  const AmxTiles *amx = nullptr, *amx_values = nullptr;

  /// `lut`: whether int8 may be converted in registers.
  Bf16DecodePass(const AttentionProblem& p, const Task& query_tile, Arena arena, bool lut = has_int8_lut())
      : Bf16DecodePass(p, query_tile, Bf16Memory(arena, p),
                       lut && in_int8_tiles(p, Element::sign_magnitude8, p.keys_begin(query_tile))) {
    // the loaders of int8 read no column beyond a row
    if (int8) rows_out = DecodeOutput<float>(scratch.block, p.value_dim);
  }

  HWY_NOINLINE void load_queries() {
    if (amx) clear_vector(reinterpret_cast<float*>(wide.q), pairs);  // lanes without a row are 0
    transpose_pairs(problem, tile, amx ? wide.q : wide.decode_queries, amx ? bf16_rows : max_decode_rows);
    if (!keys_in_lanes) clear_vector(wide.s, block_keys);
    DecodeScores<float, block_keys>(scratch).clear(block_keys / 2);
  }

  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    prefetch.fetch();
    if (kv.scales.there && !int8) {
      prefetch_scales(v, first, first + keys);
      scales_of_rows(k, first, keys, kv.scales.key);
    }
    const ActiveRanges ranges = visible ? ActiveRanges::trimmed(visible, keys, 1, 16) : ActiveRanges::all(keys, 1);
    prefetch_kv(first, keys, ranges);
    _mm512_store_ps(scratch.alpha, _mm512_load_ps(scratch.m));
    const DecodeScores<float, block_keys> scores(scratch);
    const bool modified = has_modifiers(problem);
    score(first, keys, ranges, scores, modified ? nullptr : visible);
    prefetch.fetch();
    if (keys_in_lanes) return weigh_and_accumulate(first, keys, ranges, scores);
    scores.to_lanes(wide.s, rows(), 0, keys);
    const Bf16LaneWeights weights{*this, wide};
    if (modified) weights.apply_modifiers(first, keys, visible, ranges);
    if (returned_weights.wanted()) returned_weights.keep(first, ranges, 1, wide.s);
    kv.scales.load_values(v, first, keys, nullptr);
    weights.weigh(first, ranges, kv.scales);
    if (ranges.gaps) clear_gaps(ranges, wide.p, 2);
    accumulate(first, keys, ranges, {wide.p, bf16_rows, 1}, {});
  }

 private:
  HWY_NOINLINE Bf16DecodePass(const AttentionProblem& p, const Task& query_tile, const Bf16Memory& memory,
                              bool in_registers)
      : DecodeStreams(p, query_tile, memory.tile, is_int8(p.k.element), in_registers,
                      Bf16Scratch::value_words(p.value_dim), block_keys),
        wide(memory.wide), kv(p, tile, k, v, wide), pairs(Bf16Scratch::pairs(p.dim)) {}

  using Scores = DecodeScores<float, block_keys>;

  /// Computes the scores of a block with keys in the lanes.
  void score(std::int64_t first, int keys, const ActiveRanges& ranges, const Scores& scores, const Word* visible) {
    const DecodeQueries<DotPairs> q{wide.decode_queries, pairs, rows()};
    const DecodeScoreRows<float> to{scores.s, block_keys};
    const ScalesBy16 copied(kv.scales.key);
    const float* const* of_keys = kv.scales.there ? copied.at : nullptr;
    if (int8) {
      decode_int8_scores<DotPairs, Int8PairKeys>(q, k, k_groups, k_stream, ranges, block_keys, to);
      of_keys = k_groups.scales;
    } else {
      const std::uint32_t* words[block_keys];
      kv.keys({first, keys, kv_end}, words);
      if (amx) score_by_amx(words, ranges, scores.s);
      else
        decode_row_scores<DotPairs, SameFormat<float>>(q, reinterpret_cast<const float* const*>(words), ranges,
                                                       reinterpret_cast<float*>(wide.q), k_stream, to);
    }
    finish_decode_scores(to, static_cast<float>(problem.scale), scratch.alpha, of_keys, ranges.begin[0], ranges.end[0],
                         rows(), visible, amx ? &k_stream : nullptr);
  }
  void score_by_amx(const std::uint32_t* const* words, const ActiveRanges& ranges, float* s) {
    const Bf16Scores scores{wide.q, words, pairs, 1, s, nullptr, nullptr, nullptr};
    for (int g = 0; g < ranges.count; ++g)
      for (int key = ranges.key[g], end; key < ranges.key[g + 1]; key = end) {
        const int left = ranges.key[g + 1] - key;  // fewer than 16 keys that are left go with the keys before them
        end = key + (left < bf16_rows + 16 ? left : bf16_rows);
        k_stream.use(end - key);
        amx_decode_scores(scores, key, end, rows(), k_stream, wide.tile_rows_copy);
      }
  }

  void weigh_and_accumulate(std::int64_t first, int keys, const ActiveRanges& ranges, const Scores& scores) {
    const int begin = ranges.begin[0], end = ranges.end[0];
    decode_softmax(scratch, scores, rows(), begin, end, wide.p, k_stream, kv.scales.there);
    if (kv.scales.there && !int8) {
      kv.scales.load_values(v, first, keys, nullptr);
      scale_decode_weights(scores, rows(), begin, end, ScalesBy16(kv.scales.value).at, wide.p);
    }
    DecodeWeightSum sum{reinterpret_cast<const std::uint32_t*>(scores.p) + begin / 2 * max_decode_rows, scratch.sum};
    if (amx) {
      sum.make((end + 1) / 2 - begin / 2);
      accumulate_by_amx(first, keys, ranges);
    } else {
      accumulate(first, keys, ranges, {wide.p, 1, block_keys / 2}, sum);
    }
    accumulate_sums(scratch, 1);
  }

  /// Computes PV of a block in parts of its keys; memory is prefetched between the parts. The first tile computes the
  /// `sum` of the weights.
  void accumulate(std::int64_t first, int keys, const ActiveRanges& ranges, const DecodeWeightPairs& p,
                  DecodeWeightSum sum) {
    const int begin = ranges.begin[0] / 2 * 2, end = ranges.end[0], part = int8 ? kv_block : decode_pv_keys;
    const std::uint16_t* value_rows[block_keys];
    if (!int8) kv.values({first, keys, kv_end}, nullptr, 2, value_rows);
    for (int key = begin; key < end; key += part) {
      const int last = key + part < end ? key + part : end;
      const PvEpilogue<float> to = epilogue(key == begin, last == end);
      if (int8) {
        v_stream.use(last - key);
        if (keys_in_lanes) scale_decode_weights(Scores(scratch), rows(), key, last, v_groups.scales, wide.p);
        rows_out.for_each(rows(), DecodePvTile<DotPairs, Int8PairValues, DecodeWeightPairs, DecodeWeightSum>{
                                      {{ByteColumns(v), v_groups, v_stream, key, last}}, p.from(key / 2), to, sum});
      } else {
        value_stream().use(last - key);
        rows_out.for_each(rows(), DecodePvTile<DotPairs, PairValues, DecodeWeightPairs, DecodeWeightSum>{
                                      {value_rows + key, problem.value_dim, (last - key + 1) / 2, &value_stream()},
                                      p.from(key / 2),
                                      to,
                                      sum});
      }
      if (sum.p) sum.p += part / 2 * max_decode_rows;
    }
    fresh = false;
  }

  /// Computes PV by AMX with queries as rows, 32 keys at a time: rows of V are interleaved in pairs when they are read.
  /// Weights: wide.p [16][128].
  HWY_NOINLINE void accumulate_by_amx(std::int64_t first, int keys, const ActiveRanges& ranges) {
    const std::int64_t words = Bf16Scratch::value_words(problem.value_dim);
    const std::uint16_t* value_rows[block_keys];
    kv.values({first, keys, kv_end}, nullptr, tile_items, value_rows);
    const int begin = ranges.begin[0] / tile_items * tile_items, end = ranges.end[0];
    amx_values->begin();
    for (int key = begin; key < end; key += tile_items) {
      value_stream().use(keys - key < tile_items ? keys - key : tile_items);
      pair_rows_in_halves(value_rows + key, problem.value_dim, words, value_stream(), wide.v);
      amx_decode_outputs(
          {wide.p + key / 2, wide.v, words, problem.value_dim, rows(), key == begin, key + tile_items >= end, fresh},
          scratch.alpha, value_stream(), reinterpret_cast<float*>(wide.paired), scratch.block);
    }
    amx->begin();
    fresh = false;
  }
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
