// src/kernels/attention/bf16_gradient_totals-inl.h: the sums of dK and dV of a unit in bf16: f32 until its last step, then rounded.
#if defined(ATTN_BF16_GRADIENT_TOTALS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_BF16_GRADIENT_TOTALS_INL_H
#undef ATTN_BF16_GRADIENT_TOTALS_INL_H
#else
#define ATTN_BF16_GRADIENT_TOTALS_INL_H
#endif

#include "kernels/attention/bf16_gradient_tiles-inl.h"

#include <numeric>

#if HWY_TARGET == HWY_AVX3
ATTN_BEFORE_BF16_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {

/// The sums of a unit, g.totals: [heads of K][keys][wide D], then [heads of V][keys][wide Dv], of the heads that a unit has.
struct Bf16Totals {
  std::int64_t k_heads, v_heads, keys, k_wide, v_wide;

  Bf16Totals(const AttentionProblem& p, std::int64_t count)
      : k_heads(p.k_heads / std::gcd(p.k_heads, p.v_heads)), v_heads(p.v_heads / std::gcd(p.k_heads, p.v_heads)), keys(count),
        k_wide(Bf16GradientOperands::wide(p.dim)), v_wide(Bf16GradientOperands::wide(p.value_dim)) {}
  std::size_t bytes() const { return sizeof(float) * static_cast<std::size_t>(keys * (k_heads * k_wide + v_heads * v_wide)); }
  PairTotals k(float* totals, std::int64_t head, std::int64_t key) const { return {totals + (head % k_heads * keys + key) * k_wide, k_wide}; }
  PairTotals v(float* totals, std::int64_t head, std::int64_t key) const { return {totals + k_heads * keys * k_wide + (head % v_heads * keys + key) * v_wide, v_wide}; }
};

/// dK and dV of a unit, rounded; `first_head` is its first query head.
inline void bf16_finish_unit(const AttentionGradient& g, std::int64_t batch, std::int64_t first_head) {
  const AttentionProblem& p = g.problem;
  const Bf16Totals totals(p, g.totals_end - g.totals_begin);
  const auto round = [&](void* to, const std::int64_t (&stride)[3], std::int64_t head, const PairTotals& from, std::int64_t columns, float scale) {
    if (to == nullptr) return;
    auto* rows = static_cast<std::uint16_t*>(to) + batch * stride[0] + head * stride[1] + g.totals_begin * stride[2];
    for (std::int64_t n = 0; n < totals.keys; ++n) bf16_round_row(from.base + n * from.stride, scale, columns, rows + n * stride[2]);
  };
  const std::int64_t k0 = p.key_head(first_head), v0 = p.value_head(first_head);
  for (std::int64_t h = k0; h < k0 + totals.k_heads; ++h) round(g.dk, g.dk_stride, h, totals.k(g.totals, h, 0), p.dim, static_cast<float>(p.scale));
  for (std::int64_t h = v0; h < v0 + totals.v_heads; ++h) round(g.dv, g.dv_stride, h, totals.v(g.totals, h, 0), p.value_dim, 1);
}

}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
#endif
