// src/kernels/attention/pass/additive_backward_pass-inl.h: computes the backward pass of 64 query rows with an additive
// score.
#if defined(ATTN_ADDITIVE_BACKWARD_PASS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ADDITIVE_BACKWARD_PASS_INL_H
#undef ATTN_ADDITIVE_BACKWARD_PASS_INL_H
#else
#define ATTN_ADDITIVE_BACKWARD_PASS_INL_H
#endif

#include <algorithm>
#include <cstring>

#include "kernels/attention/tiles/additive_tile-inl.h"
#include "kernels/attention/pass/backward_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128

template <typename T>
using AdditiveSide = typename AdditiveOperands<T>::Side;

/// The exponentials of one row or one key: a vector of adjacent channels.
template <typename T>
struct TanhSide {
  Vector<T> high, low, exponent;

  HWY_INLINE TanhSide() {}  // not defaulted: an implicit constructor would not be compiled for this target
  HWY_INLINE TanhSide(Vector<T> h, Vector<T> l, Vector<T> e) : high(h), low(l), exponent(e) {}
};
template <bool WIDE>
HWY_INLINE TanhSide<float> load_side(const AdditiveSide<float>& from, std::int64_t at) {
  const Tag<float> d;
  const auto high = hn::LoadU(d, from.high + at);
  return {high, hn::LoadU(d, from.low + at), WIDE ? hn::LoadU(d, from.exponent + at) : high};
}
template <bool WIDE>
HWY_INLINE TanhSide<double> load_side(const AdditiveSide<double>& from, std::int64_t at) {
  const auto x = hn::LoadU(Tag<double>(), from.high + at);
  return {x, x, x};
}

/// What gradients need of t = tanh(q + k): 2 t, with relative accuracy, and 1 - t^2 (form B of docs/numerics.md section
/// 3.9). WIDE: exponents are separate from mantissas.
template <typename T>
struct TanhSlope {
  Vector<T> twice, slope;
};
template <bool WIDE>
HWY_INLINE TanhSlope<float> additive_slope(TanhSide<float> q, const TanhSide<float>& k) {
  const Tag<float> d;
  if constexpr (WIDE) {
    const auto n = hn::Min(hn::Max(hn::Add(q.exponent, k.exponent), hn::Set(d, -100.0f)), hn::Set(d, 100.0f)),
               power = two_to(d, n);
    q.high = hn::Mul(q.high, power);
    q.low = hn::Mul(q.low, power);
  }
  auto difference = hn::MulAdd(q.high, k.high, hn::Set(d, -1.0f));
  difference = hn::MulAdd(q.high, k.low, difference);
  difference = cut_denominator(hn::MulAdd(q.low, k.high, difference));
  const auto two = hn::Set(d, 2.0f), h = hn::Div(two, hn::Add(difference, two));
  return {hn::Mul(difference, h), hn::Mul(hn::Mul(h, h), hn::Add(difference, hn::Set(d, 1.0f)))};
}
template <bool WIDE>
HWY_INLINE TanhSlope<double> additive_slope(const TanhSide<double>& q, const TanhSide<double>& k) {
  const Tag<double> d;
  const auto t = tanh(d, hn::Add(q.high, k.high));
  return {hn::Add(t, t), hn::NegMulAdd(t, t, hn::Set(d, 1.0))};
}

/// Adds the gradients of ROWS rows from `row` on with the keys [begin, end) of a block, for a vector of channels from c
/// on: dw gets sums of dS 2 t, dq and dk get sums of dS (1 - t^2). After the last key the sums for dw are multiplied by
/// 1/2, those for dq by w; those for dk later.
template <typename T, bool WIDE, int ROWS>
HWY_INLINE void back_of_rows(const AdditiveOperands<T>& at, const T* derivative, std::int64_t c, int row, int begin,
                             int end) {
  const Tag<T> d;
  TanhSide<T> q[ROWS];
  Vector<T> dq[ROWS], dw[ROWS];
  ATTN_UNROLL_FOR (int n = 0; n < ROWS; ++n) {
    q[n] = load_side<WIDE>(at.q, (row + n) * at.stride + c);
    dq[n] = dw[n] = hn::Zero(d);
  }
  for (int r = begin; r < end; ++r) {
    const TanhSide<T> k = load_side<WIDE>(at.k, r * at.stride + c);
    auto dk = hn::Load(d, at.dk + r * at.stride + c);
    ATTN_UNROLL_FOR (int n = 0; n < ROWS; ++n) {
      const auto ds = hn::Set(d, derivative[r * query_block + row + n]);
      const TanhSlope<T> at_pair = additive_slope<WIDE>(q[n], k);
      const auto u = hn::Mul(ds, at_pair.slope);
      dw[n] = hn::Add(dw[n], hn::Mul(ds, at_pair.twice));
      dq[n] = hn::Add(dq[n], u);
      dk = hn::Add(dk, u);
    }
    hn::Store(dk, d, at.dk + r * at.stride + c);
  }
  const auto w = hn::Load(d, at.w + c);
  ATTN_UNROLL_FOR (int n = 0; n < ROWS; ++n) {
    const auto add = [&](T* to, Vector<T> sum) HWY_ATTR {
      hn::Store(hn::Add(hn::Load(d, to + (row + n) * at.stride + c), sum), d, to + (row + n) * at.stride + c);
    };
    add(at.dq, hn::Mul(dq[n], w));
    add(at.dw, hn::Mul(dw[n], hn::Set(d, T(0.5))));
  }
}

