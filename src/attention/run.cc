// src/attention/run.cc: strips of rows shared among threads; weights averaged over heads as a chain, heads ascending.
#include "attention/run.h"

#include "attention/strips.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

#include <algorithm>
#include <memory>
#include <numeric>

namespace attn {
namespace {

constexpr std::int64_t most_split_tasks = 32;  // with more strips than this every thread has work without cutting the keys

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
    heads_ = results.head_average || dropout.active() ? 1 : heads_of_task();
    kernel_bytes_ = aligned(kernel.scratch_bytes(problem_));
    keep_bytes_ = aligned(dropout.strip_bytes());
    average_bytes_ = results.head_average ? static_cast<std::size_t>(kernel.strip_rows * problem_.k_rows) * sizeof(T) : 0;
  }

  void all() const {
    if (results_.head_average) return averaged();
    if (split()) return span_by_span();
    runtime::parallel_for(tasks(), [&](std::int64_t task) {
      auto* scratch = static_cast<char*>(runtime::thread_scratch(kernel_bytes_ + keep_bytes_));
      one_task(map_of(task), scratch);
    });
  }

 private:
  std::int64_t begin(std::int64_t strip) const { return strip * kernel_.strip_rows; }
  std::int64_t end(std::int64_t strip) const { return std::min(begin(strip) + kernel_.strip_rows, problem_.q_rows); }

  /// Query heads that share their K and V head are one task where their rows fit a strip together: K and V are read once.
  std::int64_t heads_of_task() const {
    if (kernel_.strips == nullptr || problem_.q_rows == 0) return 1;
    const std::int64_t group = std::gcd(problem_.q_heads / problem_.k_heads, problem_.q_heads / problem_.v_heads);
    for (std::int64_t heads = group; heads > 1; --heads)
      if (group % heads == 0 && heads * problem_.q_rows <= kernel_.strip_rows) return heads;
    return 1;
  }

  std::int64_t tasks() const { return problem_.batch * (problem_.q_heads / heads_) * strips_; }
  kernels::LaneMap map_of(std::int64_t task) const {
    // the last strip of a head first: under a causal mask it sees the most keys, and a long task should not come last
    const std::int64_t strip = strips_ - 1 - task % strips_, rest = task / strips_, groups = problem_.q_heads / heads_;
    return {rest / groups, rest % groups * heads_, heads_, begin(strip), end(strip) - begin(strip)};
  }

  /// Few strips and many keys (decoding): the spans of keys are tasks of their own. By shape only; the bits are the same.
  std::int64_t spans() const { return (problem_.k_rows + kernels::span_keys - 1) / kernels::span_keys; }
  bool split() const { return kernel_.strips != nullptr && !dropout_.active() && spans() > 1 && tasks() < most_split_tasks; }

  void span_by_span() const {
    const kernels::StripKernel& strips = *kernel_.strips;
    const std::int64_t spans_of_task = spans();
    const std::size_t bytes = aligned(strips.partial_bytes(problem_, {0, 0, heads_, 0, std::min(kernel_.strip_rows, problem_.q_rows)}));
    const std::unique_ptr<void, void (*)(void*)> memory(runtime::allocate(bytes * static_cast<std::size_t>(tasks() * spans_of_task)), runtime::deallocate);
    auto* const partials = static_cast<char*>(memory.get());
    // of each batch item the spans that hold keys; its partial results lie side by side
    const auto used = [&](std::int64_t b) { return (problem_.keys_end(b) - problem_.keys_begin(b) + kernels::span_keys - 1) / kernels::span_keys; };
    const auto partial_of = [&](std::int64_t task, const kernels::LaneMap& map, std::int64_t span) {
      return partials + static_cast<std::size_t>(task * spans_of_task) * bytes + static_cast<std::size_t>(span) * strips.partial_bytes(problem_, map);
    };
    runtime::parallel_for(tasks() * spans_of_task, [&](std::int64_t part) {
      const std::int64_t task = part / spans_of_task, span = part % spans_of_task;
      const kernels::LaneMap map = existing_rows(map_of(task));
      if (map.rows > 0 && span < used(map.batch))
        strips.attend_span(problem_, map, span, partial_of(task, map, span), runtime::thread_scratch(kernel_bytes_));
    });
    runtime::parallel_for(tasks(), [&](std::int64_t task) {
      const kernels::LaneMap map = map_of(task);
      merge_strip(strips, problem_, map, partial_of(task, map, 0), std::max<std::int64_t>(used(map.batch), 0), runtime::thread_scratch(kernel_bytes_));
    });
  }
  kernels::LaneMap existing_rows(kernels::LaneMap map) const {
    map.rows = std::clamp<std::int64_t>(problem_.rows_end(map.batch) - map.row, 0, map.rows);
    return map;
  }

