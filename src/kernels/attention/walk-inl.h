// src/kernels/attention/walk-inl.h: one strip of query rows on its way over the keys, block after block; nothing is
// stored but the strip.
//
//            64 keys                     lanes are query rows: no sum ever crosses a lane, so a row has the bits of
//          +---------+                   kernels/ref whatever the vector width, the strip or the thread.
//  64 rows |  S^T    |  -> weights ->  O^T += V^T P^T
//          +---------+
#if defined(ATTN_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_WALK_INL_H
#undef ATTN_WALK_INL_H
#else
#define ATTN_WALK_INL_H
#endif

#include "kernels/attention/additive_score-inl.h"
#include "kernels/attention/byte_groups.h"
#include "kernels/attention/dropout-inl.h"
#include "kernels/attention/few_rows-inl.h"
#include "kernels/attention/kept-inl.h"
#include "kernels/attention/modify-inl.h"
#include "kernels/attention/next_head.h"
#include "kernels/attention/output_tile-inl.h"
#include "kernels/attention/score_tile-inl.h"
#include "kernels/attention/stored_rows-inl.h"
#include "kernels/attention/strip_output-inl.h"
#include "kernels/turn-inl.h"
#include "kernels/attention/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// One strip on its way over the keys. Score: DotScore or AdditiveScore, how the scores of a block are made.
template <typename T, typename Stored = T, class Score = DotScore<T>>
class Walk {
 public:
  static constexpr int R = strip_rows<T>, N = lanes<T>, block_keys = key_block;
  static_assert(R / N <= most_vectors);
  using Compute = T;
  using Blocks = Walk;  // the class that has the blocks' code
  static constexpr bool takes_bytes = Score::takes_bytes && sizeof(Stored) == sizeof(float);

  const AttentionProblem& problem;
  LaneMap map;
  Strip<T> strip;
  Score score;
  ScoreVectors<T> score_mod;
  KeptScores<T> kept_scores;
  StoredRows<Stored> stored;
  int vectors;
  KeyRows k, v;
  bool fresh = true;      // nothing folded into the span yet
  bool any_span = false;  // a span was merged
  NextHead next;
  std::int64_t next_lines = 0;  // to be asked for in each tile of a block, or quarter
  bool few_bytes = false;       // few rows over 8 bits, in the form that their tiles read
  bool few;                     // few rows: their output is `rows_out`
  RowOutput<T> rows_out;
  bool keys_in_lanes = false;  // few rows whose scores nobody changes: nor do their weights need rows in the lanes
  static constexpr std::int64_t far_bytes = std::int64_t{8} << 20;
  std::int64_t span_end = 0;
  std::int64_t walk_end = 0;      // of the spans that are walked, one after the other
  int slice_keys = few_keys<T>;   // few rows: keys of a tile, after which more memory may be asked for
  LinesAhead k_ahead, v_ahead;    // few rows
  ByteGroups k_groups, v_groups;  // few rows over 8 bits
  bool far;                       // K and V of the call are too large to stay in the caches
  std::int64_t next_block = -1;   // the key at which what they ask for goes on

  Walk(const AttentionProblem& p, const LaneMap& lane_map, void* scratch)
      : Walk(p, lane_map, scratch, p.dim, p.value_dim) {}
  static std::size_t scratch_bytes(const AttentionProblem& p) {
    return Strip<T>::bytes(p.dim, p.value_dim) + Score::bytes(p, p.dim) + ScoreVectors<T>::bytes(p) +
           StoredRows<Stored>::bytes(p);
  }
  /// Before the strips of a task, which share one scratch.
  static void begin_task(const AttentionProblem& p, std::int64_t rows, void* scratch) {
    char* const score = static_cast<char*>(scratch) + Strip<T>::bytes(p.dim, p.value_dim);
    Score::begin_task(score);
    StoredRows<Stored>::begin_task(p, rows, score + Score::bytes(p, p.dim) + ScoreVectors<T>::bytes(p));
  }