/// Computes all channels for all rows, each vector of rows with the keys that it sees.
template <typename T, bool WIDE>
HWY_NOINLINE void back_through_tanh(const AdditiveOperands<T>& at, const T* derivative, std::int64_t channels, int rows,
                                    const ActiveRanges& ranges) {
  // f64: tanh alone fills the registers
  constexpr int N = lanes<T>, together = sizeof(T) == 8 ? 1 : registers == 16 ? 2 : 4;
  for (std::int64_t c = 0; c < channels; c += N) {
    int row = 0;
    for (; row + together <= rows; row += together)
      back_of_rows<T, WIDE, together>(at, derivative, c, row, ranges.begin[row / N], ranges.end[row / N]);
    for (; row < rows; ++row)
      back_of_rows<T, WIDE, 1>(at, derivative, c, row, ranges.begin[row / N], ranges.end[row / N]);
  }
}

template <typename T>
class AdditiveBackwardPass : public BackwardPass<T> {
  using Base = BackwardPass<T>;

 protected:
  using Base::g_, Base::p_, Base::rows_, Base::scratch_, Base::vectors_, Base::at_, Base::k_, Base::v_;

 public:
  static constexpr int R = query_block, N = lanes<T>;

  HWY_NOINLINE AdditiveBackwardPass(const AttentionGradient& g, const Task& rows, Arena& arena)
      : Base(g, rows, arena), more_(arena, g.problem) {
    const auto* w = static_cast<const T*>(p_.additive_w);
    std::memset(more_.w, 0, sizeof(T) * static_cast<std::size_t>(more_.stride));
    std::memset(more_.unused, 0, sizeof(T) * R);
    std::memcpy(more_.w, w, sizeof(T) * static_cast<std::size_t>(p_.dim));
    if constexpr (sizeof(T) == 4) weight_sum_ = additive_weight_sum(w, p_.dim);
  }
  static std::size_t bytes(const AttentionProblem& p) {
    return scratch_bytes<BackwardScratch<T>, GradientOperands<T>, AdditiveOperands<T>>(p);
  }

  void clear_dq() {
    std::memset(more_.dq, 0, sizeof(T) * static_cast<std::size_t>(R * more_.stride));
    std::memset(more_.dw, 0, sizeof(T) * static_cast<std::size_t>(R * more_.stride));
  }
  HWY_NOINLINE void load_rows() {
    Base::load_rows();
    rows_narrow_ = split_queries(false);
  }
  void load_queries() {
    Base::load_queries();
    rows_narrow_ = split_queries(false);
  }

  HWY_NOINLINE void derive(const KvBlock& keys, bool) {
    make_products(keys);
    Base::derive_from_products(keys);
  }
  void make_products(const KvBlock& keys) {
    make_scores(keys);
    Base::products(keys, v_, p_.value_dim, at_.dout, scratch_.d);
  }
  void make_scores(const KvBlock& keys) {
    load_keys(keys);
    if constexpr (sizeof(T) == 4)
      if (wide_) scores<true>(keys);
    if (!wide_) scores<false>(keys);
  }
  void prefetch_block(const KvBlock&) {}

  void add_to_queries(const KvBlock& keys) {
    if (keys.first_of_rows) clear_dq();
    std::memset(more_.dk, 0, sizeof(T) * static_cast<std::size_t>(keys.count * more_.stride));
    const auto rows = static_cast<int>(rows_.rows);
    if constexpr (sizeof(T) == 4)
      if (wide_) return back_through_tanh<T, true>(more_, scratch_.d, p_.dim, rows, keys.ranges);
    back_through_tanh<T, false>(more_, scratch_.d, p_.dim, rows, keys.ranges);
  }

  HWY_NOINLINE void add_to_dk_and_dv(const KvBlock& keys) {
    Base::add_to_dv(keys);
    if (g_.dk == nullptr) return;
    const Tag<T> d;
    T* to = Base::rows_of({g_.dk, g_.dk_stride, p_.k_heads}, keys.first);
    const T* from = more_.dk;
    for (int r = 0; r < keys.count; ++r, to += g_.dk_stride[2], from += more_.stride) {
      const auto sums = [&](std::int64_t c)
                            HWY_ATTR { return hn::Mul(hn::Load(d, from + c), hn::Load(d, more_.w + c)); };
      std::int64_t c = 0;
      for (; c + N <= p_.dim; c += N)
        hn::StoreU(hn::Add(keys.first_of_keys ? hn::Zero(d) : hn::LoadU(d, to + c), sums(c)), d, to + c);
      if (c == p_.dim) continue;
      alignas(64) T rest[N];
      hn::Store(sums(c), d, rest);
      for (int n = 0; c + n < p_.dim; ++n) to[c + n] = (keys.first_of_keys ? T(0) : to[c + n]) + rest[n];
    }
  }

