// src/kernels/attention/gradient_walk-inl.h: 64 query rows on their way back over the keys: what each block adds to dQ, dK, dV, parameters and biases.
#if defined(ATTN_GRADIENT_WALK_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_GRADIENT_WALK_INL_H
#undef ATTN_GRADIENT_WALK_INL_H
#else
#define ATTN_GRADIENT_WALK_INL_H
#endif

#include "kernels/attention/gradient_pairs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

inline float fused(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fused(double a, double b, double c) { return __builtin_fma(a, b, c); }

template <typename T>
class GradientWalk : GradientPairs<T> {
  using Pairs = GradientPairs<T>;
  using Pairs::clear, Pairs::derive, Pairs::load_rows, Pairs::next;
  using Pairs::g_, Pairs::p_, Pairs::rows_, Pairs::map_, Pairs::strip_, Pairs::vectors_, Pairs::k_;
  using typename Pairs::Blocks;

 public:
  static constexpr int R = query_block, N = lanes<T>;
  using Pairs::Pairs;

  /// dQ of the rows; what they add to dK, dV and the parameters. False: some number is not finite.
  bool step(const Turn& turn) {
    load_rows();
    clear(strip_.dq, p_.dim);
    if (g_.parameters != nullptr) clear(strip_.sums, parameter_count(p_));
    Blocks blocks(p_.keys_begin(rows_.batch), p_.keys_end(rows_.batch));
    const KeyBlock& keys = blocks.keys;
    while (next(blocks)) {
      derive(keys);
      if (g_.parameters != nullptr) add_to_parameters(keys);
      if (p_.softcap != 0) Pairs::back_through_softcap(keys.groups);
      prefetch_totals(keys);
      add_to_queries(keys);
      if (turn.wait != nullptr) turn.wait(turn.context, keys.first + keys.count);
      add_to_dk_and_dv(keys);
      if (turn.done != nullptr) turn.done(turn.context, keys.first + keys.count);
    }
    if (g_.parameters != nullptr) write_parameters();
    return write_queries();
  }

  void dense(const DenseGradient& to, std::int64_t key_begin, std::int64_t key_end) {
    load_rows();
    clear(strip_.sums, 1);
    const std::int64_t begin = p_.keys_begin(rows_.batch), end = p_.keys_end(rows_.batch);
    T* const data = static_cast<T*>(to.data) + rows_.batch * to.stride[0] + rows_.head * to.stride[1] + rows_.row * to.stride[2];
    Blocks blocks(key_begin > begin ? key_begin : begin, key_end < end ? key_end : end);
    while (next(blocks)) {
      derive(blocks.keys);
      if (to.stride[3] == 0) sum_over_keys(blocks.keys);
      else add_to_dense(blocks.keys, to, data);
    }
    if (to.stride[3] != 0) return;
    T chain = 0;
    for (std::int64_t r = 0; r < rows_.rows; ++r) {
      chain += strip_.sums[r];
      if (to.stride[2] != 0) data[r * to.stride[2]] += strip_.sums[r];
    }
    if (to.stride[2] == 0) *data += chain;
  }

 private:
  /// Vectors that see the same keys together.
  void add_to_queries(const KeyBlock& keys) {
    const Groups& groups = keys.groups;
    const Matrix<T> k{k_.row(keys.first), k_.stride};
    const auto add = [&](int first, int last, int begin, int end) {
      in_pairs(first, last, [&]<int V>(int x) HWY_ATTR { query_columns<T, V>(k, begin, end, p_.dim, strip_.d + x * N, strip_.dq + x * N); });
    };
    for (int v = 0, last; v < vectors_; v = last) {
      last = groups.same_range(v, vectors_);
      if (groups.begin[v] < groups.end[v]) add(v, last, groups.begin[v], groups.end[v]);
    }
  }

  /// The rows of dK and dV that come next: they may lie in another core's cache.
  HWY_NOINLINE void prefetch_totals(const KeyBlock& keys) const {
    const auto fetch = [&](const void* to, const std::int64_t (&stride)[3], std::int64_t heads, std::int64_t columns) {
      if (to == nullptr) return;
      const T* const first = static_cast<const T*>(to) + rows_.batch * stride[0] + rows_.head / (p_.q_heads / heads) * stride[1] + keys.first * stride[2];
      for (int r = 0; r < keys.count; ++r)
        for (std::int64_t c = 0; c < columns; c += 64 / static_cast<std::int64_t>(sizeof(T))) __builtin_prefetch(first + r * stride[2] + c, 1, 3);
    };
    fetch(g_.dv, g_.dv_stride, p_.v_heads, p_.value_dim);
    fetch(g_.dk, g_.dk_stride, p_.k_heads, p_.dim);
  }

  void add_to_dk_and_dv(const KeyBlock& keys) {
    const int rows = static_cast<int>(rows_.rows);
    const auto range_of = [&](int key, int count) -> RowRange {
      if (!keys.visible) return {0, rows};
      Word any = 0;
      for (int r = key; r < key + count; ++r) any |= keys.visible[r];
      if (any == 0) return {0, 0};
      const int end = 64 - __builtin_clzll(any);
      return {__builtin_ctzll(any), end < rows ? end : rows};
    };
    const auto add = [&](const T* weights, const T* rows_of, std::int64_t columns, void* to, const std::int64_t (&stride)[3], std::int64_t heads) {
      if (to == nullptr) return;
      T* const total = static_cast<T*>(to) + rows_.batch * stride[0] + rows_.head / (p_.q_heads / heads) * stride[1] + keys.first * stride[2];
      add_to_keys<T>(weights, keys.count, Matrix<T>{rows_of, GradientStrip<T>::wide(columns)}, range_of, KeyTotals<T>{total, stride[2], columns});
    };
    add(strip_.scores.s, strip_.dout_rows, p_.value_dim, g_.dv, g_.dv_stride, p_.v_heads);
    add(strip_.d, strip_.q_rows, p_.dim, g_.dk, g_.dk_stride, p_.k_heads);
  }

  /// Scaled, a zero as +0, rows to memory. False where a number is not finite, also in delta (with D = 0 there is no dQ).
  bool write_queries() {
    const Tag<T> d;
    const auto scale = hn::Set(d, static_cast<T>(p_.scale));
    bool finite = true;
    for (int x = 0; x < vectors_; ++x) {
      const auto real = lanes_of<T>(bits_between(0, rows_.rows), x);
      auto all = hn::Load(d, strip_.delta + x * N);
      all = hn::Sub(all, all);  // 0, or NaN where something is not finite
      for (std::int64_t c = 0; c < p_.dim; ++c) {
        T* const place = strip_.dq + c * R + x * N;
        const auto y = hn::Add(hn::Mul(hn::Load(d, place), scale), hn::Zero(d));
        all = hn::Add(all, hn::Sub(y, y));
        hn::Store(y, d, place);
      }
      finite = finite && hn::AllTrue(d, hn::Or(hn::Eq(all, all), hn::Not(real)));
    }
    auto* dq = static_cast<T*>(g_.dq) + rows_.batch * g_.dq_stride[0] + rows_.head * g_.dq_stride[1] + rows_.row * g_.dq_stride[2];
    turn(strip_.dq, std::int64_t{R}, p_.dim, rows_.rows, dq, g_.dq_stride[2]);
    return finite;
  }

  /// A row's sums over its keys: ALiBi's distances, the table's buckets.
  HWY_NOINLINE void add_to_parameters(const KeyBlock& keys) {
    T* sums = strip_.sums + (p_.sinks != nullptr ? R : 0);
    for (int n = 0; n < p_.bias_count; ++n) {
      const BiasTerm& term = p_.bias[n];
      if (term.op != BiasOp::dense)
        for_each_lane(p_, term, map_, keys.first, [&](int lane, std::int64_t, std::int64_t at) {
          for (int r = 0; r < keys.count; ++r, ++at) {
            const T x = strip_.d[r * R + lane];
            T& sum = sums[(term.op == BiasOp::alibi ? 0 : term.bucket(at)) * R + lane];
            sum = term.op == BiasOp::alibi ? fused(x, static_cast<T>(at), sum) : sum + x;
          }
        });
      sums += parameters_of(term) * R;
    }
  }

  HWY_NOINLINE void write_parameters() {
    const Tag<T> d;
    const std::int64_t count = parameter_count(p_);
    if (p_.sinks != nullptr)
      for (int x = 0; x < vectors_ * N; x += N) {
        const auto inverse = hn::Load(d, strip_.inverse + x), sink = hn::Set(d, static_cast<const T*>(p_.sinks)[rows_.head]);
        const auto weight = hn::Mul(weight_of<T>(sink, hn::Load(d, strip_.m + x)), inverse);
        const auto sum = hn::Mul(weight, hn::Sub(hn::Zero(d), hn::Load(d, strip_.delta + x)));
        hn::Store(hn::IfThenElseZero(hn::Ne(inverse, hn::Zero(d)), sum), d, strip_.sums + x);
      }
    T* const to = static_cast<T*>(g_.parameters) + (rows_.block * p_.q_heads + rows_.head) * count;
    for (std::int64_t n = 0; n < count; ++n) {
      to[n] = 0;
      for (std::int64_t r = 0; r < rows_.rows; ++r) to[n] += strip_.sums[n * R + r];
      if (to[n] != to[n]) to[n] = std::numeric_limits<T>::quiet_NaN();
    }
  }

  /// A chain over the block's keys, added to the row's sum.
  HWY_NOINLINE void sum_over_keys(const KeyBlock& keys) {
    const Tag<T> d;
    for (int x = 0; x < vectors_ * N; x += N) {
      auto chain = hn::Zero(d);
      for (int r = 0; r < keys.count; ++r) chain = hn::Add(chain, hn::Load(d, strip_.d + r * R + x));
      hn::Store(hn::Add(hn::Load(d, strip_.sums + x), chain), d, strip_.sums + x);
    }
  }

  /// Each pair to its element, or a chain over the rows to the key's.
  HWY_NOINLINE void add_to_dense(const KeyBlock& keys, const DenseGradient& to, T* data) {
    T* const rows = strip_.scores.extra;  // [R][64]
    turn(strip_.d, std::int64_t{R}, std::int64_t{keys.count}, rows_.rows, rows, std::int64_t{key_block});
    T of_key[key_block] = {0};
    for (std::int64_t i = 0; i < rows_.rows; ++i) {
      const T* row = rows + i * key_block;
      T* place = data + i * to.stride[2] + keys.first * to.stride[3];
      if (to.stride[2] == 0)
        for (int r = 0; r < keys.count; ++r) of_key[r] += row[r];
      else
        for (int r = 0; r < keys.count; ++r) place[r * to.stride[3]] += row[r];
    }
    if (to.stride[2] == 0)
      for (int r = 0; r < keys.count; ++r) data[(keys.first + r) * to.stride[3]] += of_key[r];
  }
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
