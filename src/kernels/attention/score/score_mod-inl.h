// src/kernels/attention/score/score_mod-inl.h: applies score_mod to a block of scores: the caller's expression in
// vectors, or the caller's callable.
//  An expression is a list of steps. Each step is a loop over 16 keys and the vectors that take part, so that its
// operands stay in L1 and the operation is chosen once per loop. Values that do not depend on the pair are computed
// once per query tile (rows) or once per block (keys; distances, of which 64 x 64 pairs of one head have 127). Every
// operand is read with a key stride and a vector stride, 0 where it does not vary.
#if defined(ATTN_SCORE_MOD_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_SCORE_MOD_INL_H
#undef ATTN_SCORE_MOD_INL_H
#else
#define ATTN_SCORE_MOD_INL_H
#endif

#include "kernels/attention/mask/active_vectors.h"
#include "kernels/attention/mask/mask_program.h"
#include "kernels/attention/query_lanes-inl.h"
#include "kernels/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

/// The values of a tile: element (key r, vector v) begins at `at[r * key + v * vector]`.
template <typename T>
struct Spread {
  T* at;
  int key, vector;
  HWY_INLINE T* operator()(int r, int v) const { return at + r * key + v * vector; }
};

/// The pairs that are evaluated together: keys key ... key + keys - 1 of the block and vectors first ... last - 1.
/// `scores`: those of the block.
template <typename T>
struct ScoreWindow {
  int keys, first, last, key;
  T* scores;

  /// Calls f(key, vector) for all of them.
  template <typename F>
  HWY_INLINE void for_each(F&& f) const {
    for (int r = 0; r < keys; ++r)
      for (int v = first; v < last; ++v) f(r, v);
  }
};

template <typename T>
class ScoreVectors {
 public:
  static constexpr int N = lanes<T>, chunk = score_chunk;
  using Window = ScoreWindow<T>;

  /// Returns the number of elements that the program's values take, for the query tiles of a problem.
  static std::int64_t elements(const AttentionProblem& problem) {
    if (problem.score_mod.empty()) return 0;
    const std::size_t any = score_place_elements(problem.score_mod, query_tile_rows<T>, N),
                      one = score_place_elements(problem.score_mod_one_head, query_tile_rows<T>, N);
    return static_cast<std::int64_t>(any > one ? any : one);
  }
  static const ScoreProgram& program_of(const AttentionProblem& problem, const Task& tile) {
    return tile.heads == 1 && !problem.score_mod_one_head.empty() ? problem.score_mod_one_head : problem.score_mod;
  }

  ScoreVectors(const AttentionProblem& problem, const Task& tile, void* memory)
      : ScoreVectors(problem, tile, program_of(problem, tile), query_tile_rows<T>, memory) {}
  /// For another program, or for query tiles with another number of rows.
  HWY_NOINLINE ScoreVectors(const AttentionProblem& problem, const Task& tile, const ScoreProgram& program, int rows,
                            void* memory)
      : problem_(problem), tile_(tile), program_(program), rows_(rows) {
    T* next = static_cast<T*>(memory);
    for (int r = 0; r < score_rates; ++r) {
      places_[r] = next;
      elements_[r] = score_place_elements(r, rows, N);
      next += program_.places[r] * elements_[r];
    }
  }

  /// Applies the expression to `scores` of keys first ... first + keys - 1, a block, in place.
  void apply(std::int64_t first, int keys, const ActiveRanges& ranges, T* scores) {
    in_windows(first, keys, ranges, scores, [](const Window&) {});
  }
  /// Computes the values that depend on rows only, before a block is computed.
  void prepare() {
    if (!begun_) begin();
  }
  /// Does the same as `apply`, and calls visit(window) when the values of a window are computed.
  template <typename F>
  void in_windows(std::int64_t first, int keys, const ActiveRanges& ranges, T* scores, F&& visit) {
    begin_block(first, keys);
    for (int g = 0; g < ranges.count; ++g)
      for (int key = ranges.key[g]; key < ranges.key[g + 1]; key += chunk) {
        const int count = ranges.key[g + 1] - key < chunk ? ranges.key[g + 1] - key : chunk;
        const Window window{count, ranges.first[g], ranges.last[g], key, scores};
        run(ScoreRate::pair, window);
        visit(window);
      }
  }

  /// Returns where the values of a place (register) are for the pairs of a window. If `rate` is `distance`: for all
  /// distances, from that of the farthest key on.
  Spread<T> spread(ScorePlace place, ScoreRate rate, const Window& w) const {
    T* const start = at(place.rate, place.place);
    switch (place.rate) {
      case ScoreRate::once: return {start, 0, 0};
      // steps of rate `distance` read values of the head only, which are the same in every lane
      case ScoreRate::row: return {start, 0, rate == ScoreRate::distance ? 0 : N};
      case ScoreRate::key: return {start + w.key * N, N, 0};
      case ScoreRate::distance:
        return rate == ScoreRate::distance ? Spread<T>{start, 0, N} : Spread<T>{start + kv_block - 1 - w.key, -1, N};
      default: return {place.place == 0 ? w.scores + w.key * rows_ : start, rows_, N};
    }
  }

