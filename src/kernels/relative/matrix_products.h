// src/kernels/relative/matrix_products.h: multiplies small matrices by the kernels of matrix products, in one thread.
#pragma once
#include "kernels/gemm/target.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "runtime/once.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// Returns the kernels of the instruction set in use; null: the reference code.
inline const GemmTarget* gemm_here() {
  constinit static runtime::Once<const GemmTarget*> target;
  return target.get([] { return gemm_target(runtime::target().c_str()); });
}

/// Rows of a matrix, `stride` elements apart; `transposed`: its columns are.
struct Matrix {
  const void* data;
  std::int64_t stride;
  bool transposed = false;
};

/// `memory`: scratch of the kernels, `bytes` large. What needs more is computed by the reference code.
template <typename T>
class MatrixProducts {
 public:
  MatrixProducts(void* memory, std::size_t bytes) : memory_(memory), bytes_(bytes) {}

  static GemmProblem problem_of(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k,
                                T* y) {
    GemmProblem g{.m = m,
                  .n = n,
                  .k = k,
                  .a = a.data,
                  .b = b.data,
                  .y = y,
                  .element = sizeof(T) == 8 ? Element::f64 : Element::f32};
    g.a_stride[a.transposed] = a.stride, g.a_stride[!a.transposed] = 1;
    g.b_stride[b.transposed] = b.stride, g.b_stride[!b.transposed] = 1;
    g.y_stride[0] = n, g.y_stride[1] = 1;
    return g;
  }
  /// Computes y = a b, [m, n], contiguous.
  void multiply(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k, T* y) const {
    const GemmProblem g = problem_of(a, b, m, n, k, y);
    const GemmTarget* const target = gemm_here();
    if (target == nullptr || m == 0 || n == 0 || k == 0 || target->scratch_bytes(g, false) > bytes_)
      return reference().gemm(g, 0, m);
    const std::int64_t parts = target->parts(g, false);
    for (std::int64_t part = 0; part < parts; ++part) target->run(g, part, memory_, nullptr);
  }
  /// Computes y = a b, in which the zeros of a add nothing, whatever b is: a masked key may hold NaN.
  void multiply_nonzero(const Matrix& a, const Matrix& b, std::int64_t m, std::int64_t n, std::int64_t k, T* y) const {
    multiply(a, b, m, n, k, y);
    T worst = 0;
    for (std::int64_t at = 0; at < m * n; ++at) worst = worst + (y[at] - y[at]);  // NaN if one is not finite
    if (worst == worst) return;
    const GemmProblem g = problem_of(a, b, m, n, k, y);
    for (std::int64_t i = 0; i < m; ++i)
      for (std::int64_t j = 0; j < n; ++j) {
        T total = 0, chain = 0;
        for (std::int64_t c = 0; c < k; ++c) {
          const T left = static_cast<const T*>(a.data)[i * g.a_stride[0] + c * g.a_stride[1]],
                  right = static_cast<const T*>(b.data)[c * g.b_stride[0] + j * g.b_stride[1]];
          if (left != 0) chain = std::fma(left, right, chain);
          if (c % 256 == 255 || c + 1 == k) total = total + chain, chain = 0;
        }
        y[i * n + j] = total;
      }
  }

 private:
  void* memory_;
  std::size_t bytes_;
};

}  // namespace attn::kernels
