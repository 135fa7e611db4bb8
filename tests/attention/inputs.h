// tests/attention/inputs.h: normal q, k and v of a call.
#pragma once
#include "attention/truth.h"

namespace attn::testing {

struct Inputs {
  Tensor q, k, v;
};

/// k and v have one shape.
inline Inputs inputs(const Dims& q, const Dims& k, Dtype dtype = Dtype::f32) {
  return {normal(q, 1, dtype), normal(k, 2, dtype), normal(k, 3, dtype)};
}
/// `width`: columns of v.
inline Inputs inputs(const Dims& q, const Dims& k, std::int64_t width, Dtype dtype = Dtype::f32) {
  return {normal(q, 1, dtype), normal(k, 2, dtype), normal({k[0], k[1], k[2], width}, 3, dtype)};
}

}  // namespace attn::testing
