// src/tensor/arithmetic.cc: computes sums, products, quotients, powers, maximum and minimum of two operands.
#include <attn/ops.h>

#include "tensor/binary.h"

#include <cmath>
#include <limits>

namespace attn {
namespace {

/// Computes integers with wrap-around, as the processor does. For bool, addition is "or" and multiplication is "and".
template <typename C, typename F>
C wrapping(C a, C b, F function) {
  if constexpr (std::is_same_v<C, bool>) return function(static_cast<int>(a), static_cast<int>(b)) != 0;
  else if constexpr (std::is_integral_v<C>)
    return static_cast<C>(function(static_cast<std::make_unsigned_t<C>>(a), static_cast<std::make_unsigned_t<C>>(b)));
  else return function(a, b);
}

// If a kernel computes the same as a function object, the object names that kernel; elements_of_pairs passes the name
// on.
struct Plus {
  static constexpr auto kernel = kernels::Binary::add;
  template <typename C>
  C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x + y; });
  }
};
struct Minus {
  static constexpr auto kernel = kernels::Binary::sub;
  template <typename C>
  C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x - y; });
  }
};
struct Times {
  static constexpr auto kernel = kernels::Binary::mul;
  template <typename C>
  C operator()(C a, C b) const {
    return wrapping(a, b, [](auto x, auto y) { return x * y; });
  }
};
struct Over {
  static constexpr auto kernel = kernels::Binary::div;
  template <typename C>
  C operator()(C a, C b) const {
    if constexpr (std::is_floating_point_v<C>) return a / b;
    else return C{};  // never reached: quotients are computed in floating types
  }
};
constexpr Plus plus;
constexpr Minus minus;
constexpr Times times;
constexpr Over over;
// Both values are already computed, so this selects one without a branch, and the compiler can vectorise it.
constexpr auto larger = []<typename C>(C a, C b) -> C { return ((a != a) | (a >= b)) ? a : b; };
constexpr auto smaller = []<typename C>(C a, C b) -> C { return ((a != a) | (a <= b)) ? a : b; };

/// Computes function(a, alpha b).
template <typename F>
struct WithMultiple {
  explicit WithMultiple(Scalar alpha) : number(alpha.to_double()), whole(alpha.is_floating() ? 0 : alpha.to_int()) {}
  template <typename C>
  C operator()(C a, C b) const {
    C alpha;
    if constexpr (std::is_floating_point_v<C>) alpha = static_cast<C>(number);
    else alpha = convert<C>(whole);
    return F()(a, times(b, alpha));
  }
  double number;
  std::int64_t whole;  // alpha for integer operands; `number` is alpha for floating ones
};

template <typename C>
C integer_power(C base, C exponent) {
  std::uint64_t result = 1, square = static_cast<std::uint64_t>(base);
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  for (std::uint64_t left = static_cast<std::uint64_t>(exponent); left; left >>= 1) {
    if (left & 1) result *= square;
    square *= square;
  }
  return static_cast<C>(result);
}

/// Computes one power: f32 in f64, so that the last bit hardly depends on the C library.
struct Power {
  template <typename C>
  C operator()(C a, C b) const {
    if constexpr (std::is_same_v<C, bool>) return a || !b;
    else if constexpr (std::is_integral_v<C>) return integer_power(a, b);
    else return static_cast<C>(std::pow(static_cast<double>(a), static_cast<double>(b)));
  }
};
constexpr Power power;

/// Computes f32 powers. For positive finite bases and finite exponents the kernels compute e^(b log a) in f64, whose
/// rounding errors are far below one rounding of f32.
void power_of_singles(const void*, const void* const* x, void* y, std::int64_t n) {
  constexpr std::int64_t block = 256;
  const auto& table = kernels::row_kernels();
  const auto regular = [](float a, float b) {
    constexpr float largest = std::numeric_limits<float>::max();
    const float size = std::abs(b);
    return (a > 0) & (a <= largest) & (size <= largest);
  };
  alignas(64) double wide[block];
  for (std::int64_t start = 0; start < n; start += block) {
    const std::int64_t count = std::min(block, n - start);
    const float *a = static_cast<const float*>(x[0]) + start, *b = static_cast<const float*>(x[1]) + start;
    float* result = static_cast<float*>(y) + start;
    for (std::int64_t i = 0; i < count; ++i) wide[i] = regular(a[i], b[i]) ? a[i] : 1.0;
    table.unary(kernels::Unary::log, kernels::Element::f64, wide, wide, count);
    for (std::int64_t i = 0; i < count; ++i) wide[i] *= b[i];
    table.unary(kernels::Unary::exp, kernels::Element::f64, wide, wide, count);
    for (std::int64_t i = 0; i < count; ++i)
      result[i] = regular(a[i], b[i]) ? static_cast<float>(wide[i]) : power(a[i], b[i]);
  }
}

