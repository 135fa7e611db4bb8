// src/kernels/math/activations-inl.h: computes sigmoid, silu, erf and gelu of kernels/ref/math.h in vectors: the same
// steps, so the same bits.
#if defined(ATTN_ACTIVATIONS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef ATTN_ACTIVATIONS_INL_H
#undef ATTN_ACTIVATIONS_INL_H
#else
#define ATTN_ACTIVATIONS_INL_H
#endif

#include <hwy/highway.h>

#include "kernels/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace attn::kernels::HWY_NAMESPACE {
#if HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128
namespace hn = hwy::HWY_NAMESPACE;

/// Returns x, with any NaN as the canonical one.
template <class D>
HWY_INLINE hn::Vec<D> canonical(D d, hn::Vec<D> x) {
  return hn::IfThenElse(hn::Eq(x, x), x, hn::Set(d, std::numeric_limits<hn::TFromD<D>>::quiet_NaN()));
}

/// Computes the sigmoid of x; if x is NaN, the result is an arbitrary number.
template <class D>
HWY_INLINE hn::Vec<D> sigmoid_of_number(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto one = hn::Set(d, T(1)), e = exp_up_to_highest(d, hn::Neg(hn::Abs(x))), sum = hn::Add(one, e),
             lost = hn::Add(hn::Sub(one, sum), e);
  const auto y = hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), sum);
  return hn::NegMulAdd(y, lost, y);
}

template <class D>
HWY_INLINE hn::Vec<D> sigmoid(D d, hn::Vec<D> x) {
  return canonical(d, hn::IfThenElse(hn::Eq(x, x), sigmoid_of_number(d, x), x));
}

/// Computes erf(z) for z in [0, 1].
template <class D>
HWY_INLINE hn::Vec<D> erf_near(D d, hn::Vec<D> z) {
  return hn::MulAdd(z, horner(d, Constants<hn::TFromD<D>>::erf, hn::Mul(z, z)), z);
}
/// Computes erfc(z) for z >= 1; the square of z is given as square + rest.
template <class D>
HWY_INLINE hn::Vec<D> erfc_far(D d, hn::Vec<D> z, hn::Vec<D> square, hn::Vec<D> rest) {
  using T = hn::TFromD<D>;
  const auto e = exp_up_to_highest(d, hn::Neg(square)), three = hn::Set(d, T(3));
  return hn::Mul(hn::NegMulAdd(rest, e, e),
                 horner(d, Constants<T>::erfc, hn::Div(hn::Sub(z, three), hn::Add(z, three))));
}

template <class D>
HWY_INLINE hn::Vec<D> erf(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  const auto z = hn::Abs(x), square = hn::Mul(z, z), one = hn::Set(d, T(1));
  auto y = erf_near(d, z);
  const auto near = hn::Lt(z, one);
  if (!hn::AllTrue(d, near)) {
    const auto far = hn::Sub(one, erfc_far(d, z, square, hn::MulSub(z, z, square)));
    // NaN is not below 1, so it takes the far branch and stays NaN
    y = hn::IfThenElse(near, y, hn::IfThenElse(hn::Ge(z, hn::Set(d, Constants<T>::erf_one)), one, far));
  }
  return canonical(d, hn::CopySign(y, x));
}

template <class D>
HWY_INLINE hn::Vec<D> silu(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, T(-1000))), hn::Set(d, T(-0.0)),
                        canonical(d, hn::Mul(x, sigmoid_of_number(d, x))));
}

template <class D>
HWY_INLINE hn::Vec<D> gelu_none(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using C = Constants<T>;
  const auto one = hn::Set(d, T(1)), half = hn::Mul(hn::Set(d, T(0.5)), x),
             z = hn::Mul(hn::Abs(x), hn::Set(d, C::sqrt_half));
  auto y = hn::Mul(half, hn::Add(one, hn::CopySign(erf_near(d, z), x)));
  const auto near = hn::Lt(z, one);
  if (!hn::AllTrue(d, near)) {
    const auto square = hn::Mul(half, x), tail = erfc_far(d, z, square, hn::MulSub(half, x, square));
    const auto far = hn::Mul(half, hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, T(2)), tail)));
    y = hn::IfThenElse(near, y, hn::IfThenElse(hn::Gt(z, hn::Set(d, -C::gelu_lowest)), x, far));
    y = hn::IfThenElse(hn::Lt(x, hn::Set(d, C::gelu_lowest)), hn::Set(d, T(-0.0)), y);
  }
  return canonical(d, y);  // NaN takes the far branches, which return NaN
}

template <class D>
HWY_INLINE hn::Vec<D> gelu_tanh(D d, hn::Vec<D> x) {
  using T = hn::TFromD<D>;
  using C = Constants<T>;
  const auto cubic = hn::MulAdd(hn::Mul(hn::Set(d, T(0.044715)), hn::Mul(x, x)), x, x);
  const auto y =
      hn::Mul(x, sigmoid_of_number(d, hn::Mul(hn::Mul(hn::Set(d, C::sqrt_two_over_pi), cubic), hn::Set(d, T(2)))));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, C::gelu_lowest)), hn::Set(d, T(-0.0)), canonical(d, y));
}

#endif
}  // namespace attn::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
