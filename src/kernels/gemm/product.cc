// src/kernels/gemm/product.cc: chooses the kernel of a product, and distributes parts of products and batches among
// threads.
#include "kernels/gemm/product.h"

#include <attn/runtime.h>

#include "kernels/gemm/packed.h"
#include "kernels/gemm/target.h"
#include "runtime/call_scratch.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "runtime/once.h"
#include "runtime/parallel.h"
#include "runtime/shares.h"

#include <algorithm>

namespace attn::kernels {
namespace {

/// The rows of a part that the reference code computes: few enough to give every thread work, enough to be worth
/// packing B.
constexpr std::int64_t reference_rows = 16;

/// Multiply-adds below which a part is not worth a thread: about 15 us of AVX-512. Smaller products of a batch share a
/// part.
constexpr std::int64_t part_work = 1 << 20;

const GemmTarget* best_target() {
  constinit static runtime::Once<const GemmTarget*> target;
  return target.get([] { return gemm_target(runtime::target().c_str()); });
}

/// Calls run(item, part) for every part of every item; small items are grouped, depending on the shape only.
template <typename Run>
void share(std::int64_t items, std::int64_t parts, std::int64_t work, Run run) {
  const std::int64_t group = parts > 1 ? 1 : std::max<std::int64_t>(1, part_work / std::max<std::int64_t>(1, work));
  const std::int64_t groups = (items + group - 1) / group;
  runtime::parallel_for_neighbours(groups * parts, [&](std::int64_t index) {
    const std::int64_t first = index / parts * group, last = std::min(items, first + group);
    for (std::int64_t item = first; item < last; ++item) run(item, index % parts);
  });
}

}  // namespace

std::int64_t GemmBatch::items() const {
  std::int64_t result = 1;
  for (int d = 0; d < dims; ++d) result *= sizes[d];
  return result;
}

GemmProblem GemmBatch::item(const GemmProblem& first, std::int64_t i, std::int64_t a_bytes, std::int64_t b_bytes,
                            std::int64_t y_bytes) const {
  GemmProblem problem = first;
  std::int64_t a = 0, b = 0, y = 0;
  for (int d = dims - 1; d >= 0; --d) {
    const std::int64_t index = i % sizes[d];
    i /= sizes[d];
    a += index * a_strides[d];
    b += index * b_strides[d];
    y += index * y_strides[d];
  }
  problem.a = static_cast<const char*>(first.a) + a * a_bytes;
  problem.b = static_cast<const char*>(first.b) + b * b_bytes;
  problem.y = static_cast<char*>(first.y) + y * y_bytes;
  return problem;
}

bool multiplies_bf16() { return best_target() != nullptr && best_target()->has_pairs && runtime::cpu().avx512_bf16; }

bool multiplies_half_b() { return best_target() != nullptr; }

bool multiplies_blocks(Element element) {
  const GemmTarget* const target = best_target();
  if (target == nullptr) return false;  // the reference code can, but would decode the blocks in every product
  return element == Element::f32 ||
         (element == Element::bf16 && multiplies_bf16() && target != gemm_target("amx"));  // whose packing is another
}

void multiply_each(std::span<const GemmProblem> problems) {
  const GemmTarget* const target = best_target();
  constexpr std::size_t most = 8;
  const bool apart = target == nullptr || problems.size() > most || problems[0].m == 0;
  if (apart || std::any_of(problems.begin(), problems.end(),
                           [&](const GemmProblem& p) { return p.n == 0 || target->packs_both(p); })) {
    for (const GemmProblem& problem : problems) multiply(problem);
    return;
  }
  GemmProblem all[most];
  std::int64_t first[most + 1] = {};
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    all[i] = problems[i];
    all[i].threads = num_threads();
    first[i + 1] = first[i] + target->parts(all[i], false);
    bytes = std::max(bytes, target->scratch_bytes(all[i], false));
  }
  runtime::parallel_for_neighbours(first[problems.size()], [&](std::int64_t part) {
    std::size_t i = 0;
    while (part >= first[i + 1]) ++i;
    target->run(all[i], part - first[i], runtime::thread_scratch(bytes), nullptr);
  });
}

