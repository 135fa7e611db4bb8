// src/tensor/random_discrete.cc: draws integers, permutations and Bernoulli values.
#include <attn/ops.h>

#include "runtime/format.h"

#include "tensor/create.h"
#include "tensor/iterate.h"
#include "tensor/random_fill.h"

namespace attn {

Tensor randint(std::int64_t low, std::int64_t high, Dims sizes, Generator& generator) {
  if (low >= high)
    throw ValueError("randint: low " + std::to_string(low) + " and high " + std::to_string(high) +
                     "; low must be below high");
  const std::uint64_t range = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low);
  checked_bytes("randint", sizes, Dtype::i64);
  Tensor result = empty(sizes, Dtype::i64);
  std::int64_t* data = result.data<std::int64_t>();
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    const std::uint64_t drawn = range < (std::uint64_t{1} << 28) ? generator.u32() : generator.u64();
    data[i] = static_cast<std::int64_t>(drawn % range + static_cast<std::uint64_t>(low));
  }
  return result;
}

Tensor randperm(std::int64_t n, Generator& generator) {
  if (n < 0) throw ValueError("randperm: n is " + std::to_string(n) + "; it must not be negative");
  Tensor result = arange(n);
  std::int64_t* data = result.data<std::int64_t>();
  for (std::int64_t i = 0; i + 1 < n; ++i)
    std::swap(data[i], data[i + static_cast<std::int64_t>(generator.u32() % static_cast<std::uint64_t>(n - i))]);
  return result;
}

Tensor bernoulli_(Tensor x, double p, Generator& generator) {
  if (!(p >= 0 && p <= 1)) throw ValueError(runtime::format("bernoulli_: p is {}; it must be from 0 to 1", p));
  check_in_place("bernoulli_", x);
  const History history = history_of_overwriting("BernoulliBackward0", x);
  with_type(x.dtype(), [&]<typename T>(Type<T>) {
    fill_in_memory_order<T>(x, [&] { return convert<T>(generator.uniform_f64() < p); });
  });
  return history.changed(x);
}

Tensor bernoulli(const Tensor& p, Generator& generator) {
  check_floating("bernoulli", p);
  Tensor result = empty(p.sizes(), p.dtype());
  with_type(p.dtype(), [&]<typename T>(Type<T>) {
    if constexpr (std::is_floating_point_v<Compute<T>>) {
      iterate(p.sizes(), {operand(result, p.sizes()), operand(p, p.sizes())},
              [&](char* const* data, const std::int64_t* strides, std::int64_t n) {
                for (std::int64_t i = 0; i < n; ++i) {
                  const Compute<T> probability = widen(*reinterpret_cast<const T*>(data[1] + i * strides[1]));
                  if (!(probability >= 0 && probability <= 1))
                    throw ValueError("bernoulli: a probability is " + std::to_string(probability) +
                                     "; all must be from 0 to 1");
                  Compute<T> drawn;
                  if constexpr (std::is_same_v<T, double>) drawn = generator.uniform_f64();
                  else drawn = generator.uniform_f32();
                  *reinterpret_cast<T*>(data[0] + i * strides[0]) = convert<T>(drawn < probability);
                }
              });
    }
  });
  return result;
}

Tensor randint(std::int64_t low, std::int64_t high, Dims sizes) { return randint(low, high, sizes, LockedGenerator()); }
Tensor randperm(std::int64_t n) { return randperm(n, LockedGenerator()); }
Tensor bernoulli_(Tensor x, double p) { return bernoulli_(std::move(x), p, LockedGenerator()); }
Tensor bernoulli(const Tensor& p) { return bernoulli(p, LockedGenerator()); }

}  // namespace attn