 private:
  static void fill(T* to, int count, std::int64_t value) {
    for (int n = 0; n < count; ++n) to[n] = static_cast<T>(value);
  }

  /// Computes the values that depend only on the key or the distance.
  HWY_NOINLINE void begin_block(std::int64_t first, int keys) {
    prepare();
    const std::int64_t position = key_position(problem_, tile_, first);
    if (const int place = program_.symbols.key; place >= 0)
      for (int r = 0; r < keys; ++r) fill(at(ScoreRate::key, place) + r * N, N, position + r);
    run(ScoreRate::key, {keys, 0, 1, 0, nullptr});
    for (int bottom_right = 0; bottom_right < 2; ++bottom_right)
      if (const int place = program_.symbols.distance[bottom_right]; place >= 0)
        fill_distances(at(ScoreRate::distance, place),
                       position - row_position(problem_, tile_, tile_.row, bottom_right != 0), keys);
    run(ScoreRate::distance, {1, 0, (rows_ + kv_block) / N, 0, nullptr});
  }

  /// Writes the distances j - i in descending order: that of key r and lane l is element 63 - r + l. Elements without a
  /// pair repeat the nearest distance of a pair.
  void fill_distances(T* to, std::int64_t first, int keys) const {
    const std::int64_t most = first + keys - 1, least = first - (tile_.rows - 1);
    for (int n = 0; n < rows_ + kv_block; ++n) {
      const std::int64_t distance = first + kv_block - 1 - n;
      fill(to + n, 1, distance > most ? most : distance < least ? least : distance);
    }
  }

  /// Computes the values that do not change along the keys. Lanes without a row get the position of the last row.
  HWY_NOINLINE void begin() {
    begun_ = true;
    const ScoreSymbols& symbols = program_.symbols;
    for (int n = 0; n < program_.constant_count; ++n)
      for (int lane = 0; lane < N; ++lane) at(ScoreRate::once, n)[lane] = static_cast<T>(program_.constants[n]);
    if (symbols.batch >= 0) fill(at(ScoreRate::once, symbols.batch), N, problem_.item(tile_));
    for (int lane = 0; lane < rows_; ++lane) {
      const std::int64_t place = lane < tile_.count() ? lane : tile_.count() - 1, row = tile_.row + place % tile_.rows;
      if (symbols.head >= 0) fill(at(ScoreRate::row, symbols.head) + lane, 1, tile_.head + place / tile_.rows);
      for (int bottom_right = 0; bottom_right < 2; ++bottom_right)
        if (symbols.row[bottom_right] >= 0)
          fill(at(ScoreRate::row, symbols.row[bottom_right]) + lane, 1,
               row_position(problem_, tile_, row, bottom_right != 0));
    }
    run(ScoreRate::once, {1, 0, 1, 0, nullptr});
    run(ScoreRate::row, {1, 0, rows_ / N, 0, nullptr});
  }

  T* at(ScoreRate rate, int place) const {
    return places_[static_cast<int>(rate)] + place * elements_[static_cast<int>(rate)];
  }

  void run(ScoreRate rate, const Window& window) const {
    const int r = static_cast<int>(rate);
    for (int n = program_.begin[r]; n < program_.begin[r + 1]; ++n) run_step(program_.steps[n], window);
  }

