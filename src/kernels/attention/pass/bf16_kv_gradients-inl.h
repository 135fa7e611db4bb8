// src/kernels/attention/pass/bf16_kv_gradients-inl.h: keeps the sums of dK and dV of a bf16 backward pass in f32 until
// the last step of a unit (the query heads that share heads of K or V), then rounds them.
#if defined(ATTN_BF16_KV_GRADIENTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_KV_GRADIENTS_INL_H
#undef ATTN_BF16_KV_GRADIENTS_INL_H
#else
#define ATTN_BF16_KV_GRADIENTS_INL_H
#endif

#include "kernels/attention/tiles/bf16_backward_products-inl.h"

#include <numeric>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// The layout of a unit's sums, g.totals: [heads of K][keys][wide D], then [heads of V][keys][wide Dv], for the heads
/// of the unit.
struct Bf16Totals {
  std::int64_t k_heads, v_heads, keys, k_wide, v_wide;

  Bf16Totals(const AttentionProblem& p, std::int64_t count)
      : k_heads(p.k_heads / std::gcd(p.k_heads, p.v_heads)), v_heads(p.v_heads / std::gcd(p.k_heads, p.v_heads)),
        keys(count), k_wide(Bf16GradientOperands::wide(p.dim)), v_wide(Bf16GradientOperands::wide(p.value_dim)) {}
  std::size_t bytes() const {
    return sizeof(float) * static_cast<std::size_t>(keys * (k_heads * k_wide + v_heads * v_wide));
  }
  PairTotals k(float* totals, std::int64_t head, std::int64_t key) const {
    return {totals + (head % k_heads * keys + key) * k_wide, k_wide};
  }
  PairTotals v(float* totals, std::int64_t head, std::int64_t key) const {
    return {totals + k_heads * keys * k_wide + (head % v_heads * keys + key) * v_wide, v_wide};
  }
};

/// Returns rows of dQ, dK or dV from `row` of a head on.
inline RoundedRows bf16_results(void* to, const std::int64_t (&stride)[3], const std::int64_t (&row)[3],
                                std::int64_t columns, float scale) {
  return {static_cast<std::uint16_t*>(to) + row[0] * stride[0] + row[1] * stride[1] + row[2] * stride[2], stride[2],
          columns, scale};
}
inline RoundedRows bf16_dk(const AttentionGradient& g, std::int64_t batch, std::int64_t head, std::int64_t key) {
  return bf16_results(g.dk, g.dk_stride, {batch, head, key}, g.problem.dim, static_cast<float>(g.problem.scale));
}
inline RoundedRows bf16_dv(const AttentionGradient& g, std::int64_t batch, std::int64_t head, std::int64_t key) {
  return bf16_results(g.dv, g.dv_stride, {batch, head, key}, g.problem.value_dim, 1);
}

/// Rounds dK and dV of a unit's keys [begin, end); `first_head` is its first query head.
inline void bf16_finish_keys(const AttentionGradient& g, std::int64_t batch, std::int64_t first_head,
                             std::int64_t begin, std::int64_t end) {
  const AttentionProblem& p = g.problem;
  const Bf16Totals totals(p, g.totals_end - g.totals_begin);
  const std::int64_t k0 = p.key_head(first_head), v0 = p.value_head(first_head), first = begin - g.totals_begin;
  if (g.dk != nullptr)
    for (std::int64_t h = k0; h < k0 + totals.k_heads; ++h)
      bf16_round_rows(totals.k(g.totals, h, first), bf16_dk(g, batch, h, begin), end - begin);
  if (g.dv != nullptr)
    for (std::int64_t h = v0; h < v0 + totals.v_heads; ++h)
      bf16_round_rows(totals.v(g.totals, h, first), bf16_dv(g, batch, h, begin), end - begin);
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
