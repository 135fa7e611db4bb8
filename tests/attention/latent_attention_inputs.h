// tests/attention/latent_attention_inputs.h: random operands of latent attention.
#pragma once
#include <attn/latent_attention.h>

#include "attention/truth.h"

#include <cmath>
#include <vector>

namespace attn::testing {

struct LatentShape {
  std::int64_t batch = 1, heads = 4, q_rows = 5, k_rows = 70;
  std::int64_t nope = 16, rope = 8, latent = 32, value = 16;
  Dtype dtype = Dtype::f32;

  std::int64_t dim() const { return nope + rope; }
};

inline LatentOperands latent_operands(const LatentShape& s, std::uint64_t seed = 1) {
  const auto made = [&](const Dims& sizes, std::uint64_t more, double width = 1) {
    return (normal(sizes, seed + more) * width).to(s.dtype);
  };
  const double narrow = 1 / std::sqrt(static_cast<double>(s.latent));
  return {.q_nope = made({s.batch, s.heads, s.q_rows, s.nope}, 0),
          .q_rope = made({s.batch, s.heads, s.q_rows, s.rope}, 1),
          .latent = made({s.batch, s.k_rows, s.latent}, 2),
          .k_rope = made({s.batch, s.k_rows, s.rope}, 3),
          .w_uk = made({s.heads, s.nope, s.latent}, 4, narrow),
          .w_uv = made({s.heads, s.value, s.latent}, 5, narrow)};
}

inline std::vector<Tensor> all_of(const LatentOperands& o) {
  return {o.q_nope, o.q_rope, o.latent, o.k_rope, o.w_uk, o.w_uv};
}
inline LatentOperands operands_of(const std::vector<Tensor>& x) {
  return {.q_nope = x[0], .q_rope = x[1], .latent = x[2], .k_rope = x[3], .w_uk = x[4], .w_uv = x[5]};
}
/// The operands without the rows that a cache holds.
inline LatentOperands without_rows(LatentOperands o) {
  o.latent = o.k_rope = {};
  return o;
}
/// Query rows, key rows or batch items [begin, end) of operands.
inline LatentOperands of_queries(LatentOperands o, std::int64_t begin, std::int64_t end) {
  o.q_nope = o.q_nope.slice(2, begin, end);
  o.q_rope = o.q_rope.slice(2, begin, end);
  return o;
}
inline LatentOperands of_keys(LatentOperands o, std::int64_t begin, std::int64_t end) {
  o.latent = o.latent.slice(1, begin, end);
  o.k_rope = o.k_rope.slice(1, begin, end);
  return o;
}
inline LatentOperands of_items(LatentOperands o, std::int64_t begin, std::int64_t end) {
  for (Tensor LatentOperands::* x :
       {&LatentOperands::q_nope, &LatentOperands::q_rope, &LatentOperands::latent, &LatentOperands::k_rope})
    o.*x = (o.*x).slice(0, begin, end);
  return o;
}

constexpr LatentForm both_forms[] = {LatentForm::expanded, LatentForm::absorbed};

}  // namespace attn::testing
