// src/tensor/random_fill.h: fills a tensor with numbers drawn one after another, in memory order.
#pragma once
#include <attn/random.h>

#include "tensor/element.h"
#include "tensor/memory_order.h"

#include <array>

namespace attn {

/// Gives access to the global generator and holds its lock while the object lives.
class LockedGenerator {
 public:
  operator Generator&() { return default_generator(); }

 private:
  std::lock_guard<std::mutex> lock_{default_generator_mutex()};
};

/// Sets every element of `x`, in memory order, to next().
template <typename T, typename F>
void fill_in_memory_order(const Tensor& x, F&& next) {
  if (x.numel() == 0) return;
  T* data = x.data<T>();
  const Dims order = memory_order(x);
  std::array<std::int64_t, max_rank> index{};
  const int last = order.size() - 1;
  while (true) {
    if (last < 0) {
      *data = next();
      return;
    }
    const auto inner = static_cast<int>(order[last]);
    for (std::int64_t i = 0, n = x.size(inner), stride = x.stride(inner); i < n; ++i) data[i * stride] = next();
    int d = last - 1;
    for (; d >= 0; --d) {
      const auto dim = static_cast<int>(order[d]);
      data += x.stride(dim);
      if (++index[static_cast<std::size_t>(d)] < x.size(dim)) break;
      data -= x.stride(dim) * x.size(dim);
      index[static_cast<std::size_t>(d)] = 0;
    }
    if (d < 0) return;
  }
}

/// Throws DtypeError unless `x` is a floating tensor.
inline void check_floating(const char* function, const Tensor& x) {
  if (!is_floating(x.dtype()))
    throw DtypeError(std::string(function) + ": the tensor is " + std::string(name_of(x.dtype())) +
                     "; it must be a floating type");
}

/// Draws a uniform number in [0, 1) as torch draws it for T: f64 takes two words, all others take one. Numbers for half
/// floats are not rounded yet.
template <typename T>
Compute<T> draw_uniform(Generator& generator) {
  if constexpr (std::is_same_v<T, double>) return generator.uniform_f64();
  else return generator.uniform_f32();
}

}  // namespace attn
