// src/attention/run.cc: strips of rows shared among threads; heads averaged as docs/numerics.md section 5 says.
#include "attention/run.h"

#include "runtime/memory.h"
#include "runtime/parallel.h"

#include <algorithm>

namespace attn {
namespace {

constexpr std::int64_t head_block = 64;  // heads of one chain of the average: of the order, fixed

std::size_t aligned(std::size_t bytes) { return (bytes + runtime::alignment - 1) / runtime::alignment * runtime::alignment; }

/// A call on its way, as every task sees it. T: the compute type.
template <typename T>
class Run {
 public:
  Run(const Call& call, const AttentionKernel& kernel, const DropoutStrips& dropout, const Results& results)
      : kernel_(kernel), dropout_(dropout), results_(results), problem_(call.problem) {
    problem_.out = results.out;
    std::copy_n(results.out_stride, 3, problem_.out_stride);
    problem_.logsumexp = results.logsumexp;
    strips_ = (problem_.q_rows + kernel.strip_rows - 1) / kernel.strip_rows;
    kernel_bytes_ = aligned(kernel.scratch_bytes(problem_));
    keep_bytes_ = aligned(dropout.strip_bytes());
    strip_weights_ = static_cast<std::size_t>(kernel.strip_rows * problem_.k_rows);
    average_bytes_ = results.head_average ? aligned(2 * strip_weights_ * sizeof(T)) : 0;
  }

  void all() const {
    const bool averaged = results_.head_average != nullptr;
    const std::int64_t tasks = problem_.batch * strips_ * (averaged ? 1 : problem_.q_heads);
    runtime::parallel_for(tasks, [&](std::int64_t task) {
      auto* scratch = static_cast<char*>(runtime::thread_scratch(kernel_bytes_ + keep_bytes_ + average_bytes_));
      const std::int64_t strip = task % strips_, rest = task / strips_;
      if (averaged)
        average_heads(rest, strip, scratch);
      else
        one_head(rest / problem_.q_heads, rest % problem_.q_heads, strip, scratch);
    });
  }

 private:
  std::int64_t begin(std::int64_t strip) const { return strip * kernel_.strip_rows; }
  std::int64_t end(std::int64_t strip) const { return std::min(begin(strip) + kernel_.strip_rows, problem_.q_rows); }

  /// A strip with its weights at `weights`, the first row of the strip first.
  void strip_of(std::int64_t b, std::int64_t h, std::int64_t strip, void* weights, const std::int64_t (&stride)[3], char* scratch) const {
    kernels::AttentionProblem problem = problem_;
    problem.strip_begin = begin(strip);
    problem.weights = weights;
    std::copy_n(stride, 3, problem.weights_stride);
    if (dropout_.active()) {
      auto* keep = reinterpret_cast<std::uint8_t*>(scratch + kernel_bytes_);
      dropout_.draw(b * problem.q_heads + h, strip, keep);
      problem.keep = keep;
      problem.keep_stride = problem.k_rows;
      problem.keep_scale = dropout_.scale(sizeof(T) == sizeof(double));
    }
    kernel_.rows(problem, b, h, begin(strip), end(strip), scratch);
  }

  void one_head(std::int64_t b, std::int64_t h, std::int64_t strip, char* scratch) const {
    const std::int64_t row = problem_.k_rows, head = row * problem_.q_rows;
    T* weights = static_cast<T*>(results_.weights);
    strip_of(b, h, strip, weights ? weights + begin(strip) * row : nullptr, {problem_.q_heads * head, head, row}, scratch);
  }

  void average_heads(std::int64_t b, std::int64_t strip, char* scratch) const {
    T* average = static_cast<T*>(results_.head_average) + (b * problem_.q_rows + begin(strip)) * problem_.k_rows;
    T* block = reinterpret_cast<T*>(scratch + kernel_bytes_ + keep_bytes_);
    T* weights = block + strip_weights_;
    const std::int64_t count = (end(strip) - begin(strip)) * problem_.k_rows;
    std::fill_n(average, count, T(0));
    for (std::int64_t first = 0; first < problem_.q_heads; first += head_block) {
      std::fill_n(block, count, T(0));
      for (std::int64_t h = first; h < std::min(first + head_block, problem_.q_heads); ++h) {
        strip_of(b, h, strip, weights, {0, 0, problem_.k_rows}, scratch);
        for (std::int64_t n = 0; n < count; ++n) block[n] += weights[n];
      }
      for (std::int64_t n = 0; n < count; ++n) average[n] += block[n];
    }
    for (std::int64_t n = 0; n < count; ++n) average[n] /= static_cast<T>(problem_.q_heads);
  }

  const AttentionKernel& kernel_;
  const DropoutStrips& dropout_;
  const Results& results_;
  kernels::AttentionProblem problem_;
  std::int64_t strips_ = 0;
  std::size_t kernel_bytes_ = 0, keep_bytes_ = 0, strip_weights_ = 0, average_bytes_ = 0;
};

}  // namespace

void run_attention(const Call& call, const AttentionKernel& kernel, const DropoutStrips& dropout, const Results& results) {
  if (call.compute_dtype() == Dtype::f64)
    Run<double>(call, kernel, dropout, results).all();
  else
    Run<float>(call, kernel, dropout, results).all();
}

}  // namespace attn
