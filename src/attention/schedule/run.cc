// src/attention/schedule/run.cc: distributes query tiles among threads, and collects the weights that the call returns.
#include "attention/schedule/run.h"

#include <attn/runtime.h>

#include "attention/call/call.h"
#include "attention/relative/relative_terms.h"
#include "attention/schedule/task_order.h"
#include "attention/schedule/vector_kernels.h"
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "runtime/parallel.h"
#include "runtime/shares.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace attn {
namespace {

using kernels::Task;
using runtime::aligned;

/// A call while it is computed; all tasks read it. T: the compute type.
template <typename T>
class Run {
 public:
  Run(const Call& call, const AttentionKernel& kernel, const Schedule& schedule, const DropoutTiles* dropout,
      const ReturnedWeights* weights)
      : call_(call), kernel_(kernel), schedule_(schedule), dropout_(dropout), weights_(weights), problem_(call.problem),
        partition_(schedule.partition), kernel_bytes_(aligned(kernel.scratch_bytes(problem_))),
        keep_bytes_(dropout == nullptr ? 0 : aligned(dropout->tile_bytes())), products_(call.bias.products.get()) {
    if (products_ != nullptr) products_memory_ = products_->tile_memory(problem_, kernel.query_tile_rows);
    if (!call.program.inside.empty()) inside_ = inside_sequences(call, problem_);
    if (weights_ == nullptr) return;
    row_bytes_ = aligned(static_cast<std::size_t>(problem_.k_rows) * sizeof(T));
    lanes_bytes_ = aligned(static_cast<std::size_t>(partition_.most_keys() * kernel.query_tile_rows) * sizeof(T));
  }

  void all() const {
    if (weights_ != nullptr && weights_->kind == Weights::column_sums) return column_sums();
    if (schedule_.order == Schedule::Order::splits) return split_by_split();
    if (schedule_.order == Schedule::Order::heads) return head_by_head();
    runtime::parallel_for(partition_.tasks(), [&](std::int64_t index) {
      const Task task = task_of(index);
      if (weights_ == nullptr) one_query_tile(task, nullptr);
      else if (weights_->kind == Weights::head_average) average_heads(task);
      else one_query_tile(task, nullptr, [&](const WeightsTile& from) { write_weights(*weights_, from); });
    });
  }

 private:
  Task task_of(std::int64_t index) const {
    Task task = partition_.task(index);
    task.hints = schedule_.hints;
    if (task.sequence != nullptr)
      task.hints.heads_ahead = partition_.heads_ahead(task.sequence->rows_end - task.sequence->rows_begin);
    return task;
  }
  /// Returns the call as the task's sequence reads it.
  const kernels::AttentionProblem& problem_of(const Task& task) const {
    return task.sequence != nullptr && task.sequence->inside ? *inside_ : problem_;
  }

  /// Each thread first computes adjacent heads, one after another, and then whole heads from the shares of other
  /// threads. At the end it helps with the query tiles of heads that other threads have not finished.
  void head_by_head() const {
    const std::int64_t query_tiles = partition_.tasks_of_head(), heads = partition_.tasks() / query_tiles;
    if (query_tiles == 1)
      return runtime::parallel_for_neighbours(heads,
                                              [&](std::int64_t head) { one_query_tile(task_of(head), nullptr); });
    std::vector<std::atomic<std::int64_t>> taken(static_cast<std::size_t>(heads));
    const auto finish = [&](std::int64_t head) {
      auto& next = taken[static_cast<std::size_t>(head)];
      for (std::int64_t n = next.load(std::memory_order_relaxed);
           n < query_tiles && (n = next.fetch_add(1, std::memory_order_relaxed)) < query_tiles;)
        one_query_tile(task_of(head * query_tiles + n), nullptr);
    };
    runtime::Shares shares(heads, num_threads());
    runtime::parallel_for(num_threads(), [&](std::int64_t own) {
      shares.run_from(own, finish);
      for (std::int64_t head = 0; head < heads; ++head) finish(head);
    });
  }