 protected:
  /// `q_dim`: columns of the strip's own place for queries; `v_columns`: those that a row of V has where it is read.
  Walk(const AttentionProblem& p, const LaneMap& lane_map, void* scratch, std::int64_t q_dim, std::int64_t v_columns)
      : problem(p), map(lane_map), strip(scratch, q_dim, p.value_dim),
        score(p, static_cast<char*>(scratch) + Strip<T>::bytes(q_dim, p.value_dim)),
        score_mod(p, map, static_cast<char*>(scratch) + Strip<T>::bytes(q_dim, p.value_dim) + Score::bytes(p, q_dim)),
        kept_scores(p, lane_map), stored(p, static_cast<char*>(scratch) + Strip<T>::bytes(q_dim, p.value_dim) +
                                                Score::bytes(p, q_dim) + ScoreVectors<T>::bytes(p)),
        vectors(static_cast<int>((map.count() + N - 1) / N)),
        k(rows_of_head(p.k, p.k_stride, map.batch, p.key_head(map.head))),
        v(rows_of_head(p.v, p.v_stride, map.batch, p.value_head(map.head))), next(p, lane_map, sizeof(Stored)),
        few(RowOutput<T>::takes(map.count(), p.value_dim)), rows_out(strip.block, v_columns),
        far(p.batch * (p.k_heads * p.dim + p.v_heads * p.value_dim) * p.k_rows * bytes_of(k.element) > far_bytes) {
    spread_next(in_tiles() ? tiles_of_block() : 4, block_keys);
    keys_in_lanes =
        few && Score::keys_in_lanes && !has_modifiers(p) && !kept_scores.wanted() && !p.drops() && p.keep == nullptr;
    if constexpr (takes_bytes)
      few_bytes = few && in_byte_tiles(p, tiles_read_sm8 && p.k.element == Element::sm8 ? Element::sm8 : Element::i8,
                                       p.keys_begin(map.batch));
  }

 public:
  /// Q turned and prepared once; lanes beyond the rows hold 0.
  HWY_NOINLINE void load_queries() {
    if (map.count() < vectors * N) clear(strip.q + (vectors - 1) * N, problem.dim);
    map.for_each_piece(
        problem.q_stride, [&](std::int64_t first, std::int64_t rows, std::int64_t start, std::int64_t stride) HWY_ATTR {
          T* const to = strip.q + first;
          if (bytes_of(problem.element) == sizeof(T))
            turn(static_cast<const T*>(problem.q) + start, stride, rows, problem.dim, to, std::int64_t{R});
          else if constexpr (sizeof(T) == 4)
            turn_widened(static_cast<const std::uint16_t*>(problem.q) + start, stride, rows, to);
        });
    score.prepare_queries(strip, vectors, few ? static_cast<int>(map.count()) : 0, &k_ahead);
    if (!few) return;
    if (!keys_in_lanes) clear_scores(strip.s, block_keys);
    FewBlock<T, key_block>(strip).clear(key_block);
  }
  /// Queries of bf16 or f16, so many columns of every row at a time as the place for scores holds.
  void turn_widened(const std::uint16_t* q, std::int64_t stride, std::int64_t rows, T* to) {
    constexpr std::int64_t columns = key_block;
    for (std::int64_t c = 0, count; c < problem.dim; c += count) {
      count = problem.dim - c < columns ? problem.dim - c : columns;
      for (std::int64_t i = 0; i < rows; ++i)
        widen_half_row(problem.element, q + i * stride + c, count, strip.s + i * columns);
      turn(strip.s, columns, rows, count, to + c * R, std::int64_t{R});
    }
  }
  /// A vector of each column.
  static void clear(T* of_rows, std::int64_t columns) {
    const Tag<T> d;
    for (std::int64_t c = 0; c < columns; ++c) hn::Store(hn::Zero(d), d, of_rows + c * R);
  }
  /// So that lanes without a row hold numbers.
  void clear_scores(T* s, int keys) const {
    const Tag<T> d;
    for (int r = 0; r < keys; ++r) hn::Store(hn::Zero(d), d, s + r * R);
  }

