// src/kernels/attention/pass/forward_pass-inl.h: the forward pass of one query tile over its keys, block after block;
// nothing else is stored.
//
//            64 keys                     lanes are query rows: no sum ever crosses a lane, so a row has the bits of
//          +---------+                   kernels/ref whatever the vector width, the query tile or the thread.
//  64 rows |  S^T    |  -> weights ->  O^T += V^T P^T
//          +---------+
#if defined(ATTN_FORWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_FORWARD_PASS_INL_H
#undef ATTN_FORWARD_PASS_INL_H
#else
#define ATTN_FORWARD_PASS_INL_H
#endif

#include "kernels/attention/tiles/additive_qk-inl.h"
#include "kernels/prefetch/int8_group_cursor.h"
#include "kernels/attention/score/dropout-inl.h"
#include "kernels/attention/tiles/decode_pv-inl.h"
#include "kernels/attention/softmax/returned_weights-inl.h"
#include "kernels/attention/score/modifiers-inl.h"
#include "kernels/attention/next_rows.h"
#include "kernels/attention/tiles/prefill_pv-inl.h"
#include "kernels/attention/tiles/prefill_qk-inl.h"
#include "kernels/attention/kv/kv_block_cache-inl.h"
#include "kernels/attention/softmax/output_accumulator-inl.h"
#include "kernels/simd/transpose-inl.h"
#include "kernels/attention/softmax/online_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The forward pass of one query tile. Score: DotScore or AdditiveScore, which compute the scores of a block.
template <typename T, typename Stored = T, class Score = DotScore<T>>
class ForwardPass {
 public:
  static constexpr int R = query_tile_rows<T>, N = lanes<T>, block_keys = kv_block;
  static_assert(R / N <= most_vectors);
  using Compute = T;
  using Blocks = ForwardPass;  // the class that has the blocks' code
  static constexpr bool takes_int8 = Score::takes_int8 && sizeof(Stored) == sizeof(float);

  const AttentionProblem& problem;
  QueryTile tile;
  QueryTileScratch<T> scratch;
  Score score;
  ScoreVectors<T> score_mod;
  ReturnedWeights<T> returned_weights;
  KvBlockCache<Stored> kv_cache;
  int vectors;
  KvRows k, v;
  bool fresh = true;           // no key was accumulated into the split yet
  bool any_split = false;      // a split was merged
  TilePrefetch prefetch;       // in each register tile of a block, or quarter of it
  std::int64_t next_keys = 0;  // the keys over which prefetching for the next query tile is spread
  bool decode_int8 = false;    // decode over int8 K and V, converted in registers
  bool decode;                 // few query rows: their output is `rows_out`
  DecodeOutput<T> rows_out;
  // decode without score modifiers: scores and weights keep the layout with keys in the lanes
  bool keys_in_lanes = false;
  static constexpr std::int64_t llc_bytes = std::int64_t{8} << 20;
  std::int64_t split_end = 0;
  std::int64_t kv_end = 0;               // end of the splits that are processed one after the other
  int slice_keys = decode_tile_keys<T>;  // decode: keys of a tile, after which more memory may be prefetched
  StreamPrefetcher k_stream, v_stream;   // decode rows
  Int8GroupCursor k_groups, v_groups;    // decode rows over int8
  bool exceeds_llc;                      // K and V of the call are too large to stay in the caches
  std::int64_t next_block = -1;          // the key from which prefetching of K and V continues

  ForwardPass(const AttentionProblem& p, const QueryTile& lane_map, void* memory)
      : ForwardPass(p, lane_map, memory, p.dim, p.value_dim) {}
  static std::size_t scratch_bytes(const AttentionProblem& p) {
    return QueryTileScratch<T>::bytes(p.dim, p.value_dim) + Score::bytes(p, p.dim) + ScoreVectors<T>::bytes(p) +
           KvBlockCache<Stored>::bytes(p);
  }
  /// Called before the query tiles of a task, which share one scratch.
  static void begin_task(const AttentionProblem& p, std::int64_t rows, void* memory) {
    char* const score = static_cast<char*>(memory) + QueryTileScratch<T>::bytes(p.dim, p.value_dim);
    Score::begin_task(score);
    KvBlockCache<Stored>::begin_task(p, rows, score + Score::bytes(p, p.dim) + ScoreVectors<T>::bytes(p));
  }

