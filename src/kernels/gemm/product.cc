// src/kernels/gemm/product.cc: which kernel multiplies, and how parts of a batch of products reach the threads.
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

/// Multiply-adds below which a part is not worth a thread: about 15 us of AVX-512. Smaller products of a batch share a part.
constexpr std::int64_t part_work = 1 << 20;

/// run(item, part) for every part of every item; small items are grouped. Cut by shape alone.
template <typename Run>
void share(std::int64_t items, std::int64_t parts, std::int64_t work, Run run) {
  const std::int64_t group = parts > 1 ? 1 : std::max<std::int64_t>(1, part_work / std::max<std::int64_t>(1, work));
  const std::int64_t groups = (items + group - 1) / group;
  runtime::parallel_for(groups * parts, [&](std::int64_t index) {
    const std::int64_t first = index / parts * group, last = std::min(items, first + group);
    for (std::int64_t item = first; item < last; ++item) run(item, index % parts);
  });
}

void multiply_by_specification(const GemmProblem& problem, const GemmBatch& batch, std::size_t bytes) {
  const std::int64_t parts = (problem.m + reference_rows - 1) / reference_rows;
  share(batch.items(), parts, problem.m * problem.n * problem.k, [&](std::int64_t item, std::int64_t part) {
    reference().gemm(batch.item(problem, item, bytes), part * reference_rows, std::min(problem.m, (part + 1) * reference_rows));
  });
}

}  // namespace

std::int64_t GemmBatch::items() const {
  std::int64_t result = 1;
  for (int d = 0; d < dims; ++d) result *= sizes[d];
  return result;
}

GemmProblem GemmBatch::item(const GemmProblem& first, std::int64_t i, std::size_t bytes) const {
  GemmProblem problem = first;
  std::int64_t a = 0, b = 0, y = 0;
  for (int d = dims - 1; d >= 0; --d) {
    const std::int64_t index = i % sizes[d];
    i /= sizes[d];
    a += index * a_strides[d];
    b += index * b_strides[d];
    y += index * y_strides[d];
  }
  const auto size = static_cast<std::int64_t>(bytes);
  problem.a = static_cast<const char*>(first.a) + a * size;
  problem.b = static_cast<const char*>(first.b) + b * size;
  problem.y = static_cast<char*>(first.y) + y * size;
  return problem;
}

void multiply(const GemmProblem& problem, const GemmBatch& batch) {
  static const GemmTarget* const target = gemm_target(runtime::target().c_str());
  const std::size_t size = problem.element == Element::f64 ? sizeof(double) : sizeof(float);
  if (problem.m == 0 || problem.n == 0 || batch.items() == 0) return;
  if (target == nullptr || problem.y_stride[1] != 1) return multiply_by_specification(problem, batch, size);
  const std::size_t bytes = target->scratch_bytes(problem);
  share(batch.items(), target->parts(problem), problem.m * problem.n * problem.k, [&](std::int64_t item, std::int64_t part) {
    target->run(batch.item(problem, item, size), part, runtime::thread_scratch(bytes));
  });
}

}  // namespace attn::kernels
