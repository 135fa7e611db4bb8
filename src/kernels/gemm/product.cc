// src/kernels/gemm/product.cc: which kernel multiplies, and how its parts reach the threads.
#include "kernels/gemm/product.h"

#include "kernels/gemm/target.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

#include <algorithm>

namespace attn::kernels {
namespace {

/// Rows of a part of the specification: few enough for every thread, enough to be worth the packing.
constexpr std::int64_t reference_rows = 16;

void multiply_by_specification(const GemmProblem& problem) {
  runtime::parallel_for((problem.m + reference_rows - 1) / reference_rows, [&](std::int64_t part) {
    reference().gemm(problem, part * reference_rows, std::min(problem.m, (part + 1) * reference_rows));
  });
}

}  // namespace

void multiply(const GemmProblem& problem) {
  static const GemmTarget* const target = gemm_target(runtime::target().c_str());
  if (target == nullptr || problem.y_stride[1] != 1) return multiply_by_specification(problem);
  const std::size_t bytes = target->scratch_bytes(problem);
  runtime::parallel_for(target->parts(problem), [&](std::int64_t part) { target->run(problem, part, runtime::thread_scratch(bytes)); });
}

}  // namespace attn::kernels