  HWY_NOINLINE void begin_span(std::int64_t end) {
    span_end = end;
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(minus_infinity<T>(), d, strip.m + x * N);
      hn::Store(hn::Zero(d), d, strip.l + x * N);
    }
    fresh = true;
  }

  /// Few rows: their keys and values are asked for from the first that is seen, anew where blocks were left out.
  void ask_ahead(std::int64_t first, int keys, const Groups& groups) {
    if (few_bytes) {
      k_groups.load(k, first, walk_end, keys);
      v_groups.load(v, first, walk_end, keys);
    }
    if (!few || stored.needed()) return;
    if (first != next_block) {
      k_ahead.begin(k, problem.dim, first + groups.begin[0], walk_end, far);
      v_ahead.begin(v, problem.value_dim, first + groups.begin[0], walk_end, far);
    }
    next_block = first + keys;
  }

  /// Keys first ... first + keys - 1, of which `visible` tells who sees what; null: all rows see all.
  HWY_NOINLINE void block(std::int64_t first, int keys, const Word* visible) {
    const Tag<T> d;
    const T* k_rows[key_block];
    const T* v_rows[key_block];
    if (!few_bytes) {
      row_pointers(k, first, keys, k_rows);
      row_pointers(v, first, keys, v_rows);
    }
    const Groups groups = visible ? Groups::trimmed(visible, keys, vectors, N) : Groups::all(keys, vectors);
    ask_ahead(first, keys, groups);
    for (int x = 0; x < vectors; ++x) hn::Store(hn::Load(d, strip.m + x * N), d, strip.alpha + x * N);
    const std::int64_t after = first + keys < span_end ? first + keys : span_end;
    TileAhead ahead{.next = &next, .biases = {}, .next_lines = next_lines};
    if (problem.bias_count > 0)
      ahead.biases = BiasLines(problem, map, after, after + block_keys < span_end ? after + block_keys : span_end);
    FetchAhead rows_ahead;
    if (in_tiles() && next.lines() == 0 && reads_far() && !stored.keeps(block_index(first))) {
      rows_ahead = far_rows(first, keys, k_rows, v_rows);
      ahead.next = &rows_ahead;
      ahead.next_lines = rows_ahead.lines() / tiles_of_block() + 1;
    }
    strip.ahead = in_tiles() && (ahead.next->lines() > 0 || ahead.biases.left()) ? &ahead : nullptr;
    const auto fetch = [&] {
      if (!in_tiles()) ahead.fetch();
    };
    fetch();
    const std::int64_t index = block_index(first);
    if (!few_bytes && stored.needed())
      stored.load_block(stored.keys, index, k, problem.dim, {first, keys, span_end}, k_rows);
    score.load_keys(k_rows, keys, index);
    const bool modified = has_modifiers(problem);
    const Word* const hiding = modified || !Score::hides ? nullptr : visible;
    const int rows = static_cast<int>(map.count());
    FewBlock<T, key_block> few_block(strip);
    if (keys_in_lanes && groups.gaps) few_block.hide(rows);
    if (few_bytes) score_bytes(groups, hiding);
    else
      for (int g = 0; g < groups.count; ++g)
        for_each_slice(groups.range(g, hiding),
                       [&](const ScoreRange& range) HWY_ATTR { score.group(strip, k_rows, range); });
    fetch();
    if (keys_in_lanes) {
      weigh_few(strip, few_block, rows, groups.begin[0], groups.end[0]);
      return few_values(first, keys, groups, v_rows);
    }
    if (few && Score::keys_in_lanes) few_block.to_lanes(strip.s, rows, 0, keys);
    if (modified || (visible && !Score::hides)) {
      restart_maximum(strip);
      modify_block(problem, map, first, keys, visible, groups, strip, score_mod);
    }
    if (kept_scores.wanted()) kept_scores.keep(first, groups, vectors, strip.s);
    fetch();
    weigh_block(strip, groups, vectors);
    fetch();
    if (problem.drops() || problem.keep) drop_block(problem, map, first, groups, strip.s);
    if (groups.gaps) clear_gaps(groups, strip.s, 1);
    if (few) return few_values(first, keys, groups, v_rows);
    if (stored.needed()) load_values(first, keys, v_rows);
    fold(groups, v_rows);
  }

  /// What the next strip needs is asked for so many times a block of so many keys.
  void spread_next(std::int64_t asks, std::int64_t keys) {
    if (!stored.widens() && next.lines() > 0)
      next_lines = next.lines() * keys / (asks * (next.keys() > keys ? next.keys() : keys)) + 1;
  }
  /// Whether products go in tiles, which ask for memory one by one.
  bool in_tiles() const { return Score::keys_in_lanes && sizeof(Stored) == sizeof(T) && !few; }
  std::int64_t tiles_of_block() const { return 10 + problem.value_dim / 6; }

  /// Whether K and V of the head are too large to stay near: then each block asks for its values while scores are made,
  /// and for the keys of the next. (1, 16, 2048, 128) gains 7 %.
  bool reads_far() const {
    return !stored.widens() && problem.k.pages == nullptr &&
           problem.k_rows * (problem.dim + problem.value_dim) * static_cast<std::int64_t>(sizeof(T)) >
               NextHead::most_bytes;
  }
  FetchAhead far_rows(std::int64_t first, int keys, const T* const* k_rows, const T* const* v_rows) const {
    constexpr std::int64_t bytes = sizeof(T);
    const std::int64_t left = problem.keys_end(map.batch) - first - keys;
    FetchAhead rows;
    rows.add(v_rows[0], bytes * problem.value_dim, bytes * problem.v.row_stride, keys);
    if (left > 0)
      rows.add(k_rows[0] + keys * problem.k.row_stride, bytes * problem.dim, bytes * problem.k.row_stride,
               left < block_keys ? left : block_keys);
    return rows;
  }

  std::int64_t block_index(std::int64_t first) const { return (first - problem.keys_begin(map.batch)) / key_block; }
  void load_values(std::int64_t first, int keys, const T** v_rows) {
    stored.load_block(stored.values, block_index(first), v, problem.value_dim, {first, keys, span_end}, v_rows);
  }

  /// The block's values to few rows, weighted.
  void few_values(std::int64_t first, int keys, const Groups& groups, const T** v_rows) {
    const int begin = groups.begin[0], end = groups.end[0];
    const T* const p = keys_in_lanes ? FewBlock<T, key_block>(strip).p : strip.s;
    const std::int64_t p_stride = keys_in_lanes ? few_rows : R;
    if (few_bytes) {
      fold_bytes(begin, end, p + begin * p_stride, p_stride);
    } else {
      if (stored.needed()) load_values(first, keys, v_rows);
      for (int key = begin; key < end; key += few_part) {
        const int last = key + few_part < end ? key + few_part : end;
        if (!stored.needed()) v_ahead.use(last - key);
        rows_out.for_each(static_cast<int>(map.count()),
                          FewRowsTile<T>{v_rows + key, last - key, p + key * p_stride, p_stride,
                                         fold_few_part(key == begin, last == end)});
      }
    }
    fresh = false;
  }
  FewFold<T> fold_few_part(bool begins, bool ends) {
    return {strip.alpha, rows_out.stride(), rows_out.to_sums(), &v_ahead, fresh, begins, ends};
  }

  void score_bytes(const Groups& groups, const Word* visible) {
    if constexpr (takes_bytes)
      for (int g = 0; g < groups.count; ++g) score.group_bytes(strip, k, k_groups, groups.range(g, visible));
  }

  void fold_bytes(int key, int end, const T* p, std::int64_t p_stride) {
    if constexpr (takes_bytes) {
      v_groups.use<asks_ahead<float>>(key, end);
      by_form(v, [&]<Element FORM>() HWY_ATTR {
        rows_out.for_each(static_cast<int>(map.count()), FewRowsByteTile<FORM>{ByteColumns(v), v_groups, key, end, p,
                                                                               p_stride, fold_few_part(true, true)});
      });
    }
  }

  /// score(range), all at once; where rows are few, tile by tile, since what lies ahead is asked for at their pace.
  template <class F>
  HWY_INLINE void for_each_slice(ScoreRange range, F&& score_of) {
    if (!few || stored.needed()) return score_of(range);
    for (const int end = range.end; range.key < end; range.key = range.end) {
      range.end = end - range.key < slice_keys + N ? end : range.key + slice_keys;  // no rest below a vector
      k_ahead.use(range.end - range.key);
      score_of(range);
    }
  }

  /// The output of the span; of the spans before.
  StripOutput<T> output() const { return output_shape().beside(few ? rows_out.memory() : strip.o, R); }
  StripOutput<T> total() const { return output_shape().beside(strip.o_total, R); }
  StripOutput<T> output_shape() const {
    if (few) return StripOutput<T>::of_rows(nullptr, problem.value_dim, static_cast<int>(map.count()));
    return StripOutput<T>::of_lanes(nullptr, problem.value_dim, R, vectors);
  }

  /// o = fma(o, alpha, the block's chain), vectors of one range of keys at a time: chain<FOLD>(first key, end, first
  /// vector, last).
  template <class F>
  void fold_ranges(const Groups& groups, F&& chain) {
    for (int x = 0, last; x < vectors; x = last) {
      last = groups.same_range(x, vectors);
      if (groups.begin[x] == groups.end[x]) {
        if (fresh) clear(strip.o, x, last);
      } else if (fresh) {
        chain.template operator()<Fold::first>(groups.begin[x], groups.end[x], x, last);
      } else {
        chain.template operator()<Fold::rescale>(groups.begin[x], groups.end[x], x, last);
      }
    }
    fresh = false;
  }

  void fold(const Groups& groups, const T* const* v_rows) {
    std::int64_t column = 0;
    if constexpr (edge_tiles<T>)
      if (vectors == 4 && groups.edge()) column = output_edge(groups, strip, v_rows, problem.value_dim, fresh);
    if (column == problem.value_dim) fresh = false;
    else
      fold_ranges(groups, [&]<Fold FOLD>(int begin, int end, int first, int last) {
        output_block(strip, v_rows + begin, end - begin, column, problem.value_dim, begin, first, last,
                     FOLD == Fold::first);
      });
  }

  /// Weight 0 between the keys of a vector that takes no part there. A row of weights stands for `keys_of_row` keys.
  template <typename P>
  void clear_gaps(const Groups& groups, P* weights, int keys_of_row) {
    for (int g = 0; g < groups.count; ++g)
      for (int v = 0; v < vectors; ++v) {
        if (v >= groups.first[g] && v < groups.last[g]) continue;
        const int begin = groups.key[g] > groups.begin[v] ? groups.key[g] : groups.begin[v];
        const int end = groups.key[g + 1] < groups.end[v] ? groups.key[g + 1] : groups.end[v];
        for (int r = begin / keys_of_row; r * keys_of_row < end; ++r)
          std::memset(weights + r * R + v * N, 0, N * sizeof(P));
      }
  }

  void clear(T* o, int first, int last) {
    const Tag<T> d;
    for (std::int64_t c = 0; c < problem.value_dim; ++c)
      for (int x = first; x < last; ++x) hn::Store(hn::Zero(d), d, o + c * R + x * N);
  }

  /// Nothing seen yet: maximum -inf, sum 0.
  HWY_NOINLINE void clear_totals() {
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(minus_infinity<T>(), d, strip.m_total + x * N);
      hn::Store(hn::Zero(d), d, strip.l_total + x * N);
    }
    total().clear();
  }

  /// The span's m, l, o go into the totals; the first span that saw something is the total.
  HWY_NOINLINE void merge_span() {
    if (fresh) return;
    if (any_span) return merge(strip.m, strip.l, output());
    const Tag<T> d;
    for (int x = 0; x < vectors; ++x) {
      hn::Store(hn::Load(d, strip.m + x * N), d, strip.m_total + x * N);
      hn::Store(hn::Load(d, strip.l + x * N), d, strip.l_total + x * N);
    }
    any_span = true;
    if (few) output().copy_to(total());
    else std::swap(strip.o, strip.o_total);
  }

  /// A span's results into the totals.
  HWY_NOINLINE void merge(const T* m_span, const T* l_span, const StripOutput<T>& o_span) {
    const Tag<T> d;
    T *const own = strip.alpha, *const of_span = strip.sum;  // factors; no block needs these places now
    for (int x = 0; x < vectors; ++x) {
      const auto m = hn::Load(d, strip.m_total + x * N), other = hn::Load(d, m_span + x * N);
      const auto maximum = hn::Max(m, other);
      const auto reference = safe_reference<T>(maximum);
      const auto a = weight_of<T>(m, reference), s = weight_of<T>(other, reference);
      hn::Store(maximum, d, strip.m_total + x * N);
      const auto l = hn::MulAdd(hn::Load(d, strip.l_total + x * N), a, hn::Mul(hn::Load(d, l_span + x * N), s));
      hn::Store(l, d, strip.l_total + x * N);
      hn::Store(a, d, own + x * N);
      hn::Store(s, d, of_span + x * N);
    }
    total().merge(own, o_span, of_span);
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
