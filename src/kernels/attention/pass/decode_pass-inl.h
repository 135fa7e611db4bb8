// src/kernels/attention/pass/decode_pass-inl.h: computes the forward pass of a query tile of at most 8 rows (decode),
// one block of keys after another. Lanes are keys, then columns of V. It is bound by the memory that K and V are read
// from.
//
//   s[row][keys]  ->  weights p[key][row]  ->  o[row][columns]
#if defined(ATTN_DECODE_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_DECODE_PASS_INL_H
#undef ATTN_DECODE_PASS_INL_H
#else
#define ATTN_DECODE_PASS_INL_H
#endif

#include "kernels/attention/kv/kv_block_cache-inl.h"
#include "kernels/attention/pass/query_tile_pass-inl.h"
#include "kernels/attention/score/dropout-inl.h"
#include "kernels/attention/softmax/decode_softmax-inl.h"
#include "kernels/attention/tiles/decode_int8-inl.h"
#include "kernels/attention/tiles/decode_pv-inl.h"
#include "kernels/attention/tiles/decode_qk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// Returns whether scores and weights stay in the layout of decode, because nothing needs them with query rows in the
/// lanes.
inline bool keeps_keys_in_lanes(const AttentionProblem& p, const Task& tile) {
  return !has_modifiers(p) && tile.lane_weights == nullptr && !p.drops(tile);
}

/// The part of decode that all types share: K and V are streams from memory.
template <typename T>
class DecodeStreams : public QueryTilePass<T> {
 public:
  using Pass = QueryTilePass<T>;
  using Pass::problem, Pass::tile, Pass::scratch, Pass::k, Pass::v, Pass::rows_out, Pass::fresh, Pass::kv_end,
      Pass::spread_next;

  bool keys_in_lanes;
  bool int8;                            // K and V are int8, converted in registers
  bool converted;                       // K and V are converted block by block
  bool rows_shared;                     // values are parts of keys: k_stream reads both
  StreamPrefetcher k_stream, v_stream;  // unless they are converted
  Int8Groups k_groups, v_groups;        // the block's addresses of int8

 protected:
  DecodeStreams(const AttentionProblem& p, const Task& query_tile, const QueryTileMemory<T>& memory, bool converts,
                bool in_registers, std::int64_t v_columns, int block_keys)
      : Pass(p, query_tile, Path::decode, memory, converts ? 0 : bytes_of(p.k.element), v_columns),
        keys_in_lanes(keeps_keys_in_lanes(p, query_tile)), int8(in_registers), converted(converts && !in_registers),
        rows_shared(!converts && values_in_keys(p)) {
    spread_next(2, block_keys);
  }

  /// Starts prefetching at the first visible key, and again after masked blocks.
  void prefetch_kv(std::int64_t first, int keys, const ActiveRanges& ranges) {
    if (int8) {
      k_groups.load(k, first, keys);
      v_groups.load(v, first, keys);
    }
    if (!converted && first != next_block_) {
      k_stream.begin(k, problem.dim, first + ranges.begin[0], kv_end, exceeds_llc(), rows_shared ? 2 : 1);
      if (!rows_shared) v_stream.begin(v, problem.value_dim, first + ranges.begin[0], kv_end, exceeds_llc());
    }
    next_block_ = first + keys;
  }
  /// Returns the stream that is prefetched while values are read.
  StreamPrefetcher& value_stream() { return rows_shared ? k_stream : v_stream; }
  PvEpilogue<T> epilogue(bool begins, bool ends) const {
    return {scratch.alpha, rows_out.stride(), rows_out.to_sums(), fresh, begins, ends};
  }

 private:
  static constexpr std::int64_t llc_bytes = std::int64_t{8} << 20;
  /// Returns whether K and V of the call are too large to stay in the caches.
  bool exceeds_llc() const {
    const std::int64_t values = rows_shared ? 0 : problem.v_heads * problem.value_dim;
    return problem.batch * (problem.k_heads * problem.dim + values) * problem.k_rows * bytes_of(k.element) > llc_bytes;
  }

  std::int64_t next_block_ = -1;  // the key from which prefetching continues
};

template <typename T>
class DecodePass : public DecodeStreams<T> {
 public:
  using Streams = DecodeStreams<T>;
  using Streams::problem, Streams::tile, Streams::scratch, Streams::k, Streams::v, Streams::rows_out, Streams::fresh,
      Streams::keys_in_lanes, Streams::int8, Streams::converted, Streams::k_stream, Streams::v_stream,
      Streams::k_groups, Streams::v_groups, Streams::prefetch, Streams::returned_weights, Streams::score_mod,
      Streams::split_end, Streams::rows, Streams::epilogue, Streams::value_stream;
  static constexpr int R = query_tile_rows<T>, N = lanes<T>, block_keys = kv_block;
  using Blocks = DecodePass;

  struct Memory {
    KvBlockCache<T> kv_cache;
    T* queries;  // [D][max_decode_rows]: no lanes beyond these rows, so that a query fills few cache lines
    QueryTileMemory<T> tile;

    Memory(Arena& arena, const AttentionProblem& p)
        : kv_cache(arena, p), queries(arena.take<T>(p.dim * max_decode_rows)), tile(arena, p, p.dim) {}
  };

  DecodePass(const AttentionProblem& p, const Task& query_tile, Arena arena)
      : DecodePass(p, query_tile, Memory(arena, p)) {}

