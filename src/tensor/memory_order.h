// src/tensor/memory_order.h: determines the order in which a tensor's elements lie in memory.
#pragma once
#include "tensor/build.h"

#include <algorithm>
#include <cstdlib>

namespace attn {

/// Returns the dims of `x` from the slowest to the fastest, in the order that torch uses to fill a tensor and in
/// torch.empty_like: by falling stride; of equal strides the longer dim first. A dim of stride 0 is not compared: it
/// stays in its place, and other dims may move past it.
inline Dims memory_order(const Tensor& x) {
  const auto stride = [&](std::int64_t d) { return std::abs(x.stride(static_cast<int>(d))); };
  const auto compare = [&](std::int64_t a, std::int64_t b) {  // above 0: b is faster than a
    if (stride(a) == 0 || stride(b) == 0) return 0;
    if (stride(a) != stride(b)) return stride(a) < stride(b) ? -1 : 1;
    return x.size(static_cast<int>(a)) > x.size(static_cast<int>(b)) ? 1 : 0;
  };
  Dims order;  // the fastest dim first
  for (int d = x.dim() - 1; d >= 0; --d) order.push_back(d);
  for (int last = 1; last < x.dim(); ++last)
    for (int at = last, other = last - 1; other >= 0; --other) {
      const int which = compare(order[other], order[at]);
      if (which < 0) break;
      if (which > 0) {
        std::swap(order[other], order[at]);
        at = other;
      }
    }
  std::reverse(order.begin(), order.end());
  return order;
}

/// Allocates memory without gaps whose elements lie in the order of x's, as torch.empty_like does.
inline Tensor empty_in_order_of(const Tensor& x) {
  const Dims order = memory_order(x);
  Dims sizes = x.sizes(), place = x.sizes();
  for (int d = 0; d < x.dim(); ++d) {
    sizes[d] = x.size(static_cast<int>(order[d]));
    place[static_cast<int>(order[d])] = d;
  }
  return empty(sizes, x.dtype()).permute(place);
}

}  // namespace attn