void check_no_bool(const char* function, Dtype a, Dtype b) {
  if (a == Dtype::boolean || b == Dtype::boolean)
    throw DtypeError(std::string(function) + ": given " + std::string(name_of(a)) + " and " + std::string(name_of(b)) +
                     "; bool cannot be subtracted, use ne or logical_not");
}

Dtype dtype_of_scalar(Scalar value) {
  return value.is_floating() ? Dtype::f32 : value.is_boolean() ? Dtype::boolean : Dtype::i64;
}

void check_alpha(const char* function, Scalar alpha, Dtype common) {
  if (alpha.is_floating() && !is_floating(common))
    throw DtypeError(std::string(function) + ": alpha is a floating number beside " + std::string(name_of(common)) +
                     " tensors; it must be an integer");
}

/// Returns the second operand of a product or quotient. If the first operand is bf16 or f16, a number (a Scalar, or a
/// tensor of rank 0) becomes f32, so that only the result is rounded.
Tensor factor(Scalar value, Dtype common) { return filled({}, value, compute_dtype(common)); }
Tensor factor(const Tensor& b, const Tensor& a, Dtype common) {
  return as(b, b.dim() == 0 && a.dim() != 0 ? compute_dtype(common) : common);
}

template <typename F>
Tensor same_type(const char* function, const Tensor& a, const Tensor& b, const Tensor& out, F element) {
  const Dtype common = result_type(a, b);
  return binary<void>(function, as(a, common), as(b, common), common, out, element);
}

template <typename F>
Tensor same_type(const char* function, const Tensor& a, Scalar b, F element) {
  const Dtype common = result_type(a, b);
  return binary<void>(function, as(a, common), filled({}, b, common), common, {}, element);
}

Tensor power_of(const char* function, const Tensor& a, const Tensor& b, Dtype common, const Tensor& out) {
  Elements elements = elements_of_pairs<void>(common, power);
  if (compute_dtype(common) == Dtype::f32) elements.loop = power_of_singles;
  return binary(function, a, b, common, out, elements);
}

/// Sets x to element(x, y), computed in `common`. Throws unless x's dtype can hold numbers of that kind. `y` is `other`
/// converted for the computation.
template <typename F>
const Tensor& in_place(const char* function, const History& history, const Tensor& x, const Tensor& other,
                       const Tensor& y, Dtype common, F element) {
  if (!(broadcast_shapes(function, x.sizes(), other.sizes()) == x.sizes()))
    throw ShapeError(std::string(function) + ": other has shape " + to_string(other.sizes()) +
                     "; it must broadcast to " + to_string(x.sizes()));
  const bool fits =
      is_floating(x.dtype()) || (!is_floating(common) && (x.dtype() != Dtype::boolean || common == Dtype::boolean));
  if (!fits)
    throw DtypeError(std::string(function) + ": the result is " + std::string(name_of(common)) +
                     "; it cannot be kept in " + std::string(name_of(x.dtype())));
  check_in_place(function, x, other);
  if (x.dtype() == common && !overlaps(x, y)) binary_into<void>(x, x, y, common, element);
  else copy_values(x, binary<void>(function, as(x, common), y, common, {}, element));
  return history.changed(x);
}

/// Returns `other` with the values that it has before x changes, for the gradient: a copy if both share memory and a
/// gradient is wanted.
Tensor unchanged(const Tensor& x, const Tensor& other) {
  const bool changes = other.impl()->storage == x.impl()->storage && (wants_grad(x) || wants_grad(other));
  return changes ? other.clone() : other;
}

Tensor reciprocal(const Tensor& x) {
  const Tensor y = map_floating("div", x, {}, [](auto v) { return 1 / v; });
  return record("ReciprocalBackward0", y,
                wrt(x, [](auto& dy, auto& y) { return -widen(dy) * widen(y) * widen(y); }, y));
}

// The gradients of sums, products and quotients are built from these functions.
constexpr auto same = [](auto& dy) { return dy; };
constexpr auto opposite = [](auto& dy) { return neg(dy); };
constexpr auto times_other = [](auto& dy, auto& other) { return dy * other; };
constexpr auto over_other = [](auto& dy, auto& other) { return dy / other; };

/// Returns the gradient of an operand of maximum and minimum: dy where the operand was taken, half of dy where both are
/// equal, 0 elsewhere.
Tensor share(const Tensor& dy, const Tensor& equal, const Tensor& lost) {
  return where(lost, 0, where(equal, dy * 0.5, dy));
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Tensor out) {
  const Tensor result = same_type("add", a, b, out, plus);
  return record("AddBackward0", result, wrt(a, same), wrt(b, same));
}