  /// Rows with their weights at `weights`, the first row of the strip first.
  void strip_of(const kernels::LaneMap& map, void* weights, const std::int64_t (&stride)[3], char* scratch) const {
    kernels::AttentionProblem problem = problem_;
    problem.strip_begin = map.row;
    problem.weights = weights;
    std::copy_n(stride, 3, problem.weights_stride);
    if (dropout_.active()) {
      auto* keep = reinterpret_cast<std::uint8_t*>(scratch + kernel_bytes_);
      dropout_.draw(map.batch * problem.q_heads + map.head, map.row / kernel_.strip_rows, keep);
      problem.keep = keep;
      problem.keep_stride = problem.k_rows;
      problem.keep_scale = dropout_.scale(sizeof(T) == sizeof(double));
    }
    kernel_.rows(problem, map, scratch);
  }

  void one_task(const kernels::LaneMap& map, char* scratch) const {
    const std::int64_t row = problem_.k_rows, head = row * problem_.q_rows;
    T* weights = static_cast<T*>(results_.weights);
    strip_of(map, weights ? weights + map.row * row : nullptr, {problem_.q_heads * head, head, row}, scratch);
  }

  void averaged() const {
    runtime::parallel_for(problem_.batch * strips_, [&](std::int64_t task) {
      average_heads(task / strips_, task % strips_, static_cast<char*>(runtime::thread_scratch(kernel_bytes_ + keep_bytes_ + average_bytes_)));
    });
  }

  void average_heads(std::int64_t b, std::int64_t strip, char* scratch) const {
    T* average = static_cast<T*>(results_.head_average) + (b * problem_.q_rows + begin(strip)) * problem_.k_rows;
    T* weights = reinterpret_cast<T*>(scratch + kernel_bytes_ + keep_bytes_);
    const std::int64_t count = (end(strip) - begin(strip)) * problem_.k_rows;
    std::fill_n(average, count, T(0));
    for (std::int64_t h = 0; h < problem_.q_heads; ++h) {
      strip_of({b, h, 1, begin(strip), end(strip) - begin(strip)}, weights, {0, 0, problem_.k_rows}, scratch);
      for (std::int64_t n = 0; n < count; ++n) average[n] += weights[n];
    }
    for (std::int64_t n = 0; n < count; ++n) average[n] /= static_cast<T>(problem_.q_heads);
  }

  const AttentionKernel& kernel_;
  const DropoutStrips& dropout_;
  const Results& results_;
  kernels::AttentionProblem problem_;
  std::int64_t strips_ = 0, heads_ = 1;
  std::size_t kernel_bytes_ = 0, keep_bytes_ = 0, average_bytes_ = 0;
};

}  // namespace

void run_attention(const Call& call, const AttentionKernel& kernel, const DropoutStrips& dropout, const Results& results) {
  if (call.compute_dtype() == Dtype::f64)
    Run<double>(call, kernel, dropout, results).all();
  else
    Run<float>(call, kernel, dropout, results).all();
}

}  // namespace attn