  void split_by_split() const {
    const kernels::ForwardKernel& forward = *kernel_.vector_kernel;
    const std::int64_t splits_of_task = schedule_.splits, together = schedule_.splits_together,
                       shares = (splits_of_task + together - 1) / together;
    const std::size_t bytes = aligned(forward.partial_bytes(problem_, {0, 0, 1, 0, partition_.most_lanes()}));
    const std::unique_ptr<void, void (*)(void*)> memory(
        runtime::allocate(bytes * static_cast<std::size_t>(partition_.tasks() * splits_of_task)), runtime::deallocate);
    auto* const partials = static_cast<char*>(memory.get());
    // the number of splits of a task that contain keys; the partial results of these splits are adjacent
    const auto used = [&](const Task& task) {
      return (problem_.keys_end(task) - problem_.keys_begin(task) + kernels::kv_split - 1) / kernels::kv_split;
    };
    const auto partials_of = [&](std::int64_t index) {
      return partials + static_cast<std::size_t>(index * splits_of_task) * bytes;
    };
    runtime::parallel_for(partition_.tasks() * shares, [&](std::int64_t part) {
      const std::int64_t index = part / shares, first = part % shares * together;
      Task task = task_of(index);
      const kernels::AttentionProblem& problem = problem_of(task);
      task.rows = std::clamp<std::int64_t>(problem.rows_end(task) - task.row, 0, task.rows);
      const std::int64_t last = std::min(first + together, used(task));
      if (task.rows > 0 && first < last)
        forward.attend_splits(
            problem, task, first, last,
            partials_of(index) + static_cast<std::size_t>(first) * forward.partial_bytes(problem, task),
            runtime::thread_scratch(kernel_bytes_));
    });
    runtime::parallel_for(partition_.tasks(), [&](std::int64_t index) {
      const Task task = task_of(index);
      merge_query_tile(forward, problem_of(task), task, partials_of(index), std::max<std::int64_t>(used(task), 0),
                       runtime::thread_scratch(kernel_bytes_));
    });
  }

  char* scratch() const {
    return static_cast<char*>(
        runtime::thread_scratch(kernel_bytes_ + keep_bytes_ + row_bytes_ + 2 * lanes_bytes_ + products_memory_.bytes));
  }
  /// Computes the rows of a query tile by the kernel; relative products are made for it first. `scratch`: scratch().
  void rows(const kernels::AttentionProblem& problem, const kernels::Task& tile, char* scratch) const {
    if (products_ == nullptr) return kernel_.rows(problem, tile, scratch);
    const auto kernel = [&](const kernels::AttentionProblem& p, const kernels::Task& part) {
      kernel_.rows(p, part, scratch);
    };
    products_->rows(kernel, kernel_.query_tile_rows, problem, tile, products_memory_,
                    lanes_of(scratch) + 2 * lanes_bytes_);
  }
  char* lanes_of(char* scratch) const { return scratch + kernel_bytes_ + keep_bytes_ + row_bytes_; }

  /// Computes the rows of a query tile. If its weights are requested, they are added to `average` (unless null) and
  /// passed to write(tile).
  template <typename F>
  void one_query_tile(Task task, void* average, F&& write) const {
    char* const memory = scratch();
    const kernels::AttentionProblem& problem = problem_of(task);
    const bool wanted = weights_ != nullptr && weights_->wants(task);
    if (wanted) {
      task.lane_row = memory + kernel_bytes_ + keep_bytes_;
      task.lane_weights = lanes_of(memory);
      task.lane_average = average;
      task.lane_rows = kernel_.query_tile_rows;
    }
    if (dropout_ != nullptr) {
      auto* keep = reinterpret_cast<std::uint8_t*>(memory + kernel_bytes_);
      dropout_->draw(task.batch * problem.q_heads + task.head, task.row / kernel_.query_tile_rows, keep);
      task.keep = keep, task.keep_stride = problem.k_rows, task.first_row = task.row;
    }
    rows(problem, task, memory);
    if (wanted) write(WeightsTile{problem, task, kernel_.vector_kernel});
  }
  void one_query_tile(const Task& task, void* average) const {
    one_query_tile(task, average, [](const WeightsTile&) {});
  }

