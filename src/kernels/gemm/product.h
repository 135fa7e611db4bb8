// src/kernels/gemm/product.h: a matrix product on the best kernel of this processor, shared among threads.
#pragma once
#include "kernels/reference.h"

namespace attn::kernels {

/// Computes the whole product. The kernel, the cut and the threads do not change a bit of it.
void multiply(const GemmProblem& problem);

}  // namespace attn::kernels
