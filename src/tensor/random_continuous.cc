// src/tensor/random_continuous.cc: draws uniform, normal and exponential numbers.
#include <attn/ops.h>

#include "runtime/format.h"

#include "kernels/normal.h"
#include "runtime/floating_point.h"
#include "runtime/parallel.h"
#include "tensor/create.h"
#include "tensor/random_fill.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

template <typename T>
void affine(T* x, std::int64_t n, T range, T low) {
  if constexpr (std::is_same_v<T, float>) kernels::random_transforms().affine_f32(x, n, range, low);
  else kernels::random_transforms().affine_f64(x, n, range, low);
}

template <typename T>
void normal_blocks(T* x, std::int64_t n, double mean, double std) {
  if constexpr (std::is_same_v<T, float>)
    kernels::random_transforms().normal_f32(x, n, static_cast<float>(mean), static_cast<float>(std));
  else kernels::random_transforms().normal_f64(x, n, mean, std);
}

template <typename T>
void uniform_fill(const Tensor& x, double low, double high, Generator& generator) {
  // As in torch, the bounds are first converted to the type of the computation, and their difference is computed in
  // that type.
  using C = Compute<T>;
  const C from = static_cast<C>(low), to = static_cast<C>(high), range = to - from;
  if constexpr (std::is_floating_point_v<T>) {
    if (x.is_contiguous()) {
      T* data = x.data<T>();
      generator.uniform(data, x.numel());
      if (from != 0 || range != 1) affine(data, x.numel(), range, from);
      return;
    }
  }
  fill_in_memory_order<T>(x, [&] {
    const T drawn = convert<T>(std::fma(draw_uniform<T>(generator), range, from));
    // A half float that was rounded to the excluded upper bound becomes the lower bound, as in torch.
    return is_half<T> && widen(drawn) >= widen(convert<T>(to)) ? convert<T>(from) : drawn;
  });
}

/// Fills 16 or more contiguous elements: draws uniform numbers for all, then transforms them in blocks of 16. If the
/// length is not a multiple of 16, draws 16 new numbers for the last 16 elements.
template <typename T>
void normal_fill_wide(T* x, std::int64_t n, double mean, double std, Generator& generator) {
  constexpr std::int64_t part = 8192;
  const std::int64_t whole = n / 16 * 16;
  generator.uniform(x, n);
  runtime::parallel_for((whole + part - 1) / part, [&](std::int64_t i) {
    normal_blocks(x + i * part, std::min(part, whole - i * part), mean, std);
  });
  if (n % 16 == 0) return;
  T* tail = x + n - 16;
  generator.uniform(tail, 16);
  normal_blocks(tail, 16, mean, std);
}

template <typename T>
void normal_fill(const Tensor& x, double mean, double std, Generator& generator) {
  if (x.numel() >= 16 && x.is_contiguous()) {
    if constexpr (std::is_floating_point_v<T>) {
      normal_fill_wide(x.data<T>(), x.numel(), mean, std, generator);
    } else {
      // Half floats are computed in f32 and rounded once. The elements before `last` draw one number each, and then the
      // last 16 elements draw 16 numbers. Unlike above, the elements from `last` on draw only these.
      const std::int64_t n = x.numel(), last = (n - 1) / 16 * 16;
      const Tensor wide = empty({last + 16});
      normal_fill_wide(wide.data<float>(), wide.numel(), mean, std, generator);
      const float* from = wide.data<float>();
      for (std::int64_t i = 0; i < last; ++i) x.data<T>()[i] = convert<T>(from[i]);
      for (std::int64_t i = 0; i < 16; ++i) x.data<T>()[n - 16 + i] = convert<T>(from[last + i]);
    }
    return;
  }
  fill_in_memory_order<T>(x, [&] { return convert<T>(std::fma(generator.normal(), std, mean)); });
}

/// Calls fill(Type<T>{}) for a floating `x` that may be changed in place, and marks x as changed.
template <typename F>
Tensor fill_floating(const char* function, const char* name, const Tensor& x, F&& fill) {
  const runtime::DefaultFloatingPoint floating_point;
  check_floating(function, x);
  check_in_place(function, x);
  const History history = history_of_overwriting(name, x);
  with_type(x.dtype(), [&]<typename T>(Type<T> type) {
    if constexpr (std::is_floating_point_v<Compute<T>>) fill(type);
  });
  return history.changed(x);
}

}  // namespace

Tensor uniform_(Tensor x, double low, double high, Generator& generator) {
  if (!(low <= high) || !std::isfinite(high - low))
    throw ValueError(runtime::format("uniform_: from {} to {}; the bounds must rise and be finite", low, high));
  return fill_floating("uniform_", "UniformBackward0", x,
                       [&]<typename T>(Type<T>) { uniform_fill<T>(x, low, high, generator); });
}

Tensor normal_(Tensor x, double mean, double std, Generator& generator) {
  if (!(std >= 0)) throw ValueError(runtime::format("normal_: std is {}; it must not be negative", std));
  return fill_floating("normal_", "NormalBackward0", x,
                       [&]<typename T>(Type<T>) { normal_fill<T>(x, mean, std, generator); });
}

Tensor exponential_(Tensor x, double lambda, Generator& generator) {
  if (!(lambda > 0)) throw ValueError(runtime::format("exponential_: lambda is {}; it must be positive", lambda));
  return fill_floating("exponential_", "ExponentialBackward0", x, [&]<typename T>(Type<T>) {
    fill_in_memory_order<T>(x, [&] { return convert<T>(-1.0 / lambda * std::log1p(-generator.uniform_f64())); });
  });
}

Tensor rand(Dims sizes, Generator& generator, Dtype dtype) {
  checked_bytes("rand", sizes, dtype);
  return uniform_(empty(sizes, dtype), 0, 1, generator);
}
Tensor randn(Dims sizes, Generator& generator, Dtype dtype) {
  checked_bytes("randn", sizes, dtype);
  return normal_(empty(sizes, dtype), 0, 1, generator);
}

Tensor uniform_(Tensor x, double low, double high) { return uniform_(std::move(x), low, high, LockedGenerator()); }
Tensor normal_(Tensor x, double mean, double std) { return normal_(std::move(x), mean, std, LockedGenerator()); }
Tensor exponential_(Tensor x, double lambda) { return exponential_(std::move(x), lambda, LockedGenerator()); }
Tensor rand(Dims sizes, Dtype dtype) { return rand(sizes, LockedGenerator(), dtype); }
Tensor randn(Dims sizes, Dtype dtype) { return randn(sizes, LockedGenerator(), dtype); }

}  // namespace attn