 protected:
  /// `q_dim`: columns of the query tile's own place for queries; `v_columns`: those that a row of V has where it is
  /// read.
  ForwardPass(const AttentionProblem& p, const QueryTile& lane_map, void* memory, std::int64_t q_dim,
              std::int64_t v_columns)
      : problem(p), tile(lane_map), scratch(memory, q_dim, p.value_dim),
        score(p, static_cast<char*>(memory) + QueryTileScratch<T>::bytes(q_dim, p.value_dim)),
        score_mod(p, tile,
                  static_cast<char*>(memory) + QueryTileScratch<T>::bytes(q_dim, p.value_dim) + Score::bytes(p, q_dim)),
        returned_weights(p, lane_map),
        kv_cache(p, static_cast<char*>(memory) + QueryTileScratch<T>::bytes(q_dim, p.value_dim) +
                        Score::bytes(p, q_dim) + ScoreVectors<T>::bytes(p)),
        vectors(static_cast<int>((tile.count() + N - 1) / N)),
        k(rows_of_head(p.k, p.k_stride, tile.batch, p.key_head(tile.head))),
        v(rows_of_head(p.v, p.v_stride, tile.batch, p.value_head(tile.head))),
        decode(DecodeOutput<T>::takes(tile.count(), p.value_dim)), rows_out(scratch.block, v_columns),
        exceeds_llc(p.batch * (p.k_heads * p.dim + p.v_heads * p.value_dim) * p.k_rows * bytes_of(k.element) >
                    llc_bytes) {
    if (!kv_cache.widens()) next_keys = add_next_tile({prefetch.later, sizeof(Stored)}, p, tile);
    spread_next(in_tiles() ? tiles_of_block() : 4, block_keys);
    keys_in_lanes = decode && Score::keys_in_lanes && !has_modifiers(p) && !returned_weights.wanted() && !p.drops() &&
                    p.keep == nullptr;
    if constexpr (takes_int8)
      decode_int8 = decode && in_int8_tiles(p,
                                            tiles_read_sign_magnitude8 && p.k.element == Element::sign_magnitude8
                                                ? Element::sign_magnitude8
                                                : Element::i8,
                                            p.keys_begin(tile.batch));
  }