  HWY_NOINLINE void run_step(const ScoreStep& step, const Window& w) const {
    const Tag<T> d;
    const Spread<T> to = spread(step.to, step.to.rate, w);
    if (step.op == ScoreStepOp::lookup) return look_up(step, w);
    const Spread<T> a = spread(step.from[0], step.to.rate, w), b = spread(step.from[1], step.to.rate, w),
                    c = spread(step.from[2], step.to.rate, w);
    const auto zero = hn::Zero(d), one = hn::Set(d, T(1));
    const auto unary = [&](auto&& f) HWY_ATTR {
      w.for_each([&](int r, int v) HWY_ATTR { hn::Store(f(hn::LoadU(d, a(r, v))), d, to(r, v)); });
    };
    const auto binary = [&](auto&& f) HWY_ATTR {
      w.for_each([&](int r, int v)
                     HWY_ATTR { hn::Store(f(hn::LoadU(d, a(r, v)), hn::LoadU(d, b(r, v))), d, to(r, v)); });
    };
    using V = Vector<T>;
    switch (step.op) {
      case ScoreStepOp::copy: return unary([&](V x) HWY_ATTR { return x; });
      case ScoreStepOp::neg:
        return step.whole ? unary([&](V x) HWY_ATTR { return hn::Sub(zero, x); })
                          : unary([&](V x) HWY_ATTR { return hn::Neg(x); });
      case ScoreStepOp::abs: return unary([&](V x) HWY_ATTR { return hn::Abs(x); });
      case ScoreStepOp::exp: return unary([&](V x) HWY_ATTR { return exp(d, x); });
      case ScoreStepOp::tanh: return unary([&](V x) HWY_ATTR { return tanh(d, x); });
      case ScoreStepOp::op_not: return unary([&](V x) HWY_ATTR { return hn::Sub(one, x); });
      case ScoreStepOp::add: return binary([&](V x, V y) HWY_ATTR { return hn::Add(x, y); });
      case ScoreStepOp::sub: return binary([&](V x, V y) HWY_ATTR { return hn::Sub(x, y); });
      case ScoreStepOp::mul:  // adds +0, because no integer is -0
        return step.whole ? binary([&](V x, V y) HWY_ATTR { return hn::MulAdd(x, y, zero); })
                          : binary([&](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
      case ScoreStepOp::div: return binary([&](V x, V y) HWY_ATTR { return hn::Div(x, y); });
      case ScoreStepOp::floor_div:
        return binary([&](V x, V y) HWY_ATTR { return hn::Add(hn::Floor(hn::Div(x, y)), zero); });
      case ScoreStepOp::mod:
        return binary([&](V x, V y) HWY_ATTR { return hn::NegMulAdd(y, hn::Floor(hn::Div(x, y)), x); });
      case ScoreStepOp::min:
        return binary([&](V x, V y)
                          HWY_ATTR { return hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(y, x), y, x), y); });
      case ScoreStepOp::max:
        return binary([&](V x, V y)
                          HWY_ATTR { return hn::IfThenElse(hn::Eq(y, y), hn::IfThenElse(hn::Lt(x, y), y, x), y); });
      case ScoreStepOp::lt: return binary([&](V x, V y) HWY_ATTR { return hn::IfThenElseZero(hn::Lt(x, y), one); });
      case ScoreStepOp::le: return binary([&](V x, V y) HWY_ATTR { return hn::IfThenElseZero(hn::Le(x, y), one); });
      case ScoreStepOp::eq: return binary([&](V x, V y) HWY_ATTR { return hn::IfThenElseZero(hn::Eq(x, y), one); });
      case ScoreStepOp::op_and: return binary([&](V x, V y) HWY_ATTR { return hn::Mul(x, y); });
      case ScoreStepOp::op_or: return binary([&](V x, V y) HWY_ATTR { return hn::Max(x, y); });
      case ScoreStepOp::where:
        return w.for_each([&](int r, int v) HWY_ATTR {
          hn::Store(hn::IfThenElse(hn::Eq(hn::LoadU(d, a(r, v)), zero), hn::LoadU(d, c(r, v)), hn::LoadU(d, b(r, v))),
                    d, to(r, v));
        });
      case ScoreStepOp::lookup: return;
    }
  }

  /// Looks up one element per lane. The index is exact: a 32-bit integer in f32; in f64 the low bits of an f64.
  HWY_NOINLINE void look_up(const ScoreStep& step, const Window& w) const {
    const Tag<T> d;
    const hn::RebindToSigned<Tag<T>> di;
    const ScoreLookup& lookup = program_.lookups[step.lookup];
    const T* const data = static_cast<const T*>(lookup.data);
    const Spread<T> to = spread(step.to, step.to.rate, w);
    Spread<T> index[4];
    for (int n = 0; n < lookup.rank; ++n) index[n] = spread(step.from[n], step.to.rate, w);
    w.for_each([&](int r, int v) HWY_ATTR {
      if constexpr (sizeof(T) == 4) {
        auto offset = hn::Zero(di);
        for (int n = 0; n < lookup.rank; ++n)
          offset = hn::Add(offset, hn::Mul(hn::ConvertTo(di, hn::LoadU(d, index[n](r, v))),
                                           hn::Set(di, static_cast<std::int32_t>(lookup.stride[n]))));
        hn::Store(hn::GatherIndex(d, data, offset), d, to(r, v));
      } else {
        const auto rounder = hn::Set(d, static_cast<T>(Constants<double>::rounder));
        auto offset = rounder;
        for (int n = 0; n < lookup.rank; ++n)
          offset = hn::MulAdd(hn::LoadU(d, index[n](r, v)), hn::Set(d, static_cast<T>(lookup.stride[n])), offset);
        hn::Store(hn::GatherIndex(d, data, hn::Sub(hn::BitCast(di, offset), hn::BitCast(di, rounder))), d, to(r, v));
      }
    });
  }

  const AttentionProblem& problem_;
  const Task tile_;
  const ScoreProgram& program_;
  const int rows_;
  int elements_[score_rates];
  T* places_[score_rates];
  bool begun_ = false;
};

/// Calls the callable with the tile of each head: its rows and all keys of the block.
template <typename T>
HWY_NOINLINE void call_back(const AttentionProblem& problem, const Task& tile, std::int64_t first, int keys,
                            T* scores) {
  const ScoreCall& callback = problem.score_callback;
  for (std::int64_t n = 0; n < tile.heads; ++n)
    callback.call(callback.context, {.data = scores + n * tile.rows,
                                     .f64 = sizeof(T) == 8,
                                     .rows = tile.rows,
                                     .keys = keys,
                                     .row_stride = 1,
                                     .key_stride = query_tile_rows<T>,
                                     .batch = problem.item(tile),
                                     .head = tile.head + n,
                                     .row = tile.row,
                                     .key = first,
                                     .row_position = row_position(problem, tile, tile.row, callback.bottom_right),
                                     .key_position = key_position(problem, tile, first)});
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