void multiply(const GemmProblem& asked, const GemmBatch& batch) {
  GemmProblem problem = asked;
  problem.threads = num_threads();
  const std::int64_t items = batch.items(), work = problem.m * problem.n * problem.k;
  if (problem.m == 0 || problem.n == 0 || items == 0) return;
  const std::int64_t a_bytes = bytes_of(problem.element),
                     b_bytes = problem.has_half_b() ? bytes_of(problem.b_element) : a_bytes;
  const std::int64_t y_bytes = problem.element == Element::bf16 && !problem.narrow ? 4 : a_bytes;
  const GemmTarget* const target = best_target();
  // A row times a column is one chain of sums, which vectors do not make faster: the reference code computes batches of
  // them.
  const bool chain = problem.m == 1 && problem.n == 1 && problem.element != Element::bf16 && !problem.has_half_b();
  constexpr std::int64_t lanes = 16;  // a scalar chain is counted as this many times its work, because it uses one lane
  if (target == nullptr || problem.y_stride[1] != 1 || chain) {
    share(items, (problem.m + reference_rows - 1) / reference_rows, chain ? lanes * work : work,
          [&](std::int64_t item, std::int64_t part) {
            const std::int64_t row = part * reference_rows;
            reference().gemm(batch.item(problem, item, a_bytes, b_bytes, y_bytes), row,
                             std::min(problem.m, row + reference_rows));
          });
    return;
  }
  if (items == 1 && target->packs_both(problem)) {
    void* const packed = runtime::call_scratch(target->packed_bytes(problem));
    runtime::parallel_for(target->pieces(problem), [&](std::int64_t piece) { target->pack(problem, piece, packed); });
    const std::size_t bytes = target->scratch_bytes(problem, true);
    return runtime::parallel_for(target->parts(problem, true), [&](std::int64_t part) {
      target->run(problem, part, runtime::thread_scratch(bytes), packed);
    });
  }
  const std::size_t bytes = target->scratch_bytes(problem, false);
  share(items, target->parts(problem, false), work, [&](std::int64_t item, std::int64_t part) {
    target->run(batch.item(problem, item, a_bytes, b_bytes, y_bytes), part, runtime::thread_scratch(bytes), nullptr);
  });
}

PackedWeights::PackedWeights(const GemmProblem& problem) : problem_(problem) {
  const GemmTarget* const target = best_target();
  const std::int64_t size = bytes_of(problem.element);
  bytes_ = target ? target->packed_bytes(problem) : static_cast<std::size_t>(problem.n * problem.k * size);
  data_ = std::shared_ptr<void>(runtime::allocate(bytes_), runtime::deallocate);
  if (target != nullptr) {
    runtime::parallel_for(problem.n == 0 ? 0 : target->pieces(problem),
                          [&](std::int64_t piece) { target->pack(problem, piece, data_.get()); });
    return;
  }
  // B is stored as rows of k, because the reference code takes any strides
  for (std::int64_t k = 0; k < problem.k; ++k)
    for (std::int64_t n = 0; n < problem.n; ++n) {
      const char* from =
          static_cast<const char*>(problem.b) + (k * problem.b_stride[0] + n * problem.b_stride[1]) * size;
      std::copy(from, from + size, static_cast<char*>(data_.get()) + (k * problem.n + n) * size);
    }
}

void multiply_packed(const GemmProblem& asked, const PackedWeights& weights) {
  GemmProblem problem = asked;
  problem.threads = num_threads();
  const GemmTarget* const target = best_target();
  if (target == nullptr) {
    problem.b = weights.data_.get();
    problem.b_stride[0] = problem.n;
    problem.b_stride[1] = 1;
    return multiply(problem);
  }
  if (problem.m == 0 || problem.n == 0) return;
  const std::size_t bytes = target->scratch_bytes(problem, true);
  runtime::parallel_for(target->parts(problem, true), [&](std::int64_t part) {
    target->run(problem, part, runtime::thread_scratch(bytes), weights.data_.get());
  });
}

}  // namespace attn::kernels