 public:
  /// Transposes and prepares Q once; lanes beyond the rows hold 0.
  HWY_NOINLINE void load_queries() {
    if (tile.count() < vectors * N) clear(scratch.q + (vectors - 1) * N, problem.dim);
    tile.for_each_piece(
        problem.q_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start, std::int64_t stride) HWY_ATTR {
          T* const to = scratch.q + first;
          if (bytes_of(problem.element) == sizeof(T))
            transpose(static_cast<const T*>(problem.q) + start, stride, rows, problem.dim, to, std::int64_t{R});
          else if constexpr (sizeof(T) == 4)
            transpose_widened(static_cast<const std::uint16_t*>(problem.q) + start, stride, rows, to);
        });
    score.prepare_queries(scratch, vectors, decode ? static_cast<int>(tile.count()) : 0, &k_stream);
    if (!decode) return;
    if (!keys_in_lanes) clear_scores(scratch.s, block_keys);
    DecodeScores<T, kv_block>(scratch).clear(kv_block);
  }
  /// Queries of bf16 or f16, so many columns of every row at a time as the place for scores holds.
  void transpose_widened(const std::uint16_t* q, std::int64_t stride, std::int64_t rows, T* to) {
    constexpr std::int64_t columns = kv_block;
    for (std::int64_t c = 0, count; c < problem.dim; c += count) {
      count = problem.dim - c < columns ? problem.dim - c : columns;
      for (std::int64_t i = 0; i < rows; ++i)
        widen_half_row(problem.element, q + i * stride + c, count, scratch.s + i * columns);
      transpose(scratch.s, columns, rows, count, to + c * R, std::int64_t{R});
    }
  }
  /// A vector of each column.
  static void clear(T* of_rows, std::int64_t columns) {
    const Tag<T> d;
    for (std::int64_t c = 0; c < columns; ++c) hn::Store(hn::Zero(d), d, of_rows + c * R);
  }
  /// Clears the scores, so that lanes without a row do not hold NaN.
  void clear_scores(T* s, int keys) const {
    const Tag<T> d;
    for (int r = 0; r < keys; ++r) hn::Store(hn::Zero(d), d, s + r * R);
  }

  HWY_NOINLINE void begin_split(std::int64_t end) {
    split_end = end;
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(minus_infinity<T>(), d, scratch.m + x * N);
      hn::Store(hn::Zero(d), d, scratch.l + x * N);
    }
    fresh = true;
  }

  /// In decode, starts prefetching at the first visible key, and again after masked blocks.
  void prefetch_kv(std::int64_t first, int keys, const ActiveRanges& ranges) {
    if (decode_int8) {
      k_groups.load(k, first, kv_end, keys);
      v_groups.load(v, first, kv_end, keys);
    }
    if (!decode || kv_cache.needed()) return;
    if (first != next_block) {
      k_stream.begin(k, problem.dim, first + ranges.begin[0], kv_end, exceeds_llc);
      v_stream.begin(v, problem.value_dim, first + ranges.begin[0], kv_end, exceeds_llc);
    }
    next_block = first + keys;
  }

  /// Computes a block of keys, first ... first + keys - 1. `visible`: its mask, one word per key; null: nothing is
  /// masked.
  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const Tag<T> d;
    const T* k_rows[kv_block];
    const T* v_rows[kv_block];
    if (!decode_int8) {
      row_pointers(k, first, keys, k_rows);
      row_pointers(v, first, keys, v_rows);
    }
    const ActiveRanges ranges =
        visible ? ActiveRanges::trimmed(visible, keys, vectors, N) : ActiveRanges::all(keys, vectors);
    prefetch_kv(first, keys, ranges);
    for (int x = 0; x < vectors; ++x) hn::Store(hn::Load(d, scratch.m + x * N), d, scratch.alpha + x * N);
    const std::int64_t after = first + keys < split_end ? first + keys : split_end;
    if (in_tiles()) {
      prefetch.soon.clear();
      if (!kv_cache.needed()) add_block({prefetch.soon, sizeof(T)}, problem, tile, first, keys);
      add_biases(prefetch.soon, problem, tile, after, std::min(after + block_keys, split_end));
      prefetch.begin_block();
    }
    scratch.ahead = in_tiles() && prefetch.left() ? &prefetch : nullptr;
    const auto fetch = [&] {
      if (!in_tiles()) prefetch.fetch();
    };
    fetch();
    const std::int64_t index = block_index(first);
    if (!decode_int8 && kv_cache.needed())
      kv_cache.load_block(kv_cache.keys, index, k, problem.dim, {first, keys, split_end}, k_rows);
    score.load_keys(k_rows, keys, index);
    const bool modified = has_modifiers(problem);
    const Word* const masking = modified || !Score::masks ? nullptr : visible;
    const int rows = static_cast<int>(tile.count());
    DecodeScores<T, kv_block> decode_scores(scratch);
    if (keys_in_lanes && ranges.gaps) decode_scores.mask(rows);
    if (decode_int8) score_int8(ranges, masking);
    else
      for (int g = 0; g < ranges.count; ++g)
        for_each_slice(ranges.range(g, masking),
                       [&](const ScoreRange& range) HWY_ATTR { score.group(scratch, k_rows, range); });
    fetch();
    if (keys_in_lanes) {
      decode_softmax(scratch, decode_scores, rows, ranges.begin[0], ranges.end[0]);
      return accumulate_decode_values(first, keys, ranges, v_rows);
    }
    if (decode && Score::keys_in_lanes) decode_scores.to_lanes(scratch.s, rows, 0, keys);
    if (modified || (visible && !Score::masks)) {
      restart_maximum(scratch);
      apply_score_modifiers(problem, tile, first, keys, visible, ranges, scratch, score_mod);
    }
    if (returned_weights.wanted()) returned_weights.keep(first, ranges, vectors, scratch.s);
    fetch();
    weigh_block(scratch, ranges, vectors);
    fetch();
    if (problem.drops() || problem.keep) drop_block(problem, tile, first, ranges, scratch.s);
    if (ranges.gaps) clear_gaps(ranges, scratch.s, 1);
    if (decode) return accumulate_decode_values(first, keys, ranges, v_rows);
    if (kv_cache.needed()) load_values(first, keys, v_rows);
    accumulate(ranges, v_rows);
  }

  /// Spreads what is prefetched for the next query tile over `times` points in each block of `keys` keys.
  void spread_next(std::int64_t times, std::int64_t keys) {
    prefetch.begin(times, std::max(next_keys / keys, std::int64_t{1}));
  }
  /// Returns whether the products are register tiles that prefetch lines one by one.
  bool in_tiles() const { return Score::keys_in_lanes && sizeof(Stored) == sizeof(T) && !decode; }
  std::int64_t tiles_of_block() const { return 10 + problem.value_dim / 6; }

  std::int64_t block_index(std::int64_t first) const { return (first - problem.keys_begin(tile.batch)) / kv_block; }
  void load_values(std::int64_t first, int keys, const T** v_rows) {
    kv_cache.load_block(kv_cache.values, block_index(first), v, problem.value_dim, {first, keys, split_end}, v_rows);
  }

  /// Computes PV of decode rows for a block.
  void accumulate_decode_values(std::int64_t first, int keys, const ActiveRanges& ranges, const T** v_rows) {
    const int begin = ranges.begin[0], end = ranges.end[0];
    const T* const p = keys_in_lanes ? DecodeScores<T, kv_block>(scratch).p : scratch.s;
    const std::int64_t p_stride = keys_in_lanes ? max_decode_rows : R;
    if (decode_int8) {
      accumulate_int8(begin, end, p + begin * p_stride, p_stride);
    } else {
      if (kv_cache.needed()) load_values(first, keys, v_rows);
      for (int key = begin; key < end; key += decode_pv_keys) {
        const int last = key + decode_pv_keys < end ? key + decode_pv_keys : end;
        if (!kv_cache.needed()) v_stream.use(last - key);
        rows_out.for_each(static_cast<int>(tile.count()),
                          DecodePvTile<T>{v_rows + key, last - key, p + key * p_stride, p_stride,
                                          decode_epilogue(key == begin, last == end)});
      }
    }
    fresh = false;
  }
  PvEpilogue<T> decode_epilogue(bool begins, bool ends) {
    return {scratch.alpha, rows_out.stride(), rows_out.to_sums(), &v_stream, fresh, begins, ends};
  }

  void score_int8(const ActiveRanges& ranges, const Word* visible) {
    if constexpr (takes_int8)
      for (int g = 0; g < ranges.count; ++g) score.ranges_int8(scratch, k, k_groups, ranges.range(g, visible));
  }

  void accumulate_int8(int key, int end, const T* p, std::int64_t p_stride) {
    if constexpr (takes_int8) {
      v_groups.use<prefetches_ahead<float>>(key, end);
      by_form(v, [&]<Element FORM>() HWY_ATTR {
        rows_out.for_each(
            static_cast<int>(tile.count()),
            DecodePvInt8Tile<FORM>{ByteColumns(v), v_groups, key, end, p, p_stride, decode_epilogue(true, true)});
      });
    }
  }

  /// Calls score_of(range) once; in decode tile by tile, because prefetching goes on between tiles.
  template <class F>
  HWY_INLINE void for_each_slice(ScoreRange range, F&& score_of) {
    if (!decode || kv_cache.needed()) return score_of(range);
    for (const int end = range.end; range.key < end; range.key = range.end) {
      range.end = end - range.key < slice_keys + N ? end : range.key + slice_keys;  // the rest is at least a vector
      k_stream.use(range.end - range.key);
      score_of(range);
    }
  }

  /// Returns the output of the current split; the next function returns that of the earlier splits.
  OutputAccumulator<T> output() const { return output_shape().beside(decode ? rows_out.memory() : scratch.o, R); }
  OutputAccumulator<T> total() const { return output_shape().beside(scratch.o_total, R); }
  OutputAccumulator<T> output_shape() const {
    if (decode) return OutputAccumulator<T>::of_rows(nullptr, problem.value_dim, static_cast<int>(tile.count()));
    return OutputAccumulator<T>::of_lanes(nullptr, problem.value_dim, R, vectors);
  }

  /// o = fma(o, alpha, the block's chain), vectors of one range of keys at a time: chain(first key, end, first
  /// vector, last).
  template <class F>
  void accumulate_ranges(const ActiveRanges& ranges, F&& chain) {
    for (int x = 0, last; x < vectors; x = last) {
      last = ranges.same_range(x, vectors);
      if (ranges.begin[x] == ranges.end[x]) {
        if (fresh) clear(scratch.o, x, last);
      } else {
        chain(ranges.begin[x], ranges.end[x], x, last);
      }
    }
    fresh = false;
  }

  void accumulate(const ActiveRanges& ranges, const T* const* v_rows) {
    std::int64_t column = 0;
    if constexpr (edge_tiles<T>)
      if (vectors == 4 && ranges.edge()) column = output_edge(ranges, scratch, v_rows, problem.value_dim, fresh);
    if (column == problem.value_dim) fresh = false;
    else
      accumulate_ranges(ranges, [&](int begin, int end, int first, int last) {
        output_block(scratch, v_rows + begin, end - begin, column, problem.value_dim, begin, first, last, fresh);
      });
  }

  /// Sets weights to 0 for keys inside a vector's range in which it takes no part. A row of weights has `keys_of_row`
  /// keys.
  template <typename P>
  void clear_gaps(const ActiveRanges& ranges, P* weights, int keys_of_row) {
    for (int g = 0; g < ranges.count; ++g)
      for (int v = 0; v < vectors; ++v) {
        if (v >= ranges.first[g] && v < ranges.last[g]) continue;
        const int begin = ranges.key[g] > ranges.begin[v] ? ranges.key[g] : ranges.begin[v];
        const int end = ranges.key[g + 1] < ranges.end[v] ? ranges.key[g + 1] : ranges.end[v];
        for (int r = begin / keys_of_row; r * keys_of_row < end; ++r)
          std::memset(weights + r * R + v * N, 0, N * sizeof(P));
      }
  }

  void clear(T* o, int first, int last) {
    const Tag<T> d;
    for (std::int64_t c = 0; c < problem.value_dim; ++c)
      for (int x = first; x < last; ++x) hn::Store(hn::Zero(d), d, o + c * R + x * N);
  }

  /// Resets the state: maximum -inf, sum 0.
  HWY_NOINLINE void clear_totals() {
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(minus_infinity<T>(), d, scratch.m_total + x * N);
      hn::Store(hn::Zero(d), d, scratch.l_total + x * N);
    }
    total().clear();
  }

  /// Merges the split's m, l and o into the totals; the first split that is not fully masked becomes the total.
  HWY_NOINLINE void merge_split() {
    if (fresh) return;
    if (any_split) return merge(scratch.m, scratch.l, output());
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(hn::Load(d, scratch.m + x * N), d, scratch.m_total + x * N);
      hn::Store(hn::Load(d, scratch.l + x * N), d, scratch.l_total + x * N);
    }
    any_split = true;
    if (decode) output().copy_to(total());
    else std::swap(scratch.o, scratch.o_total);
  }

  /// Merges the results of a split into the totals.
  HWY_NOINLINE void merge(const T* m_split, const T* l_split, const OutputAccumulator<T>& o_split) {
    const Tag<T> d;
    T *const own = scratch.alpha, *const of_split = scratch.sum;  // factors; no block needs this memory now
    for (int x = 0; x < vectors; ++x) {
      const auto m = hn::Load(d, scratch.m_total + x * N), other = hn::Load(d, m_split + x * N);
      const auto maximum = hn::Max(m, other);
      const auto reference = safe_reference<T>(maximum);
      const auto a = weight_of<T>(m, reference), s = weight_of<T>(other, reference);
      hn::Store(maximum, d, scratch.m_total + x * N);
      const auto l = hn::MulAdd(hn::Load(d, scratch.l_total + x * N), a, hn::Mul(hn::Load(d, l_split + x * N), s));
      hn::Store(l, d, scratch.l_total + x * N);
      hn::Store(a, d, own + x * N);
      hn::Store(s, d, of_split + x * N);
    }
    total().merge(own, o_split, of_split);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