Tensor sub(const Tensor& a, const Tensor& b, Tensor out) {
  check_no_bool("sub", a.dtype(), b.dtype());
  const Tensor result = same_type("sub", a, b, out, minus);
  return record("SubBackward0", result, wrt(a, same), wrt(b, opposite));
}

Tensor mul(const Tensor& a, const Tensor& b, Tensor out) {
  const Dtype common = result_type(a, b);
  const Tensor result = binary<void>("mul", as(a, common), factor(b, a, common), common, out, times);
  return record("MulBackward0", result, wrt(a, times_other, b), wrt(b, times_other, a));
}

Tensor div(const Tensor& a, const Tensor& b, Tensor out) {
  const Dtype common = floating_type(result_type(a, b));
  const Tensor result = binary<void>("div", as(a, common), factor(b, a, common), common, out, over);
  const auto wrt_divisor = [](auto& dy, auto& a, auto& b) { return -widen(dy) * (widen(a) / widen(b) / widen(b)); };
  return record("DivBackward0", result, wrt(a, over_other, b), wrt(b, wrt_divisor, a, b));
}

Tensor add(const Tensor& a, Scalar b) { return record("AddBackward0", same_type("add", a, b, plus), wrt(a, same)); }

Tensor sub(const Tensor& a, Scalar b) {
  check_no_bool("sub", a.dtype(), dtype_of_scalar(b));
  return record("SubBackward0", same_type("sub", a, b, minus), wrt(a, same));
}

Tensor mul(const Tensor& a, Scalar b) {
  const Dtype common = result_type(a, b);
  const Tensor result = binary<void>("mul", as(a, common), factor(b, common), common, {}, times);
  return record("MulBackward0", result, wrt(a, [b](auto& dy) { return dy * b; }));
}

Tensor div(const Tensor& a, Scalar b) {
  const Dtype common = floating_type(result_type(a, b));
  const Tensor result = binary<void>("div", as(a, common), factor(b, common), common, {}, over);
  return record("DivBackward0", result, wrt(a, [b](auto& dy) { return dy / b; }));
}

Tensor operator-(Scalar a, const Tensor& b) {
  check_no_bool("sub", dtype_of_scalar(a), b.dtype());
  const Dtype common = result_type(b, a);
  return record("RsubBackward1", binary<void>("sub", filled({}, a, common), as(b, common), common, {}, minus),
                wrt(b, opposite));
}

Tensor operator/(Scalar a, const Tensor& b) { return mul(reciprocal(b), a); }  // rounds twice, as torch does

Tensor pow(const Tensor& a, Scalar exponent, Tensor out) {
  const Dtype common = result_type(a, exponent);
  const double p = exponent.to_double();
  if (is_integral(common) && p < 0)
    throw ValueError("pow: an integer tensor to the power " + std::to_string(exponent.to_int()) +
                     "; the exponent must not be negative");
  const Tensor x = as(a, common);
  Tensor result;
  // These special exponents are rounded as in torch.
  if (is_floating(common) && p == 1) result = map_floating("pow", x, out, [](auto v) { return v; });
  else if (is_floating(common) && p == 0.5) result = map_floating("pow", x, out, [](auto v) { return std::sqrt(v); });
  else if (is_floating(common) && p == 2) result = map_floating("pow", x, out, [](auto v) { return v * v; });
  else if (is_floating(common) && p == 3) result = map_floating("pow", x, out, [](auto v) { return v * v * v; });
  else if (is_floating(common) && p == -0.5)
    result = map_floating("pow", x, out, [](auto v) { return 1 / std::sqrt(v); });
  else if (is_floating(common) && p == -1) result = map_floating("pow", x, out, [](auto v) { return 1 / v; });
  else if (is_floating(common) && p == -2) result = map_floating("pow", x, out, [](auto v) { return 1 / (v * v); });
  else result = power_of("pow", x, factor(exponent, common), common, out);
  const auto vjp = [p](auto& dy, auto& a) { return p == 0 ? zeros_like(dy) : widen(dy) * (pow(widen(a), p - 1) * p); };
  return record("PowBackward0", result, wrt(a, vjp, a));
}

