// fuzz/plain_call.h: makes a call of attn::plain with any sizes and settings; the buffers have the sizes that the call
// states.
#pragma once
#include "fuzz.h"

#include <algorithm>

namespace attn::fuzz {

struct PlainCall {
  Tensor q, k, v, output;
  plain::Attention call = {};
};

inline PlainCall plain_call(Choices& in) {
  manual_seed(static_cast<std::uint64_t>(in.below(256)));
  PlainCall made;
  plain::Attention& c = made.call;
  c.batch = in.between(-1, 2), c.q_heads = in.below(5), c.k_heads = in.below(3), c.v_heads = in.below(3);
  c.q_rows = in.between(-1, 40), c.k_rows = in.between(-1, 90), c.dim = in.between(-1, 20),
  c.value_dim = in.between(-1, 20);
  c.element = in.pick({plain::Element::f32, plain::Element::f64, plain::Element::bf16, plain::Element::f16});
  constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16};
  const auto drawn = [&](std::int64_t heads, std::int64_t rows, std::int64_t dim) {
    Dims sizes{c.batch, heads, rows, dim};
    for (std::int64_t& n : sizes) n = std::max<std::int64_t>(n, 0);
    return randn(sizes).to(dtypes[static_cast<int>(c.element)]);
  };
  made.q = drawn(c.q_heads, c.q_rows, c.dim), made.output = drawn(c.q_heads, c.q_rows, c.value_dim);
  made.k = drawn(c.k_heads, c.k_rows, c.dim), made.v = drawn(c.v_heads, c.k_rows, c.value_dim);
  c.q = made.q.data(), c.k = made.k.data(), c.v = made.v.data(),
  c.output = in.below(9) == 0 ? nullptr : made.output.data();
  c.causal = in.coin(), c.bottom_right = in.below(4) != 0, c.top_left = !c.bottom_right;
  c.window_left = in.coin() ? -1 : in.between(-2, 20), c.window_right = in.coin() ? -1 : in.between(-2, 5);
  c.softcap = in.pick({0.0, 0.0, 1.5, -1.0}), c.temperature = in.pick({1.0, 1.0, 0.7, 0.0});
  if (in.coin()) c.scale = in.pick({0.3, 0.0, -1.0});
  return made;
}

}  // namespace attn::fuzz
