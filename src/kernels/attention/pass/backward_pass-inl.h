// src/kernels/attention/pass/backward_pass-inl.h: computes the backward pass of 64 query rows over their keys in f32
// and f64.
#if defined(ATTN_BACKWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BACKWARD_PASS_INL_H
#undef ATTN_BACKWARD_PASS_INL_H
#else
#define ATTN_BACKWARD_PASS_INL_H
#endif

#include "kernels/attention/pass/parameter_gradients-inl.h"
#include "kernels/attention/tiles/backward_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
class BackwardPass : public GradientSums<T> {
  using Sums = GradientSums<T>;

 protected:
  using Sums::g_, Sums::p_, Sums::rows_, Sums::scratch_, Sums::vectors_;

 public:
  static constexpr int R = query_block, N = lanes<T>;
  static_assert(R / N <= most_vectors);
  using typename Sums::Blocks;

  BackwardPass(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Sums(g, rows, arena), at_(arena, g.problem) {
    begin_step(ahead_, g, rows, sizeof(T), N * tile_vectors * gradient_tile(tile_vectors));
    k_ = {static_cast<const T*>(p_.k.base) + rows.batch * p_.k_stride[0] + p_.key_head(rows.head) * p_.k_stride[1],
          p_.k.row_stride};
    v_ = {static_cast<const T*>(p_.v.base) + rows.batch * p_.v_stride[0] + p_.value_head(rows.head) * p_.v_stride[1],
          p_.v.row_stride};
  }
  static std::size_t bytes(const AttentionProblem& p) {
    return scratch_bytes<BackwardScratch<T>, GradientOperands<T>>(p);
  }

  const AttentionGradient& gradient() const { return g_; }
  const Task& task() const { return rows_; }
  void clear_dq() { Sums::clear(at_.dq, p_.dim); }
  /// Reads the sums over earlier keys; returns whether there are any.
  HWY_NOINLINE bool load_dq() {
    if (g_.rows.dq == nullptr || g_.rows.begins) return false;
    clear_dq();
    transpose(static_cast<const T*>(g_.rows.dq) + Sums::saved() * p_.dim, p_.dim, rows_.rows, p_.dim, at_.dq,
              std::int64_t{R});
    return true;
  }

  /// Loads Q (scaled) and dO, as rows and transposed.
  HWY_NOINLINE void load_rows() {
    Sums::load_saved();
    load_queries();
    load_dout();
    make_delta();
  }
  HWY_NOINLINE void load_queries() {
    const auto* q = static_cast<const T*>(p_.q) + rows_.batch * p_.q_stride[0] + rows_.head * p_.q_stride[1] +
                    rows_.row * p_.q_stride[2];
    copy_rows({q, p_.q_stride[2]}, p_.dim, static_cast<T>(p_.scale), at_.q_rows);
    transpose_rows(at_.q_rows, p_.dim, at_.q);
  }
  HWY_NOINLINE void load_dout() {
    const auto* dout = static_cast<const T*>(g_.dout) + rows_.batch * g_.dout_stride[0] +
                       rows_.head * g_.dout_stride[1] + rows_.row * g_.dout_stride[2];
    copy_rows({dout, g_.dout_stride[2]}, p_.value_dim, T(1), at_.dout_rows);
    transpose_rows(at_.dout_rows, p_.value_dim, at_.dout);
  }

  /// Computes scores and dP, then weights (after dropout) in scores.s and the derivatives by the scores before the
  /// temperature in d; 0 where masked.
  HWY_NOINLINE void derive(const KvBlock& keys, bool) {
    prefetch_block(keys);
    make_products(keys);
    Sums::derive_from_products(keys);
  }
  /// Computes scores and dP, before any modifier.
  void make_products(const KvBlock& keys) {
    make_scores(keys);
    products(keys, v_, p_.value_dim, at_.dout, scratch_.d);
  }
  void make_scores(const KvBlock& keys) { products(keys, k_, p_.dim, at_.q, scratch_.scores.s); }
  HWY_NOINLINE void prefetch_block(const KvBlock& keys) {
    const auto sums = [&](const KeyGradient& to, std::int64_t columns) {
      constexpr std::int64_t size = sizeof(T);
      return MemoryPieces{to.data == nullptr ? nullptr : rows_of(to, keys.first), size * columns, size * to.stride[2],
                          keys.count};
    };
    ahead_.soon.clear();
    add_block({ahead_.soon, sizeof(T)}, p_, Sums::rows_, keys.first, keys.count,
              {sums({g_.dv, g_.dv_stride, p_.v_heads}, p_.value_dim), sums({g_.dk, g_.dk_stride, p_.k_heads}, p_.dim)});
    ahead_.begin_block();
  }

  void back_to_scores(const KvBlock& keys) {
    if (p_.softcap != 0) Sums::back_through_softcap(keys.ranges);
  }

  static void clear_keys(const AttentionGradient& g, std::int64_t batch, std::int64_t head, std::int64_t begin,
                         std::int64_t end) {
    const AttentionProblem& p = g.problem;
    const auto clear = [&](void* data, const std::int64_t(&stride)[3], std::int64_t heads, std::int64_t columns) {
      if (data == nullptr) return;
      T* const rows = static_cast<T*>(data) + batch * stride[0] + p.shared_head(head, heads) * stride[1];
      for (std::int64_t key = begin; key < end; ++key)
        std::memset(rows + key * stride[2], 0, sizeof(T) * static_cast<std::size_t>(columns));
    };
    clear(g.dk, g.dk_stride, p.k_heads, p.dim);
    clear(g.dv, g.dv_stride, p.v_heads, p.value_dim);
  }
  void clear_keys(std::int64_t begin, std::int64_t end) const { clear_keys(g_, rows_.batch, rows_.head, begin, end); }

  /// Prefetches the block's rows of dK and dV. If several threads compute steps of one head, they may be in another
  /// core's cache.
  HWY_NOINLINE void prefetch_totals(const KvBlock& keys) const {
    const auto fetch = [&](const KeyGradient& to, std::int64_t columns) {
      if (to.data == nullptr) return;
      const T* const first = rows_of(to, keys.first);
      for (int r = 0; r < keys.count; ++r)
        for (std::int64_t c = 0; c < columns; c += 64 / static_cast<std::int64_t>(sizeof(T)))
          __builtin_prefetch(first + r * to.stride[2] + c, 1, 3);
    };
    fetch({g_.dv, g_.dv_stride, p_.v_heads}, p_.value_dim);
    fetch({g_.dk, g_.dk_stride, p_.k_heads}, p_.dim);
  }

  /// Adds the block's sums to dQ. Vectors that see the same keys are computed together.
  void add_to_queries(const KvBlock& keys) {
    const ActiveRanges& ranges = keys.ranges;
    const Matrix<T> k{k_.row(keys.first), k_.stride};
    const auto add = [&](int first, int last, int begin, int end) {
      for_each_tile(first, last, [&]<int V>(int x) HWY_ATTR {
        query_columns<T, V>(k, begin, end, p_.dim, scratch_.d + x * N, at_.dq + x * N, keys.first_of_rows, ahead_);
      });
    };
    for (int v = 0, last; v < vectors_; v = last) {
      last = ranges.same_range(v, vectors_);
      if (ranges.begin[v] < ranges.end[v] || keys.first_of_rows) add(v, last, ranges.begin[v], ranges.end[v]);
    }
  }

  void add_to_dk_and_dv(const KvBlock& keys) {
    add_to_dv(keys);
    add_products(keys, scratch_.d, at_.q_rows, p_.dim, {g_.dk, g_.dk_stride, p_.k_heads});
  }

  /// Writes dQ: scaled, with +0 for a zero. Returns false when a number of dQ, of delta (with D = 0 there is no dQ) or
  /// of Q is not finite: where a softcap or a score_mod is flat, dQ is finite, but dK is a product with Q.
  bool write_queries() {
    ahead_.later.fetch(ahead_.later.lines());
    if (g_.dq == nullptr && g_.rows.dq == nullptr) return true;
    const Tag<T> d;
    const auto scale = hn::Set(d, g_.rows.ends ? static_cast<T>(p_.scale) : T(1));
    bool finite = true;
    for (int x = 0; x < vectors_; ++x) {
      const auto real = lanes_of<T>(bits_between(0, rows_.rows), x);
      AreFinite<T> all;
      all.add(hn::Load(d, scratch_.delta + x * N));
      for (std::int64_t c = 0; c < p_.dim; ++c) {
        T* const place = at_.dq + c * R + x * N;
        const auto y = hn::Add(hn::Mul(hn::Load(d, place), scale), hn::Zero(d));
        all.add(y);
        all.add(hn::Load(d, at_.q + c * R + x * N));
        hn::Store(y, d, place);
      }
      finite = finite && all.in(real);
    }
    if (!finite && g_.rows.dq != nullptr) return false;  // the reference code begins with these sums
    if (!g_.rows.ends) {
      transpose(at_.dq, std::int64_t{R}, p_.dim, rows_.rows, static_cast<T*>(g_.rows.dq) + Sums::saved() * p_.dim,
                p_.dim);
      return true;
    }
    auto* dq = static_cast<T*>(g_.dq) + rows_.batch * g_.dq_stride[0] + rows_.head * g_.dq_stride[1] +
               rows_.row * g_.dq_stride[2];
    transpose(at_.dq, std::int64_t{R}, p_.dim, rows_.rows, dq, g_.dq_stride[2]);
    return finite;
  }

 protected:
  /// Multiplies the block's rows of K or V by the transposed rows of the step.
  HWY_NOINLINE void products(const KvBlock& keys, const Matrix<T>& from, std::int64_t columns, const T* transposed,
                             T* to) {
    const ActiveRanges& ranges = keys.ranges;
    const Matrix<T> rows{from.row(keys.first), from.stride};
    for (int g = 0; g < ranges.count; ++g) {
      const int key = ranges.key[g], count = ranges.key[g + 1] - key;
      for_each_tile(ranges.first[g], ranges.last[g], [&]<int V>(int x) HWY_ATTR {
        pair_columns<MultiplyAdd<T>, V>({rows.row(key), rows.stride}, count, columns, transposed + x * N, T(1),
                                        to + key * R + x * N, ahead_);
      });
    }
  }

  /// The rows of dK or dV of a head.
  struct KeyGradient {
    void* data;
    const std::int64_t (&stride)[3];
    std::int64_t heads;
  };
  T* rows_of(const KeyGradient& to, std::int64_t key) const {
    return static_cast<T*>(to.data) + rows_.batch * to.stride[0] + p_.shared_head(rows_.head, to.heads) * to.stride[1] +
           key * to.stride[2];
  }
  void add_products(const KvBlock& keys, const T* weights, const T* rows, std::int64_t columns, const KeyGradient& to) {
    if (to.data == nullptr) return;
    const auto range_of = [&](int key, int count) { return Sums::rows_that_see(keys, key, count); };
    add_to_keys<T>(weights, keys.count, Matrix<T>{rows, GradientOperands<T>::wide(columns)}, range_of,
                   KeyTotals<T>{rows_of(to, keys.first), to.stride[2], columns, keys.first_of_keys}, ahead_);
  }
  void add_to_dv(const KvBlock& keys) {
    add_products(keys, scratch_.scores.s, at_.dout_rows, p_.value_dim, {g_.dv, g_.dv_stride, p_.v_heads});
  }

  /// Copies the step's rows, times `factor`; 0 for rows that see no key.
  HWY_NOINLINE void copy_rows(const Matrix<T>& from, std::int64_t columns, T factor, T* to) const {
    const Tag<T> d;
    const std::int64_t wide = GradientOperands<T>::wide(columns);
    for (std::int64_t r = 0; r < rows_.rows; ++r, to += wide) {
      const T* row = from.row(r);
      std::int64_t c = 0;
      if (scratch_.inverse[r] != 0) {
        for (; c + N <= columns; c += N) hn::Store(hn::Mul(hn::LoadU(d, row + c), hn::Set(d, factor)), d, to + c);
        for (; c < columns; ++c) to[c] = row[c] * factor;
      }
      for (; c < wide; ++c) to[c] = 0;
    }
  }

  void transpose_rows(const T* from, std::int64_t columns, T* to) const {
    const Tag<T> d;
    if (rows_.rows < vectors_ * N)
      for (std::int64_t c = 0; c < columns; ++c) hn::Store(hn::Zero(d), d, to + c * R + (vectors_ - 1) * N);
    transpose(from, GradientOperands<T>::wide(columns), rows_.rows, columns, to, std::int64_t{R});
  }

  /// Computes the products of the step's rows of a result and of its (transposed) gradient: chains over Dv. The rows
  /// are transposed 64 columns at a time.
  HWY_NOINLINE void row_products(const void* data, const std::int64_t (&stride)[3], const T* gradient, T* sums) {
    const Tag<T> d;
    const auto* rows =
        static_cast<const T*>(data) + rows_.batch * stride[0] + rows_.head * stride[1] + rows_.row * stride[2];
    Sums::clear(sums, 1);
    T* const transposed = scratch_.scores.s;
    for (std::int64_t c = 0; c < p_.value_dim; c += kv_block) {
      const std::int64_t count = p_.value_dim - c < kv_block ? p_.value_dim - c : kv_block;
      transpose(rows + c, stride[2], rows_.rows, count, transposed, std::int64_t{R});
      for (int x = 0; x < vectors_ * N; x += N) {
        auto sum = hn::Load(d, sums + x);
        for (std::int64_t n = 0; n < count; ++n)
          sum = hn::MulAdd(hn::Load(d, transposed + n * R + x), hn::Load(d, gradient + (c + n) * R + x), sum);
        hn::Store(sum, d, sums + x);
      }
    }
  }

 private:
  HWY_NOINLINE void make_delta() {
    if (Sums::load_delta()) return;
    row_products(p_.out, p_.out_stride, at_.dout, scratch_.delta);
    Sums::finish_delta();
  }

 protected:
  GradientOperands<T> at_;
  TilePrefetch ahead_;
  Matrix<T> k_, v_;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