  /// Sums the weights of a query tile over ascending heads and divides by the number of heads.
  void average_heads(Task task) const {
    void* const sums = lanes_of(scratch()) + lanes_bytes_;
    std::fill_n(static_cast<char*>(sums), lanes_bytes_, '\0');
    const std::int64_t last = problem_.q_heads - 1;
    for (task.head = 0; task.head <= last; ++task.head)
      one_query_tile(task, sums, [&](const WeightsTile& from) {
        if (task.head == last) write_average(*weights_, from, sums);
      });
  }

  /// For the column sums, adds the rows of each block of 64 rows one after another, and then the blocks in order.
  /// Blocks are computed in groups of `wave` blocks, so that only that many block sums exist at a time.
  void column_sums() const {
    constexpr std::int64_t block_rows = 64, wave = 64;
    std::vector<Task> blocks;
    for_each_sequence(call_, problem_, [&](const kernels::AttentionProblem& problem, const Task& all) {
      for (std::int64_t h = 0; h < problem.q_heads; ++h)
        for (std::int64_t row = all.row, end = all.row + all.rows; row < end; row += block_rows)
          blocks.push_back(all.with_rows(h, row, std::min(block_rows, end - row)));
    });
    const std::int64_t keys = partition_.most_keys(), count = static_cast<std::int64_t>(blocks.size());
    std::vector<T> sums(static_cast<std::size_t>(std::min(wave, count) * keys));
    for (std::int64_t first = 0; first < count; first += wave) {
      const std::int64_t blocks_of_wave = std::min(wave, count - first);
      std::fill(sums.begin(), sums.end(), T(0));
      runtime::parallel_for(blocks_of_wave, [&](std::int64_t n) {
        const Task& block = blocks[static_cast<std::size_t>(first + n)];
        for (std::int64_t row = 0; row < block.rows; row += kernel_.query_tile_rows)
          one_query_tile(
              block.with_rows(block.head, block.row + row, std::min(kernel_.query_tile_rows, block.rows - row)),
              nullptr, [&](const WeightsTile& from) { add_columns(from, sums.data() + n * keys); });
      });
      for (std::int64_t n = 0; n < blocks_of_wave; ++n) {
        const Task& block = blocks[static_cast<std::size_t>(first + n)];
        const std::int64_t begin = problem_.keys_begin(block), end = problem_.keys_end(block);
        T* const to =
            weights_->values.template data<T>() + (block.batch * problem_.q_heads + block.head) * problem_.k_rows;
        for (std::int64_t j = begin; j < end; ++j) to[j] += sums[static_cast<std::size_t>(n * keys + j - begin)];
      }
    }
  }

  const Call& call_;
  const AttentionKernel& kernel_;
  const Schedule& schedule_;
  const DropoutTiles* dropout_;
  const ReturnedWeights* weights_;
  // refers to the problem in `call_`: a copy of this large struct would take a noticeable part of a small call
  const kernels::AttentionProblem& problem_;
  std::optional<kernels::AttentionProblem> inside_;  // the problem of sequences that see all of their keys
  const TaskPartition& partition_;
  std::size_t kernel_bytes_, keep_bytes_, row_bytes_ = 0, lanes_bytes_ = 0;
  const RelativeTerms* products_;  // null: none
  RelativeTerms::TileMemory products_memory_;
};

}  // namespace

void run_attention(Call& call, const AttentionKernel& kernel, const DropoutTiles* dropout,
                   const ReturnedWeights* weights) {
  const Schedule split = schedule({call.problem, call.sequences, dropout != nullptr,
                                   weights ? weights->kind : Weights::none, call.bias.products != nullptr},
                                  kernel, num_threads());
  call.problem.copy_rows = split.copy_rows;
  if (dropout != nullptr) call.problem.keep_scale = dropout->scale(call.compute_dtype() == Dtype::f64);
  if (call.compute_dtype() == Dtype::f64) Run<double>(call, kernel, split, dropout, weights).all();
  else Run<float>(call, kernel, split, dropout, weights).all();
}

}  // namespace attn
