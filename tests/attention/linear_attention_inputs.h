// tests/attention/linear_attention_inputs.h: shapes and random inputs of linear attention with a state.
#pragma once
#include <attn/linear_attention.h>

#include "attention/truth.h"

#include <cmath>
#include <vector>

namespace attn::testing {

enum class Gate { none, head, channel };

struct Shape {
  std::int64_t batch = 1, k_heads = 1, v_heads = 1, rows = 1, dim = 8, value_dim = 8;
  Gate gate = Gate::none;
  bool delta = false, state = false, l2norm = false;
  Dtype dtype = Dtype::f32;
  double decay = 0.2;  // g is minus this times a number from 0 to 1
};

struct Given {
  Tensor q, k, v;
  LinearAttentionOptions options;
  std::vector<Tensor> all() const {
    std::vector<Tensor> tensors{q, k, v};
    for (const Tensor& x : {options.g, options.beta, options.initial_state})
      if (x.defined()) tensors.push_back(x);
    return tensors;
  }
  Given rows(std::int64_t first, std::int64_t count) const {
    Given part{q.narrow(2, first, count), k.narrow(2, first, count), v.narrow(2, first, count), options};
    if (options.g.defined()) part.options.g = options.g.narrow(2, first, count);
    if (options.beta.defined()) part.options.beta = options.beta.narrow(2, first, count);
    return part;
  }
  Given item(std::int64_t b) const {
    Given part{q.narrow(0, b, 1), k.narrow(0, b, 1), v.narrow(0, b, 1), options};
    for (Tensor LinearAttentionOptions::* x :
         {&LinearAttentionOptions::g, &LinearAttentionOptions::beta, &LinearAttentionOptions::initial_state})
      if ((options.*x).defined()) part.options.*x = (options.*x).narrow(0, b, 1);
    return part;
  }
};

inline Given given(const Shape& s, std::uint64_t seed = 1) {
  const Dims keys{s.batch, s.k_heads, s.rows, s.dim}, rows{s.batch, s.v_heads, s.rows};
  Given in{normal(keys, seed, s.dtype),
           normal(keys, seed + 1, s.dtype),
           normal({s.batch, s.v_heads, s.rows, s.value_dim}, seed + 2, s.dtype),
           {}};
  in.options.l2norm = s.l2norm;
  if (s.delta && !s.l2norm) in.k = in.k / std::sqrt(static_cast<double>(s.dim));
  Generator random(seed + 3);
  if (s.gate == Gate::head) in.options.g = (rand(rows, random) * -s.decay).to(s.dtype);
  if (s.gate == Gate::channel)
    in.options.g = (rand({s.batch, s.v_heads, s.rows, s.dim}, random) * -s.decay).to(s.dtype);
  if (s.delta) in.options.beta = rand(rows, random).to(s.dtype);
  if (s.state)
    in.options.initial_state =
        normal({s.batch, s.v_heads, s.dim, s.value_dim}, seed + 4, s.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  return in;
}

inline std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const Gate gate : {Gate::none, Gate::head, Gate::channel})
    for (const bool delta : {false, true}) {
      all.push_back({.batch = 2,
                     .k_heads = 2,
                     .v_heads = 4,
                     .rows = 70,
                     .dim = 24,
                     .value_dim = 40,
                     .gate = gate,
                     .delta = delta,
                     .state = delta,
                     .l2norm = delta});
      all.push_back({.rows = 131, .dim = 5, .value_dim = 3, .gate = gate, .delta = delta, .state = true});
      all.push_back(
          {.v_heads = 3, .rows = 64, .dim = 33, .value_dim = 129, .gate = gate, .delta = delta, .dtype = Dtype::f64});
      all.push_back({.k_heads = 2, .v_heads = 2, .rows = 1, .dim = 16, .value_dim = 16, .gate = gate, .delta = delta});
    }
  return all;
}

}  // namespace attn::testing
