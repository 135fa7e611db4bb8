// src/kernels/attention/pass/forward_pass-inl.h: computes the forward pass of one query tile over its keys, one block
// after another; only one block of scores is stored.
//
//            64 keys                     lanes are query rows: no sum ever crosses a lane, so a row has the bits of
//          +---------+                   kernels/ref whatever the vector width, the query tile or the thread.
//  64 rows |  S^T    |  -> weights ->  O^T += V^T P^T
//          +---------+
//  It computes in f32 and f64, for query tiles that decode does not take (path_of): mostly those of more than 8 rows.
#if defined(ATTN_FORWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_FORWARD_PASS_INL_H
#undef ATTN_FORWARD_PASS_INL_H
#else
#define ATTN_FORWARD_PASS_INL_H
#endif

#include "kernels/attention/kv/kv_block_cache-inl.h"
#include "kernels/attention/pass/decode_pass-inl.h"
#include "kernels/attention/pass/query_tile_pass-inl.h"
#include "kernels/attention/score/dropout-inl.h"
#include "kernels/attention/tiles/additive_qk-inl.h"
#include "kernels/attention/tiles/prefill_pv-inl.h"
#include "kernels/attention/tiles/prefill_qk-inl.h"

#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The forward pass of one query tile. Score: DotScore or AdditiveScore, which compute the scores of a block.
template <typename T, class Score = DotScore<T>>
class ForwardPass : public QueryTilePass<T> {
 public:
  using Pass = QueryTilePass<T>;
  using Pass::problem, Pass::tile, Pass::scratch, Pass::k, Pass::v, Pass::vectors, Pass::fresh, Pass::split_end,
      Pass::prefetch, Pass::returned_weights, Pass::score_mod;
  static constexpr int R = query_tile_rows<T>, N = lanes<T>, block_keys = kv_block;
  using Blocks = ForwardPass;  // the class whose block() is called
  using Decode = DecodePass<T>;

  /// The scratch. Converted rows come first, so that decode, which may compute the task's last query tile, finds them
  /// at the same address.
  struct Memory {
    KvBlockCache<T> kv_cache;
    Score score;
    QueryTileMemory<T> tile;

    Memory(Arena& arena, const AttentionProblem& p) : kv_cache(arena, p), score(arena, p), tile(arena, p, p.dim) {}
  };

  Score score;
  KvBlockCache<T> kv_cache;

  ForwardPass(const AttentionProblem& p, const Task& query_tile, Arena arena)
      : ForwardPass(p, query_tile, Memory(arena, p)) {}
  static Path path_of(const AttentionProblem& p, const Task& query_tile) {
    return HWY_NAMESPACE::path_of<T>(p, query_tile);
  }
  /// Returns the bytes that suffice for any query tile, in prefill and decode.
  static std::size_t scratch_bytes(const AttentionProblem& p) {
    return std::max(kernels::scratch_bytes<Memory>(p), kernels::scratch_bytes<typename Decode::Memory>(p));
  }
  /// Called before the query tiles of a task, which share one scratch.
  static void begin_task(const AttentionProblem& p, std::int64_t rows, Arena arena) {
    const Memory memory(arena, p);
    memory.kv_cache.begin_task(rows);
    memory.score.begin_task();
  }

  /// Transposes and prepares Q once; lanes beyond the rows hold 0.
  HWY_NOINLINE void load_queries() {
    if (tile.count() < vectors * N) this->clear_vector(scratch.q + (vectors - 1) * N, problem.dim);
    this->transpose_queries(scratch.q, R);
    score.prepare_queries(scratch, vectors);
  }

  /// Computes a block of keys, first ... first + keys - 1. `visible`: its mask, one word per key; null: nothing is
  /// masked.
  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const Tag<T> d;
    const T* k_rows[kv_block];
    const T* v_rows[kv_block];
    row_pointers(k, first, keys, k_rows);
    row_pointers(v, first, keys, v_rows);
    const ActiveRanges ranges =
        visible ? ActiveRanges::trimmed(visible, keys, vectors, N) : ActiveRanges::all(keys, vectors);
    for (int x = 0; x < vectors; ++x) hn::Store(hn::Load(d, scratch.m + x * N), d, scratch.alpha + x * N);
    const std::int64_t after = first + keys < split_end ? first + keys : split_end;
    if (in_tiles) {
      prefetch.soon.clear();
      if (!kv_cache.needed() && prefetch.later.lines() == 0)
        add_block({prefetch.soon, sizeof(T)}, problem, tile, first, keys);
      add_biases(prefetch.soon, problem, tile, after, std::min(after + block_keys, split_end));
      prefetch.begin_block();
    }
    scratch.ahead = in_tiles && prefetch.left() ? &prefetch : nullptr;
    const auto fetch = [&] {
      if (!in_tiles) prefetch.fetch();
    };
    fetch();
    load_rows(kv_cache.keys, k, problem.dim, first, keys, k_rows);
    score.load_keys(k_rows, keys, block_index(first));
    const bool modified = has_modifiers(problem);
    const Word* const masking = modified || !in_tiles ? nullptr : visible;
    for (int g = 0; g < ranges.count; ++g) score.group(scratch, k_rows, ranges.range(g, masking));
    fetch();
    if (modified || (visible && !in_tiles)) {
      restart_maximum(scratch);
      apply_score_modifiers(problem, tile, first, keys, visible, ranges, scratch, score_mod);
    }
    if (returned_weights.wanted()) returned_weights.keep(first, ranges, vectors, scratch.s);
    fetch();
    weigh_block(scratch, ranges, vectors);
    fetch();
    if (problem.drops(tile)) drop_block(problem, tile, first, ranges, scratch.s);
    if (ranges.gaps) this->clear_gaps(ranges, scratch.s, 1);
    load_rows(kv_cache.values, v, problem.value_dim, first, keys, v_rows);
    accumulate(ranges, v_rows);
  }

 private:
  HWY_NOINLINE ForwardPass(const AttentionProblem& p, const Task& query_tile, const Memory& memory)
      : Pass(p, query_tile, Path::prefill, memory.tile, KvBlockCache<T>::widens(p) ? 0 : sizeof(T), p.value_dim),
        score(memory.score), kv_cache(memory.kv_cache) {
    kv_cache.begin_tile();
    this->spread_next(in_tiles ? 10 + p.value_dim / 6 : 4, block_keys);
  }

  /// Whether the products are register tiles, which mask their scores and prefetch lines one by one.
  static constexpr bool in_tiles = !Score::additive;
  std::int64_t block_index(std::int64_t first) const { return (first - problem.keys_begin(tile)) / kv_block; }
  /// Points `rows` at a converted or copied block: converted if its rows have another type than T, copied if they
  /// conflict in cache sets and the block is kept (KvBlockCache). Otherwise `rows` still points into K or V.
  void load_rows(typename KvBlockCache<T>::Side side, const KvRows& head, std::int64_t columns, std::int64_t first,
                 int keys, const T** rows) const {
    if (kv_cache.needed()) kv_cache.load_block(side, block_index(first), head, columns, {first, keys, split_end}, rows);
  }

  void accumulate(const ActiveRanges& ranges, const T* const* v_rows) {
    std::int64_t column = 0;
    if constexpr (edge_tiles<T>)
      if (vectors == 4 && ranges.edge()) column = output_edge(ranges, scratch, v_rows, problem.value_dim, fresh);
    if (column == problem.value_dim) fresh = false;
    else
      this->accumulate_ranges(ranges, [&](int begin, int end, int first, int last) {
        output_block(scratch, v_rows + begin, end - begin, column, problem.value_dim, begin, first, last, fresh);
      });
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
