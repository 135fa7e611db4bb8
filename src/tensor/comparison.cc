// src/tensor/comparison.cc: comparisons and logic, element by element, to bool.
#include <attn/ops.h>

#include "tensor/unary.h"

#include <functional>

namespace attn {
namespace {

template <typename F>
Tensor compare(const char* function, const Tensor& a, const Tensor& b, F element) {
  const Dtype common = result_type(a, b);
  return binary<bool>(function, as(a, common), as(b, common), common, {}, element);
}

template <typename F>
Tensor compare(const char* function, const Tensor& a, Scalar b, F element) {
  const Dtype common = result_type(a, b);
  return binary<bool>(function, as(a, common), full({}, b, common), common, {}, element);
}

}  // namespace

Tensor eq(const Tensor& a, const Tensor& b) { return compare("eq", a, b, std::equal_to<>{}); }
Tensor ne(const Tensor& a, const Tensor& b) { return compare("ne", a, b, std::not_equal_to<>{}); }
Tensor lt(const Tensor& a, const Tensor& b) { return compare("lt", a, b, std::less<>{}); }
Tensor le(const Tensor& a, const Tensor& b) { return compare("le", a, b, std::less_equal<>{}); }
Tensor gt(const Tensor& a, const Tensor& b) { return compare("gt", a, b, std::greater<>{}); }
Tensor ge(const Tensor& a, const Tensor& b) { return compare("ge", a, b, std::greater_equal<>{}); }
Tensor eq(const Tensor& a, Scalar b) { return compare("eq", a, b, std::equal_to<>{}); }
Tensor ne(const Tensor& a, Scalar b) { return compare("ne", a, b, std::not_equal_to<>{}); }
Tensor lt(const Tensor& a, Scalar b) { return compare("lt", a, b, std::less<>{}); }
Tensor le(const Tensor& a, Scalar b) { return compare("le", a, b, std::less_equal<>{}); }
Tensor gt(const Tensor& a, Scalar b) { return compare("gt", a, b, std::greater<>{}); }
Tensor ge(const Tensor& a, Scalar b) { return compare("ge", a, b, std::greater_equal<>{}); }

Tensor logical_and(const Tensor& a, const Tensor& b) {
  return binary<bool>("logical_and", as(a, Dtype::boolean), as(b, Dtype::boolean), Dtype::boolean, {},
                      [](auto x, auto y) { return x && y; });
}

Tensor logical_or(const Tensor& a, const Tensor& b) {
  return binary<bool>("logical_or", as(a, Dtype::boolean), as(b, Dtype::boolean), Dtype::boolean, {},
                      [](auto x, auto y) { return x || y; });
}

Tensor logical_not(const Tensor& a) {
  return map<bool>("logical_not", a, {}, [](auto v) { return v == 0; });
}

}  // namespace attn
