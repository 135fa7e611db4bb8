// src/kernels/attention/pass/bf16_forward_pass-inl.h: computes the forward pass of one query tile of more than 8 rows
// (prefill) in bf16, in blocks of 256 keys.
//  It differs from forward_pass-inl.h in its products, which take pairs: columns (2d, 2d + 1) of a row for the scores,
// keys (2j, 2j + 1) for the output. So K is read in place, each two rows of V are interleaved for the block, and
// weights are rounded to bf16 before they are summed.
#if defined(ATTN_BF16_FORWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_FORWARD_PASS_INL_H
#undef ATTN_BF16_FORWARD_PASS_INL_H
#else
#define ATTN_BF16_FORWARD_PASS_INL_H
#endif

#include "kernels/attention/mask/masked_values.h"
#include "kernels/attention/pass/bf16_decode_pass-inl.h"
#include "kernels/attention/tiles/amx_forward_products-inl.h"
#include "kernels/attention/tiles/bf16_dot_instruction-inl.h"

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// Interleaves two rows of bf16 into words (low, high).
HWY_INLINE void interleave_rows(const std::uint16_t* low, const std::uint16_t* high, std::int64_t count,
                                std::uint32_t* to) {
  for (std::int64_t c = 0; c < count; c += 16)
    _mm512_store_si512(to + c, words_of_rows(low + c, high + c, first_lanes(count - c)));
}

class Bf16ForwardPass : public QueryTilePass<float> {
 public:
  using Blocks = Bf16ForwardPass;
  using Decode = Bf16DecodePass;
  static constexpr int block_keys = bf16_kv_block;
  Bf16Scratch wide;
  Bf16KvRows kv;
  std::int64_t pairs;
  // the tile configuration if products are by AMX, else null; applied again after a caller's callable, which may change
  // it
  const AmxTiles* amx = nullptr;
  MaskedKeys<block_keys> masked;  // used if the tile has a single row; noted because weights overwrite the scores

  Bf16ForwardPass(const AttentionProblem& p, const Task& query_tile, Arena arena)
      : Bf16ForwardPass(p, query_tile, Bf16Memory(arena, p)) {}
  static Path path_of(const AttentionProblem& p, const Task& query_tile) {
    return HWY_NAMESPACE::path_of<float>(p, query_tile);
  }
  static std::size_t scratch_bytes(const AttentionProblem& p) { return kernels::scratch_bytes<Bf16Memory>(p); }
  static void begin_task(const AttentionProblem& p, std::int64_t rows, Arena arena) {
    std::uint8_t* const ready = Bf16Memory(arena, p).wide.ready;
    std::memset(ready, 0, 2 * Bf16Scratch::most_blocks);
    ready[2 * Bf16Scratch::most_blocks] =
        is_int8(p.k.element) || (p.copy_rows && rows >= least_copying_tiles * bf16_rows);
  }

  HWY_NOINLINE void load_queries() {
    if (tile.count() < vectors * 16) clear_vector(reinterpret_cast<float*>(wide.q) + (vectors - 1) * 16, pairs);
    transpose_pairs(problem, tile, wide.q, bf16_rows);
  }

  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const std::uint32_t* rows[bf16_kv_block];
    scratch.ahead = amx == nullptr && prefetch.left() ? &prefetch : nullptr;
    const auto fetch = [&] {
      if (scratch.ahead == nullptr) prefetch.fetch();
    };
    fetch();
    if (kv.scales.there) {
      prefetch_scales(v, first, first + keys);
      scales_of_rows(k, first, keys, kv.scales.key);
    }
    kv.keys({first, keys, kv_end}, rows);
    const ActiveRanges ranges =
        visible ? ActiveRanges::trimmed(visible, keys, vectors, 16) : ActiveRanges::all(keys, vectors);
    for (int x = 0; x < vectors; ++x) _mm512_store_ps(scratch.alpha + x * 16, _mm512_load_ps(scratch.m + x * 16));
    const bool modified = has_modifiers(problem);
    const Bf16LaneWeights weights{*this, wide};
    for (int g = 0; g < ranges.count; ++g) score(rows, ranges.range(g, modified ? nullptr : visible));
    fetch();
    if (modified) {
      weights.apply_modifiers(first, keys, visible, ranges);
      // the callable may have used AMX itself; no tile register is in use here
      if (amx && problem.score_callback.call != nullptr) amx->begin();
    }
    if (returned_weights.wanted()) returned_weights.keep(first, ranges, vectors, wide.s);
    fetch();
    note_masked(keys, visible);
    kv.scales.load_values(v, first, keys, masked.keys());
    weights.weigh(first, ranges, kv.scales);
    fetch();
    if (ranges.gaps) clear_gaps(ranges, wide.p, 2);
    if (amx) fill_units(ranges);
    accumulate_pairs(ranges, value_pairs(first, keys));
  }

 private:
  HWY_NOINLINE Bf16ForwardPass(const AttentionProblem& p, const Task& query_tile, const Bf16Memory& memory)
      : QueryTilePass(p, query_tile, Path::prefill, memory.tile, is_int8(p.k.element) ? 0 : 2, 0), wide(memory.wide),
        kv(p, tile, k, v, wide), pairs(Bf16Scratch::pairs(p.dim)) {
    spread_next((block_keys + p.value_dim) / tile_keys(4, registers), block_keys);
  }

  void score(const std::uint32_t* const* rows, const ScoreRange& range) {
    const Bf16Scores scores{wide.q, rows,          pairs,         static_cast<float>(problem.scale),
                            wide.s, scratch.alpha, scratch.ahead, kv.scales.of_keys()};
    for_each_tile(range.first, range.last, [&]<int V>(int x) ATTN_BF16_ATTR {
      amx ? amx_score_columns<V>(scores, range, x, wide.tile_rows_copy) : score_columns<DotPairs, V>(scores, range, x);
    });
  }

  /// Notes which keys of the block are masked for the row, by the mask or by a score of -inf.
  void note_masked(int keys, const Word* visible) {
    masked.note(keys, [&](int r) {
      return (visible && visible[r] % 2 == 0) || wide.s[r * bf16_rows] == -std::numeric_limits<float>::infinity();
    });
  }

  /// Returns the block's rows of V in pairs, with AMX in the layout of its tiles. They are cached for the query tiles
  /// that follow.
  const std::uint32_t* value_pairs(std::int64_t first, int keys) {
    const std::int64_t words = Bf16Scratch::value_words(problem.value_dim), place = kv.slot_of(first);
    std::uint32_t* const to = wide.v + place * (block_keys / 2) * words;
    std::uint8_t& ready = wide.ready[Bf16Scratch::most_blocks + place];
    if (ready != 0) return to;
    ready = kv.stays(place) && !masked.used();
    const std::uint16_t* rows[block_keys];
    const int unit = amx ? tile_items : 2;
    kv.values({first, keys, kv_end}, masked.keys(), unit, rows);
    for (int r = 0; r < keys; r += unit)
      amx ? transpose_values(rows + r, problem.value_dim, words, wide.paired, to + r / 2 * words)
          : interleave_rows(rows[r], rows[r + 1], problem.value_dim, to + r / 2 * words);
    return to;
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
        if (amx)
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
