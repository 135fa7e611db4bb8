// src/kernels/gemm/product.h: computes matrix products by the kernel of the target in use, distributed among threads.
#pragma once
#include "kernels/reference.h"

#include <span>

namespace attn::kernels {

/// A batch of products of equal shape: its dims, outermost first, and the strides of a, b and y along them, in
/// elements; 0 for a shared operand.
struct GemmBatch {
  int dims = 0;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* a_strides = nullptr;
  const std::int64_t* b_strides = nullptr;
  const std::int64_t* y_strides = nullptr;

  std::int64_t items() const;
  /// Returns the problem of item i, from that of the first item and the element sizes in bytes.
  GemmProblem item(const GemmProblem& first, std::int64_t i, std::int64_t a_bytes, std::int64_t b_bytes,
                   std::int64_t y_bytes) const;
};

/// Returns whether products take bf16 directly, by the processor's dot product of pairs. Otherwise operands are
/// converted to f32, and a sum may differ in its last bits from that of a processor with the dot product.
bool multiplies_bf16();

/// Returns whether f32 products accept a 16-bit b (`b_element`): all kernels do except the reference code.
bool multiplies_half_b();

/// Returns whether kernels multiply these elements by a b of blocks (GemmProblem::b_blocks). Where they do not,
/// `multiply` takes f32 with blocks nevertheless, by the reference code.
bool multiplies_blocks(Element element);

/// Computes the product, or all products of a batch. Split and threads change no bit; the kernel changes bits of bf16
/// only. Elements: f32 and f64, and bf16 if `multiplies_bf16`. A 16-bit b is accepted if `multiplies_half_b` and the
/// columns of y are adjacent.
void multiply(const GemmProblem& problem, const GemmBatch& batch = {});

/// Computes products of one a at once, without waiting for one before the next begins.
void multiply_each(std::span<const GemmProblem> problems);

}  // namespace attn::kernels