Tensor pow(const Tensor& a, const Tensor& exponent, Tensor out) {
  const Dtype common = result_type(a, exponent);
  const Tensor y = power_of("pow", as(a, common), as(exponent, common), common, out);
  const auto wrt_base = [](auto& dy, auto& a, auto& p) {
    return where(eq(p, 0), 0, widen(dy) * (widen(p) * pow(widen(a), widen(p) - 1)));
  };
  const auto wrt_exponent = [](auto& dy, auto& a, auto& p, auto& y) {
    // where a = 0 and p >= 0 the gradient is 0, although log 0 is infinite
    const Tensor zero = logical_and(eq(a, 0), ge(p, 0));
    return where(zero, 0, widen(dy) * (widen(y) * log(widen(a))));
  };
  return record("PowBackward1", y, wrt(a, wrt_base, a, exponent), wrt(exponent, wrt_exponent, a, exponent, y));
}

Tensor maximum(const Tensor& a, const Tensor& b, Tensor out) {
  const auto vjp = [](auto& dy, auto& mine, auto& other) { return share(dy, eq(mine, other), lt(mine, other)); };
  return record("MaximumBackward0", same_type("maximum", a, b, out, larger), wrt(a, vjp, a, b), wrt(b, vjp, b, a));
}

Tensor minimum(const Tensor& a, const Tensor& b, Tensor out) {
  const auto vjp = [](auto& dy, auto& mine, auto& other) { return share(dy, eq(mine, other), gt(mine, other)); };
  return record("MinimumBackward0", same_type("minimum", a, b, out, smaller), wrt(a, vjp, a, b), wrt(b, vjp, b, a));
}

const Tensor& Tensor::add_(const Tensor& other, Scalar alpha) const {
  const Dtype common = result_type(*this, other);
  check_alpha("add_", alpha, common);
  const History history =
      history_of("AddBackward0", *this, wrt(*this, same), wrt(other, [alpha](auto& dy) { return dy * alpha; }));
  if (alpha.to_double() == 1) return in_place("add_", history, *this, other, as(other, common), common, plus);
  return in_place("add_", history, *this, other, as(other, common), common, WithMultiple<Plus>(alpha));
}

const Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) const {
  check_no_bool("sub_", dtype(), other.dtype());
  const Dtype common = result_type(*this, other);
  check_alpha("sub_", alpha, common);
  const History history =
      history_of("SubBackward0", *this, wrt(*this, same), wrt(other, [alpha](auto& dy) { return neg(dy * alpha); }));
  if (alpha.to_double() == 1) return in_place("sub_", history, *this, other, as(other, common), common, minus);
  return in_place("sub_", history, *this, other, as(other, common), common, WithMultiple<Minus>(alpha));
}

const Tensor& Tensor::mul_(const Tensor& other) const {
  const Dtype common = result_type(*this, other);
  const Tensor before = wants_grad(other) ? clone() : Tensor(), second = unchanged(*this, other);
  const History history =
      history_of("MulBackward0", *this, wrt(*this, times_other, second), wrt(other, times_other, before));
  return in_place("mul_", history, *this, other, factor(other, *this, common), common, times);
}

const Tensor& Tensor::div_(const Tensor& other) const {
  const Dtype common = floating_type(result_type(*this, other));
  const Tensor before = wants_grad(other) ? clone() : Tensor(), second = unchanged(*this, other);
  const auto wrt_divisor = [](auto& dy, auto& a, auto& b) { return -widen(dy) * (widen(a) / widen(b) / widen(b)); };
  const History history =
      history_of("DivBackward0", *this, wrt(*this, over_other, second), wrt(other, wrt_divisor, before, second));
  return in_place("div_", history, *this, other, factor(other, *this, common), common, over);
}

const Tensor& Tensor::add_(Scalar value) const {
  const Dtype common = result_type(*this, value);
  const Tensor y = filled({}, value, common);
  const History history = history_of("AddBackward0", *this, wrt(*this, same));
  return in_place("add_", history, *this, y, y, common, plus);
}

const Tensor& Tensor::sub_(Scalar value) const {
  check_no_bool("sub_", dtype(), dtype_of_scalar(value));
  const Dtype common = result_type(*this, value);
  const Tensor y = filled({}, value, common);
  const History history = history_of("SubBackward0", *this, wrt(*this, same));
  return in_place("sub_", history, *this, y, y, common, minus);
}

const Tensor& Tensor::div_(Scalar value) const {
  const Dtype common = floating_type(result_type(*this, value));
  const Tensor y = factor(value, common);
  const History history = history_of("DivBackward0", *this, wrt(*this, [value](auto& dy) { return dy / value; }));
  return in_place("div_", history, *this, y, y, common, over);
}

const Tensor& Tensor::mul_(Scalar value) const {
  const Dtype common = result_type(*this, value);
  const Tensor y = factor(value, common);
  const History history = history_of("MulBackward0", *this, wrt(*this, [value](auto& dy) { return dy * value; }));
  return in_place("mul_", history, *this, y, y, common, times);
}

}  // namespace attn