  /// Writes the parameters. The last ones of each row are its sums for w.
  HWY_NOINLINE void write_parameters() {
    T* const sums = scratch_.sums + (parameter_count(p_) - p_.dim) * R;
    transpose(more_.dw, more_.stride, rows_.rows, p_.dim, sums, std::int64_t{R});
    Base::write_parameters();
  }

  HWY_NOINLINE bool write_queries() {
    const Tag<T> d;
    AreFinite<T> all;
    for (std::int64_t r = 0; r < rows_.rows; ++r) {
      T* const row = more_.dq + r * more_.stride;
      for (std::int64_t c = 0; c < p_.dim; c += N)
        all.add(hn::FirstN(d, static_cast<std::size_t>(std::min<std::int64_t>(p_.dim - c, N))), hn::Load(d, row + c));
      std::memcpy(static_cast<T*>(g_.dq) + rows_.batch * g_.dq_stride[0] + rows_.head * g_.dq_stride[1] +
                      (rows_.row + r) * g_.dq_stride[2],
                  row, sizeof(T) * static_cast<std::size_t>(p_.dim));
      all.add(hn::Set(d, scratch_.delta[r]));
    }
    return all.everywhere();
  }

 private:
  HWY_NOINLINE bool split_row(const T* x, std::int64_t count, const AdditiveSide<T>& to, int row, bool wide) const {
    const std::int64_t at = row * more_.stride;
    if constexpr (sizeof(T) == 4)
      return split(x, count, {to.high + at, to.low + at, wide ? to.exponent + at : nullptr});
    std::memcpy(to.high + at, x, sizeof(T) * static_cast<std::size_t>(count));
    return true;
  }

  /// Splits the exponentials of the query rows, and transposes the high parts and, if `wide`, the exponents. Returns
  /// false if some exponent is too large for a form without exponents.
  HWY_NOINLINE bool split_queries(bool wide) {
    wide_ = wide;
    bool narrow = true;
    const std::int64_t padded = GradientOperands<T>::wide(p_.dim);
    for (int r = 0; r < static_cast<int>(rows_.rows); ++r)
      narrow = split_row(at_.q_rows + r * padded, padded, more_.q, r, wide) && narrow;
    if constexpr (sizeof(T) == 4) {
      transpose(more_.q.high, more_.stride, rows_.rows, p_.dim, at_.q, std::int64_t{R});
      if (wide) transpose(more_.q.exponent, more_.stride, rows_.rows, p_.dim, at_.dq, std::int64_t{R});
    }
    return narrow;
  }

  HWY_NOINLINE void load_keys(const KvBlock& keys) {
    const auto all = [&](bool wide) {
      bool narrow = true;
      for (int r = 0; r < keys.count; ++r)
        narrow = split_row(k_.row(keys.first + r), p_.dim, more_.k, r, wide) && narrow;
      return narrow;
    };
    const bool wide = !(rows_narrow_ && all(false));
    if (wide) all(true);
    if (wide != wide_) split_queries(wide);
  }

  template <bool WIDE>
  HWY_NOINLINE void scores(const KvBlock& keys) {
    const ActiveRanges& ranges = keys.ranges;
    for (int g = 0; g < ranges.count; ++g) {
      const int key = ranges.key[g], count = ranges.key[g + 1] - key;
      if constexpr (sizeof(T) == 4)
        for_each_part<additive_vectors>(ranges.first[g], ranges.last[g], [&]<int V>(int v) HWY_ATTR {
          const SplitRows q{at_.q, at_.dq, R}, k{more_.k.high, more_.k.exponent, more_.stride};
          additive_columns<WIDE, V>(q.at(v * N), k.at(key * k.stride), count, more_.w, weight_sum_, p_.dim,
                                    scratch_.scores.s + key * R + v * N, more_.unused + v * N);
        });
      else
        for_each_part<tanh_vectors>(ranges.first[g], ranges.last[g], [&]<int V>(int v) HWY_ATTR {
          for (int r = key; r < key + count; ++r) {
            const T* const row = more_.k.high + r * more_.stride;
            tanh_columns<V>(at_.q + v * N, &row, 1, more_.w, p_.dim, R, scratch_.scores.s + r * R + v * N,
                            more_.unused + v * N);
          }
        });
    }
  }

  AdditiveOperands<T> more_;
  T weight_sum_ = 0;
  bool rows_narrow_ = true, wide_ = false;
};

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
