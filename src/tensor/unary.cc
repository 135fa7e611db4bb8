// src/tensor/unary.cc: computes those functions of one tensor whose results are exact or correctly rounded, such as abs
// and neg.
#include <attn/ops.h>

#include "tensor/binary.h"

#include <cmath>

namespace attn {
namespace {

void check_not_bool(const char* function, const Tensor& x) {
  if (x.dtype() == Dtype::boolean) throw DtypeError(std::string(function) + ": x is bool; it must be a number");
}

constexpr auto negative = []<typename C>(C v) -> C {
  if constexpr (std::is_floating_point_v<C>) return -v;
  else return static_cast<C>(0 - static_cast<std::uint64_t>(v));
};

constexpr auto absolute = []<typename C>(C v) -> C {
  if constexpr (std::is_floating_point_v<C>) return std::fabs(v);
  else return v < C{0} ? negative(v) : v;
};

/// Returns -1, 0 or 1; 0 for NaN. It has no gradient.
Tensor sign(const Tensor& x) {
  return map<void>("sign", x.detach(), {}, []<typename C>(C v) -> C {
    return v > C{0} ? C{1} : v < C{0} ? C(-1) : C{0};
  });
}

}  // namespace

Tensor sqrt(const Tensor& x, Tensor out) {
  const Tensor y = map_floating("sqrt", x, out, [](auto v) { return std::sqrt(v); });
  return record("SqrtBackward0", y, wrt(x, [](auto& dy, auto& y) { return dy / (widen(y) * 2); }, y));
}

Tensor abs(const Tensor& x, Tensor out) {
  check_not_bool("abs", x);
  return record("AbsBackward0", map<void>("abs", x, out, absolute),
                wrt(x, [](auto& dy, auto& x) { return dy * sign(x); }, x));
}

Tensor relu(const Tensor& x, Tensor out) {
  check_not_bool("relu", x);
  const Tensor y = map<void>("relu", x, out, []<typename C>(C v) -> C { return v < C{0} ? C{0} : v; });
  return record("ReluBackward0", y, wrt(x, [](auto& dy, auto& y) { return where(le(y, 0), 0, dy); }, y));
}

Tensor neg(const Tensor& a) {
  check_not_bool("neg", a);
  return record("NegBackward0", map<void>("neg", a, {}, negative), wrt(a, [](auto& dy) { return neg(dy); }));
}

Tensor isnan(const Tensor& x) {
  return map<bool>("isnan", x, {}, [](auto v) { return v != v; });
}

Tensor isinf(const Tensor& x) {
  return map<bool>("isinf", x, {}, []<typename C>(C v) {
    if constexpr (std::is_floating_point_v<C>) return std::isinf(v);
    else return false;
  });
}

}  // namespace attn