  /// Transposes and scales Q once; rows beyond the last one hold 0.
  HWY_NOINLINE void load_queries() {
    const Tag<T> d;
    if (rows() < max_decode_rows)
      std::memset(queries_, 0, sizeof(T) * static_cast<std::size_t>(problem.dim * max_decode_rows));
    this->transpose_queries(queries_, max_decode_rows);
    const auto scale = hn::Set(d, static_cast<T>(problem.scale));
    for (std::int64_t i = 0; i < problem.dim * max_decode_rows; i += N)
      hn::Store(hn::Mul(hn::Load(d, queries_ + i), scale), d, queries_ + i);
    if (!keys_in_lanes) this->clear_vector(scratch.s, block_keys);  // so that lanes without a row hold numbers
    DecodeScores<T, kv_block>(scratch).clear(kv_block);
  }

  /// Computes a block of keys, first ... first + keys - 1. `visible`: its mask, one word per key; null: nothing is
  /// masked.
  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const Tag<T> d;
    const ActiveRanges ranges = visible ? ActiveRanges::trimmed(visible, keys, 1, N) : ActiveRanges::all(keys, 1);
    const int begin = ranges.begin[0], end = ranges.end[0];
    this->prefetch_kv(first, keys, ranges);
    prefetch.fetch();
    hn::Store(hn::Load(d, scratch.m), d, scratch.alpha);
    const DecodeScores<T, kv_block> scores(scratch);
    const bool modified = has_modifiers(problem);
    score(first, keys, ranges, {scores.s, kv_block});
    decode_maxima({scores.s, kv_block}, scratch.alpha, rows(), begin, end, modified ? nullptr : visible);
    prefetch.fetch();
    if (keys_in_lanes) {
      decode_softmax(scratch, scores, rows(), begin, end);
      return accumulate(first, keys, ranges, {scores.p, max_decode_rows});
    }
    scores.to_lanes(scratch.s, rows(), 0, keys);
    if (modified) {
      restart_maximum(scratch);
      apply_score_modifiers(problem, tile, first, keys, visible, ranges, scratch, score_mod);
    }
    if (returned_weights.wanted()) returned_weights.keep(first, ranges, 1, scratch.s);
    weigh_block(scratch, ranges, 1);
    if (problem.drops(tile)) drop_block(problem, tile, first, ranges, scratch.s);
    if (ranges.gaps) this->clear_gaps(ranges, scratch.s, 1);
    accumulate(first, keys, ranges, {scratch.s, R});
  }

 private:
  using Mac = MultiplyAdd<T>;

  HWY_NOINLINE DecodePass(const AttentionProblem& p, const Task& query_tile, const Memory& memory)
      : Streams(p, query_tile, memory.tile, !has_row_format<T>(p.k.element),
                sizeof(T) == 4 && in_int8_tiles(p, Element::i8, p.keys_begin(query_tile)), p.value_dim, block_keys),
        kv_cache_(memory.kv_cache), queries_(memory.queries) {
    kv_cache_.begin_tile();
  }

  HWY_NOINLINE void score(std::int64_t first, int keys, const ActiveRanges& ranges, const DecodeScoreRows<T>& to) {
    const DecodeQueries<Mac> q{queries_, problem.dim, rows()};
    if constexpr (sizeof(T) == 4)
      if (int8) return decode_int8_scores<Mac, Int8Keys>(q, k, k_groups, k_stream, ranges, kv_block, to);
    by_row_format<T>(k.element, [&]<class Format>() HWY_ATTR {
      using KeyWord = typename Format::Word;
      const KeyWord* k_rows[kv_block];
      rows_of(kv_cache_.keys, k, problem.dim, {first, keys, split_end}, k_rows);
      decode_row_scores<Mac, Format>(q, k_rows, ranges, reinterpret_cast<KeyWord*>(scratch.q), k_stream, to);
    });
  }

  /// Computes PV of a block in parts; memory is prefetched between them. The weights `p` begin with the block's first
  /// key.
  HWY_NOINLINE void accumulate(std::int64_t first, int keys, const ActiveRanges& ranges, const DecodeWeights<T>& p) {
    const int begin = ranges.begin[0], end = ranges.end[0];
    const auto weights = [&p](int key) { return DecodeWeights<T>{p.p + key * p.stride, p.stride}; };
    if constexpr (sizeof(T) == 4)
      if (int8) {
        v_stream.use(end - begin);
        rows_out.for_each(
            rows(), DecodePvTile<Mac, Int8Values, DecodeWeights<T>>{
                        {{ByteColumns(v), v_groups, v_stream, begin, end}}, weights(begin), epilogue(true, true)});
        fresh = false;
        return;
      }
    by_row_format<T>(v.element, [&]<class Format>() HWY_ATTR {
      const typename Format::Item* v_rows[kv_block];
      rows_of(kv_cache_.values, v, problem.value_dim, {first, keys, split_end}, v_rows);
      for (int key = begin; key < end; key += decode_pv_keys) {
        const int last = key + decode_pv_keys < end ? key + decode_pv_keys : end;
        value_stream().use(last - key);
        rows_out.for_each(
            rows(),
            DecodePvTile<Mac, RowValues<Format>, DecodeWeights<T>>{
                {v_rows + key, last - key, &value_stream()}, weights(key), epilogue(key == begin, last == end)});
      }
    });
    fresh = false;
  }

  /// Writes the addresses of rows in memory, or of their converted copies.
  template <typename Item>
  void rows_of(typename KvBlockCache<T>::Side side, const KvRows& head, std::int64_t columns, const KvRowRange& range,
               const Item** to) const {
    if constexpr (std::is_same_v<Item, T>)
      if (converted) {
        const std::int64_t index = (range.first - problem.keys_begin(tile)) / kv_block;
        return kv_cache_.load_block(side, index, head, columns, range, to);
      }
    row_pointers(head, range.first, range.keys, to);
  }

  KvBlockCache<T> kv_cache_;
  T* queries_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
