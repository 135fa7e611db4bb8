// src/kernels/attention/pass/bf16_backward_operands-inl.h: prepares the operands of the bf16 backward products, as
// pairs in the layouts that the products read.
#if defined(ATTN_BF16_BACKWARD_OPERANDS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_BACKWARD_OPERANDS_INL_H
#undef ATTN_BF16_BACKWARD_OPERANDS_INL_H
#else
#define ATTN_BF16_BACKWARD_OPERANDS_INL_H
#endif

#include "kernels/attention/pass/bf16_kv_gradients-inl.h"
#include "kernels/attention/pass/parameter_gradients-inl.h"

#include <algorithm>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

class Bf16BackwardOperands : public GradientSums<float> {
 protected:
  using Sums = GradientSums<float>;
  using Bf16Rows = Matrix<std::uint16_t>;

  /// `elements`: the number of elements of a product that are computed together.
  Bf16BackwardOperands(const AttentionGradient& g, const Task& rows, Arena& arena, std::int64_t elements)
      : Sums(g, rows, arena), at_(arena, g.problem) {
    begin_step(ahead_, g, rows, sizeof(std::uint16_t), elements);
    vectors_ = (vectors_ + 1) / 2 * 2;  // a word of two rows is built from two vectors
    k_ = {static_cast<const std::uint16_t*>(p_.k.base) + rows.batch * p_.k_stride[0] + k_head() * p_.k_stride[1],
          p_.k.row_stride};
    v_ = {static_cast<const std::uint16_t*>(p_.v.base) + rows.batch * p_.v_stride[0] + v_head() * p_.v_stride[1],
          p_.v.row_stride};
  }
  std::int64_t k_head() const { return p_.key_head(rows_.head); }
  std::int64_t v_head() const { return p_.value_head(rows_.head); }

  /// Returns the rows in whole vectors of rows, 0 for a row that sees no key or does not exist: in place, or copied to
  /// at_.rows.
  Bf16Rows padded_rows(const Bf16Rows& from, std::int64_t columns) const {
    if (whole_ && columns % 32 == 0 && from.stride % 2 == 0) return from;
    const std::int64_t wide = Bf16GradientOperands::wide(columns);
    for (int r = 0; r < vectors_ * N; ++r) {
      const std::uint16_t* const row = from.row(r);
      std::uint16_t* const copy = at_.rows + r * wide;
      const bool sees = scratch_.inverse[r] != 0;
      std::int64_t c = 0;
      for (; sees && c + 32 <= columns; c += 32) _mm512_store_si512(copy + c, _mm512_loadu_si512(row + c));
      for (; c < wide; c += 32)
        _mm512_store_si512(copy + c, sees ? bf16_columns(row, c, columns) : _mm512_setzero_si512());
    }
    return {at_.rows, wide};
  }
  /// Transposes rows from `padded_rows` as pairs of columns, in complete units.
  void transpose_pairs(const Bf16Rows& rows, std::int64_t columns, std::uint32_t* to) const {
    transpose(reinterpret_cast<const float*>(rows.base), rows.stride / 2, std::int64_t{vectors_} * N,
              Bf16GradientOperands::wide(columns) / 2, reinterpret_cast<float*>(to), std::int64_t{R});
  }
  /// Stores rows that `padded_rows` returned as pairs of rows; returns true if some number is not finite.
  bool pair_all_rows(const Bf16Rows& rows, std::int64_t columns, std::uint32_t* to) const {
    const auto columns_of = [&](int r, std::int64_t c) ATTN_BF16_ATTR { return _mm512_loadu_si512(rows.row(r) + c); };
    return bf16_pair_rows(vectors_ * N, Bf16GradientOperands::wide(columns), columns_of, to);
  }
  /// Stores the block's rows of K as pairs of rows, in units of UNIT rows; missing rows of the last unit are 0.
  template <int UNIT>
  void pair_keys(const KvBlock& keys, std::int64_t wide) {
    const Bf16Rows k{k_.row(keys.first), k_.stride};
    const int count = (keys.count + UNIT - 1) / UNIT * UNIT;
    if (p_.dim == wide && keys.count == count)
      bf16_pair_rows(
          keys.count, wide, [&](int r, std::int64_t c) ATTN_BF16_ATTR { return _mm512_loadu_si512(k.row(r) + c); },
          at_.k_rows);
    else
      bf16_pair_rows(
          count, wide,
          [&](int r, std::int64_t c)
              ATTN_BF16_ATTR { return r < keys.count ? bf16_columns(k.row(r), c, p_.dim) : _mm512_setzero_si512(); },
          at_.k_rows);
  }
  /// Returns the block's rows of K or V; copied if the last unit of UNIT columns would read beyond the row.
  template <int UNIT>
  Bf16Rows whole_units(const Bf16Rows& from, const KvBlock& keys, std::int64_t columns, std::uint16_t* copy) const {
    if (columns % UNIT == 0) return {from.row(keys.first), from.stride};
    const std::int64_t wide = Bf16GradientOperands::wide(columns);
    for (int r = 0; r < keys.count; ++r)
      for (std::int64_t c = 0; c < wide; c += 32)
        _mm512_store_si512(copy + r * wide + c, bf16_columns(from.row(keys.first + r), c, columns));
    return {copy, wide};
  }

  /// Returns the keys of a block that contribute to the rows [begin, end) of one vector.
  static RowRange keys_seen_by(const KvBlock& keys, int begin, int end) {
    RowRange range{keys.ranges.begin[begin / N], keys.ranges.end[begin / N]};
    if (!keys.visible) return range;
    const Word rows = bits_between(begin, end);
    while (range.begin < range.end && (keys.visible[range.begin] & rows) == 0) ++range.begin;
    while (range.begin < range.end && (keys.visible[range.end - 1] & rows) == 0) --range.end;
    return range;
  }

  Bf16GradientOperands at_;
  TilePrefetch ahead_;
  Bf16Rows k_{}, v_{};
  bool whole_ = false;  // the step has 64 or 32 rows, all of which see some key
};

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
