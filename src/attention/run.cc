// src/attention/run.cc: strips of rows shared among threads; weights averaged over heads as a chain, heads ascending.
#include "attention/run.h"

#include "attention/cut.h"
#include "attention/parts.h"
#include "attention/strips.h"
#include "runtime/memory.h"
#include "runtime/parallel.h"

#include <algorithm>
#include <memory>

namespace attn {
namespace {

constexpr std::int64_t most_split_tasks = 32;  // with more strips than this every thread has work without cutting the keys

std::size_t aligned(std::size_t bytes) { return (bytes + runtime::alignment - 1) / runtime::alignment * runtime::alignment; }

/// A call on its way, as every task sees it. T: the compute type.
template <typename T>
class Run {
 public:
  Run(const Call& call, const AttentionKernel& kernel, const DropoutStrips& dropout, const Results& results)
      : call_(call), kernel_(kernel), dropout_(dropout), results_(results), problem_(call.problem),
        cut_(call, kernel, heads_of_task(dropout, results), by_strips(dropout, results) ? 1 : kernel.task_strips) {
    problem_.out = results.out;
    std::copy_n(results.out_stride, 3, problem_.out_stride);
    problem_.logsumexp = results.logsumexp;
    if (split()) cut_ = Cut(call, kernel, heads_of_task(dropout, results), 1);  // a span's task is one strip
    problem_.heads_ahead = cut_.heads_ahead();
    problem_.max = results.max;
    problem_.sum = results.sum;
    kernel_bytes_ = aligned(kernel.scratch_bytes(problem_));
    keep_bytes_ = aligned(dropout.strip_bytes());
    average_bytes_ = results.head_average ? static_cast<std::size_t>(kernel.strip_rows * problem_.k_rows) * sizeof(T) : 0;
  }

  void all() const {
    if (results_.head_average) return averaged();
    if (split()) return span_by_span();
    runtime::parallel_for(cut_.tasks(), [&](std::int64_t index) {
      auto* scratch = static_cast<char*>(runtime::thread_scratch(kernel_bytes_ + keep_bytes_));
      one_task(cut_.task(index), scratch);
    });
  }

 private:
  static Cut::Heads heads_of_task(const DropoutStrips& dropout, const Results& results) {
    if (results.head_average) return Cut::Heads::all;
    return dropout.active() ? Cut::Heads::one : Cut::Heads::grouped;
  }

  /// What is drawn or stored stands strip by strip.
  static bool by_strips(const DropoutStrips& dropout, const Results& results) { return results.head_average || results.weights || dropout.active(); }

  /// Few strips and many keys (decoding): the spans of keys are tasks of their own. By shape only; the bits are the same.
  std::int64_t spans() const { return (cut_.most_keys() + kernels::span_keys - 1) / kernels::span_keys; }
  bool split() const { return kernel_.strips != nullptr && !dropout_.active() && spans() > 1 && cut_.tasks() < most_split_tasks; }

  void span_by_span() const {
    const kernels::StripKernel& strips = *kernel_.strips;
    const std::int64_t spans_of_task = spans();
    const std::size_t bytes = aligned(strips.partial_bytes(problem_, {0, 0, 1, 0, cut_.most_lanes()}));
    const std::unique_ptr<void, void (*)(void*)> memory(runtime::allocate(bytes * static_cast<std::size_t>(cut_.tasks() * spans_of_task)), runtime::deallocate);
    auto* const partials = static_cast<char*>(memory.get());
    // of each task the spans that hold keys; its partial results lie side by side
    const auto used = [](const kernels::AttentionProblem& problem, std::int64_t b) {
      return (problem.keys_end(b) - problem.keys_begin(b) + kernels::span_keys - 1) / kernels::span_keys;
    };
    const auto partials_of = [&](std::int64_t index) { return partials + static_cast<std::size_t>(index * spans_of_task) * bytes; };
    runtime::parallel_for(cut_.tasks() * spans_of_task, [&](std::int64_t part) {
      const std::int64_t index = part / spans_of_task, span = part % spans_of_task;
      const Task task = cut_.task(index);
      const kernels::AttentionProblem problem = problem_of(call_, problem_, task.part);
      kernels::LaneMap map = task.map;
      map.rows = std::clamp<std::int64_t>(problem.rows_end(map.batch) - map.row, 0, map.rows);
      if (map.rows > 0 && span < used(problem, map.batch))
        strips.attend_span(problem, map, span, partials_of(index) + static_cast<std::size_t>(span) * strips.partial_bytes(problem, map),
                           runtime::thread_scratch(kernel_bytes_));
    });
    runtime::parallel_for(cut_.tasks(), [&](std::int64_t index) {
      const Task task = cut_.task(index);
      const kernels::AttentionProblem problem = problem_of(call_, problem_, task.part);
      merge_strip(strips, problem, task.map, partials_of(index), std::max<std::int64_t>(used(problem, task.map.batch), 0), runtime::thread_scratch(kernel_bytes_));
    });
  }

  /// Rows with their weights at `weights`, the first row of the strip first.
  void strip_of(const Task& task, void* weights, const std::int64_t (&stride)[3], char* scratch) const {
    const kernels::LaneMap& map = task.map;
    kernels::AttentionProblem problem = problem_of(call_, problem_, task.part);
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

  void one_task(const Task& task, char* scratch) const {
    const std::int64_t row = problem_.k_rows, head = row * problem_.q_rows;
    T* weights = static_cast<T*>(results_.weights);
    strip_of(task, weights ? weights + task.map.row * row : nullptr, {problem_.q_heads * head, head, row}, scratch);
  }

  void averaged() const {
    runtime::parallel_for(cut_.tasks(), [&](std::int64_t index) {
      average_heads(cut_.task(index), static_cast<char*>(runtime::thread_scratch(kernel_bytes_ + keep_bytes_ + average_bytes_)));
    });
  }

  void average_heads(Task task, char* scratch) const {
    T* average = static_cast<T*>(results_.head_average) + (task.map.batch * problem_.q_rows + task.map.row) * problem_.k_rows;
    T* weights = reinterpret_cast<T*>(scratch + kernel_bytes_ + keep_bytes_);
    const std::int64_t count = task.map.rows * problem_.k_rows;
    std::fill_n(average, count, T(0));
    for (task.map.head = 0; task.map.head < problem_.q_heads; ++task.map.head) {
      strip_of(task, weights, {0, 0, problem_.k_rows}, scratch);
      for (std::int64_t n = 0; n < count; ++n) average[n] += weights[n];
    }
    for (std::int64_t n = 0; n < count; ++n) average[n] /= static_cast<T>(problem_.q_heads);
  }

  const Call& call_;
  const AttentionKernel& kernel_;
  const DropoutStrips& dropout_;
  const Results& results_;
  kernels::AttentionProblem problem_;
  Cut cut_;
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
