// tests/support/random_shapes.h: makes tensors of random rank, sizes and strides (gaps, negative, zero), and reads them
// with simple index loops.
#pragma once
#include <attn/ops.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace attn::testing {

using Random = std::mt19937;

inline std::int64_t pick(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// Returns sizes of rank low ... high, each 1 to 4 (1 to 3 above rank 5), sometimes 0.
inline Dims random_sizes(Random& random, int low = 0, int high = max_rank) {
  Dims sizes;
  const std::int64_t rank = pick(random, low, high);
  for (std::int64_t i = 0; i < rank; ++i)
    sizes.push_back(pick(random, 0, 30) == 0 ? 0 : pick(random, 1, rank > 5 ? 3 : 4));
  return sizes;
}

/// Fills a tensor with quarters from -2 to 2, integers from -8 to 8, or bools; its dims have a random order in memory.
inline Tensor random_tensor(Random& random, const Dims& sizes, Dtype dtype = Dtype::f32) {
  std::vector<int> order(static_cast<std::size_t>(sizes.size()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  Dims strides = sizes;
  std::int64_t span = 1, first = 0;
  for (const int d : order) {
    if (pick(random, 0, 7) == 0) {
      strides[d] = 0;
      continue;
    }
    const std::int64_t gap = span + (pick(random, 0, 3) == 0 ? pick(random, 1, 2) : 0);
    strides[d] = pick(random, 0, 3) == 0 ? -gap : gap;
    const std::int64_t reach = gap * std::max<std::int64_t>(sizes[d] - 1, 0);
    if (strides[d] < 0) first += reach;
    span = gap + reach;
  }
  std::vector<double> values(static_cast<std::size_t>(span + first + 1));
  for (double& value : values) {
    const auto whole = static_cast<double>(pick(random, -8, 8));
    value = is_floating(dtype) ? whole / 4 : dtype == Dtype::boolean ? whole > 0 : whole;
  }
  const Tensor memory = tensor<double>(values).to(dtype);
  char* start = static_cast<char*>(memory.data()) + static_cast<std::size_t>(first) * size_of(dtype);
  return Tensor::from_blob(start, sizes, dtype, strides, [memory](void*) {});
}

/// Returns the element at `index`, found only from the pointer and the strides.
inline double at(const Tensor& x, const Dims& index) {
  std::int64_t offset = 0;
  for (int i = 0; i < index.size(); ++i) offset += index[i] * x.strides()[i];
  char* element = static_cast<char*>(x.data()) + offset * static_cast<std::int64_t>(size_of(x.dtype()));
  return Tensor::from_blob(element, {}, x.dtype()).item();
}

/// Returns the element at `index` of the broadcast shape.
inline double at_broadcast(const Tensor& x, const Dims& index) {
  Dims own;
  const int shift = index.size() - x.dim();
  for (int i = 0; i < x.dim(); ++i) own.push_back(x.sizes()[i] == 1 ? 0 : index[i + shift]);
  return at(x, own);
}

template <typename F>
void for_each_index(const Dims& sizes, F&& visit) {
  const std::int64_t count = sizes.product();
  for (std::int64_t i = 0; i < count; ++i) {
    Dims index = sizes;
    std::int64_t left = i;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      index[d] = left % sizes[d];
      left /= sizes[d];
    }
    visit(index);
  }
}

/// Returns a shape that broadcasts with `sizes`: some dims are 1, some leading dims are missing.
inline Dims random_partner(Random& random, const Dims& sizes) {
  Dims partner;
  for (int i = static_cast<int>(pick(random, 0, sizes.size())); i < sizes.size(); ++i)
    partner.push_back(pick(random, 0, 3) ? sizes[i] : 1);
  return partner;
}

}  // namespace attn::testing
