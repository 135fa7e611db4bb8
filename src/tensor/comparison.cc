// src/tensor/comparison.cc: computes elementwise comparisons and logic; the results are bool.
#include <attn/ops.h>

#include "tensor/binary.h"

#include <functional>

namespace attn {
namespace {

template <typename F>
Tensor compare(const char* function, const Tensor& a, const Tensor& b, const Tensor& out, F element) {
  const Dtype common = result_type(a, b);
  return binary<bool>(function, as(a, common), as(b, common), common, out, element);
}

template <typename F>
Tensor compare(const char* function, const Tensor& a, Scalar b, const Tensor& out, F element) {
  const Dtype common = result_type(a, b);
  return binary<bool>(function, as(a, common), filled({}, b, common), common, out, element);
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b, Tensor out) { return compare("eq", a, b, out, std::equal_to<>{}); }
Tensor ne(const Tensor& a, const Tensor& b, Tensor out) { return compare("ne", a, b, out, std::not_equal_to<>{}); }
Tensor lt(const Tensor& a, const Tensor& b, Tensor out) { return compare("lt", a, b, out, std::less<>{}); }
Tensor le(const Tensor& a, const Tensor& b, Tensor out) { return compare("le", a, b, out, std::less_equal<>{}); }
Tensor gt(const Tensor& a, const Tensor& b, Tensor out) { return compare("gt", a, b, out, std::greater<>{}); }
Tensor ge(const Tensor& a, const Tensor& b, Tensor out) { return compare("ge", a, b, out, std::greater_equal<>{}); }
Tensor eq(const Tensor& a, Scalar b, Tensor out) { return compare("eq", a, b, out, std::equal_to<>{}); }
Tensor ne(const Tensor& a, Scalar b, Tensor out) { return compare("ne", a, b, out, std::not_equal_to<>{}); }
Tensor lt(const Tensor& a, Scalar b, Tensor out) { return compare("lt", a, b, out, std::less<>{}); }
Tensor le(const Tensor& a, Scalar b, Tensor out) { return compare("le", a, b, out, std::less_equal<>{}); }
Tensor gt(const Tensor& a, Scalar b, Tensor out) { return compare("gt", a, b, out, std::greater<>{}); }
Tensor ge(const Tensor& a, Scalar b, Tensor out) { return compare("ge", a, b, out, std::greater_equal<>{}); }

Tensor logical_and(const Tensor& a, const Tensor& b, Tensor out) {
  return binary<bool>("logical_and", as(a, Dtype::boolean), as(b, Dtype::boolean), Dtype::boolean, out,
                      [](auto x, auto y) { return x && y; });
}

Tensor logical_or(const Tensor& a, const Tensor& b, Tensor out) {
  return binary<bool>("logical_or", as(a, Dtype::boolean), as(b, Dtype::boolean), Dtype::boolean, out,
                      [](auto x, auto y) { return x || y; });
}

Tensor logical_not(const Tensor& a, Tensor out) {
  return map<bool>("logical_not", a, out, [](auto v) { return v == 0; });
}

}  // namespace attn
