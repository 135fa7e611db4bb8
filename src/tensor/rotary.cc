// src/tensor/rotary.cc: computes rotary position embedding: rotates pairs of elements by given angles.
#include <attn/ops.h>

#include "tensor/build.h"
#include "tensor/element.h"
#include "tensor/iterate.h"
#include "tensor/rows.h"

namespace attn {
namespace {

/// The distance in bytes from the first to the second element of each pair, in x and in the result y.
struct Halves {
  std::int64_t x, y;
};

/// Computes (y1, y2) = (x1 cos - x2 sin, x2 cos + x1 sin), with sin multiplied by `sign`.
template <typename T>
void turn_run(char* const* data, const std::int64_t* strides, std::int64_t n, Halves second, Compute<T> sign) {
  for (std::int64_t i = 0; i < n; ++i) {
    const char* const x = data[1] + i * strides[1];
    char* const y = data[0] + i * strides[0];
    const auto x1 = widen(*reinterpret_cast<const T*>(x)), x2 = widen(*reinterpret_cast<const T*>(x + second.x));
    const auto cos = *reinterpret_cast<const Compute<T>*>(data[2] + i * strides[2]),
               sin = sign * *reinterpret_cast<const Compute<T>*>(data[3] + i * strides[3]);
    *reinterpret_cast<T*>(y) = convert<T>(x1 * cos - x2 * sin);
    *reinterpret_cast<T*>(y + second.y) = convert<T>(x2 * cos + x1 * sin);
  }
}

void check(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  check_floating_point("rotary", x);
  if (x.dim() == 0 || x.size(-1) % 2 != 0)
    throw ShapeError("rotary: x has shape " + to_string(x.sizes()) + "; its last dim must be even");
  Dims angles = x.sizes();
  angles[x.dim() - 1] /= 2;
  for (const auto& [name, table] :
       {std::pair<const char*, const Tensor&>("cos", cos), std::pair<const char*, const Tensor&>("sin", sin)}) {
    if (table.dtype() != compute_dtype(x.dtype()))
      throw DtypeError("rotary: " + std::string(name) + " is " + std::string(name_of(table.dtype())) +
                       "; beside x in " + std::string(name_of(x.dtype())) + " it must be " +
                       std::string(name_of(compute_dtype(x.dtype()))));
    if (table.dim() > x.dim() || !(broadcast_shapes("rotary", table.sizes(), angles) == angles))
      throw ShapeError("rotary: " + std::string(name) + " has shape " + to_string(table.sizes()) +
                       "; it must broadcast to " + to_string(angles));
  }
}

/// Rotates x by the angles, or by the negative angles if `back`.
Tensor rotated(const Tensor& x, const Tensor& cos, const Tensor& sin, bool back) {
  const Tensor y = empty(x.sizes(), x.dtype());
  const int last = x.dim() - 1;
  const std::int64_t pairs = x.size(-1) / 2;
  Dims sizes = x.sizes();
  sizes[last] = pairs;
  const auto first = [&](const Tensor& t) { return t.detach().narrow(last, 0, pairs); };
  with_type(x.dtype(), [&]<typename T>(Type<T>) {
    if constexpr (std::is_floating_point_v<Compute<T>>) {
      const std::int64_t bytes = static_cast<std::int64_t>(sizeof(T)) * pairs;
      const Halves second{bytes * x.stride(-1), bytes};
      iterate_in_parts(sizes,
                       {operand(first(y), sizes), operand(first(x), sizes), operand(cos, sizes), operand(sin, sizes)},
                       [second, back](char* const* data, const std::int64_t* strides, std::int64_t n) {
                         turn_run<T>(data, strides, n, second, back ? -1 : 1);
                       });
    }
  });
  return y;
}

Tensor rotary_turn(const Tensor& x, const Tensor& cos, const Tensor& sin, bool back) {
  const auto halves = [](const Tensor& t) { return t.chunk(2, -1); };
  const auto wrt_cos = [halves](auto& dy, auto& x) {
    const auto d = halves(widen(dy)), v = halves(widen(x));
    return d[0] * v[0] + d[1] * v[1];
  };
  const auto wrt_sin = [halves, back](auto& dy, auto& x) {
    const auto d = halves(widen(dy)), v = halves(widen(x));
    return back ? d[0] * v[1] - d[1] * v[0] : d[1] * v[0] - d[0] * v[1];
  };
  // The gradient is the product with the transposed matrix [[cos, sin], [-sin, cos]]: the rotation by the negative
  // angles.
  const auto wrt_x = [back](auto& dy, auto& cos, auto& sin) { return rotary_turn(dy, cos, sin, !back); };
  return record("RotaryBackward0", rotated(x, cos, sin, back), wrt(x, wrt_x, cos, sin), wrt(cos, wrt_cos, x),
                wrt(sin, wrt_sin, x));
}

}  // namespace

Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  check(x, cos, sin);
  return rotary_turn(x, cos, sin, /*back=*/false);
}

}  // namespace attn
