// fuzz/operations.h: chooses an operation on tensors from the bytes of an input.
#pragma once
#include "fuzz.h"

namespace attn::fuzz {

constexpr std::initializer_list<Dtype> dtypes = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::f16,
                                                 Dtype::i64, Dtype::i32, Dtype::boolean};

/// Runs an operation on one or two tensors; sizes and dims may be invalid.
inline Tensor operation(Choices& in, const Tensor& a, const Tensor& b) {
  const int d = static_cast<int>(in.between(-3, 3)), e = static_cast<int>(in.between(-3, 3));
  const std::int64_t n = in.between(-4, 6);
  switch (in.below(40)) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return a / b;
    case 3: return matmul(a, b);
    case 4: return cat({a, b}, d);
    case 5: return stack({a, b}, d);
    case 6: return a.transpose(d, e);
    case 7: return a.slice(d, n, e, e);
    case 8: return a.select(d, n);
    case 9: return a.reshape({n, d});
    case 10: return a.view({n});
    case 11: return a.expand({n, d, e});
    case 12: return a.unsqueeze(d);
    case 13: return a.squeeze(d);
    case 14: return sum(a, {d}, n > 0);
    case 15: return mean(a, {d, e});
    case 16: return softmax(a, d);
    case 17: return cumsum(a, d);
    case 18: return max(a, d).first;
    case 19: return where(a, b, b);
    case 20: return a.masked_fill(b, static_cast<double>(n));
    case 21: return a.add_(b);
    case 22: return a.mul_(b);
    case 23: return a.copy_(b);
    case 24: return a.index_select(d, b);
    case 25: return embedding(a, b);
    case 26: return a.to(in.pick(dtypes));
    case 27: return one_hot(a, n);
    case 28: return a.repeat({n, d});
    case 29: return layer_norm(a, {n});
    case 30: return norm(a, e, {d});
    case 31: return a.detach();
    case 32: return pow(a, static_cast<double>(n));
    case 33: return linear(a, b);
    case 34: return cross_entropy(a, b);
    case 35: return a.permute({d, e});
    case 36: return a.split(n, d).at(0);
    case 37: return tril(a, n);
    case 38: return var(a, {d}, n > 0);
    default: return a.flatten(d, e);
  }
}

}  // namespace attn::fuzz
