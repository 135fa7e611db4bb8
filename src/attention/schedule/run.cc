// src/attention/schedule/run.cc: distributes query tiles among threads, and collects the weights that the call returns.
#include "attention/schedule/run.h"

#include "attention/schedule/task_partition.h"
#include "attention/call/call.h"
#include "attention/schedule/vector_kernels.h"
#include "kernels/attention/kv_rows.h"
#include "runtime/memory.h"
#include "runtime/thread_scratch.h"
#include "runtime/parallel.h"
#include "runtime/shares.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

namespace attn {
namespace {

constexpr std::int64_t copying_tiles = 16;  // because copying K and V costs as much as a fifth of a query tile
// With more query tiles than this, every thread has work without splitting the keys.
constexpr std::int64_t most_split_tasks = 32;

using runtime::aligned;

/// A call during computation, as every task reads it. T: the compute type.
template <typename T>
class Run {
 public:
  Run(Call& call, const AttentionKernel& kernel, const DropoutTiles& dropout, const ReturnedWeights* weights)
      : call_(call), kernel_(kernel), dropout_(dropout), weights_(weights), problem_(call.problem),
        partition_(call, kernel, heads_of_task(dropout, weights), 1) {
    call.problem.copy_rows = false;
    const bool whole = !by_query_tiles(dropout, weights);
    split_ = whole && kernel.vector_kernel != nullptr && splits() > 1 && partition_.tasks() < most_split_tasks;
    if (whole && !split_) share_query_tiles(call);
    by_head_ = whole && !split_ && goes_by_head();
    call.problem.heads_ahead = by_head_ ? 1 : partition_.heads_ahead(problem_.q_rows);
    call.problem.rows_ahead = by_head_ ? partition_.query_tile_rows() : partition_.rows_ahead();
    call.problem.lane_rows = kernel.query_tile_rows;
    kernel_bytes_ = aligned(kernel.scratch_bytes(problem_));
    keep_bytes_ = aligned(dropout.tile_bytes());
    if (weights_ == nullptr) return;
    row_bytes_ = aligned(static_cast<std::size_t>(problem_.k_rows) * sizeof(T));
    lanes_bytes_ = aligned(static_cast<std::size_t>(partition_.most_keys() * kernel.query_tile_rows) * sizeof(T));
  }

  void all() const {
    if (weights_ != nullptr && weights_->kind == Weights::column_sums) return column_sums();
    if (split_) return split_by_split();
    if (by_head_) return head_by_head();
    runtime::parallel_for(partition_.tasks(), [&](std::int64_t index) {
      const Task task = partition_.task(index);
      if (weights_ == nullptr) one_query_tile(task, nullptr);
      else if (weights_->kind == Weights::head_average) average_heads(task);
      else one_query_tile(task, nullptr, [&](const WeightsTile& from) { write_weights(*weights_, from); });
    });
  }

 private:
  static TaskPartition::Heads heads_of_task(const DropoutTiles& dropout, const ReturnedWeights* weights) {
    if (weights == nullptr) return dropout.active() ? TaskPartition::Heads::one : TaskPartition::Heads::grouped;
    return weights->kind == Weights::head_average ? TaskPartition::Heads::all : TaskPartition::Heads::one;
  }

  /// Makes tasks of several query tiles if that saves work.
  void share_query_tiles(Call& call) {
    kernels::AttentionProblem& p = call.problem;
    const bool copies = kernel_.vector_kernel != nullptr && p.score == kernels::ScoreOp::dot &&
                        (odd_pairs(p) || collide(p.k, p.dim) || collide(p.v, p.value_dim));
    const std::int64_t of_head = (p.q_rows + kernel_.query_tile_rows - 1) / kernel_.query_tile_rows;
    std::int64_t query_tiles = copies ? copying_tiles : task_tiles(call, kernel_);
    while (query_tiles / 2 >= of_head && query_tiles > 1) query_tiles /= 2;
    if (query_tiles > 1) partition_ = TaskPartition(call, kernel_, TaskPartition::Heads::grouped, query_tiles);
    p.copy_rows =
        copies && std::min(partition_.task_rows(), p.q_rows) >= kernels::least_copying_tiles * kernel_.query_tile_rows;
  }
  bool collide(const kernels::KvRows& rows, std::int64_t columns) const {
    return kernels::collide(rows, columns, partition_.most_keys());
  }
  /// Returns whether rows of bf16 have an odd number of elements; such rows are copied anyway.
  bool odd_pairs(const kernels::AttentionProblem& p) const {
    return kernel_.computes == kernels::Element::bf16 && p.dim % 2 != 0;
  }

  /// Returns the query tiles of a task. Exponentials of keys and converted rows are computed once for all query tiles
  /// of a task.
  static std::int64_t task_tiles(const Call& call, const AttentionKernel& kernel) {
    constexpr std::int64_t shared = 4;
    const kernels::AttentionProblem& p = call.problem;
    const bool made =
        p.score == kernels::ScoreOp::additive || p.k.element != kernel.computes || p.v.element != kernel.computes;
    if (kernel.vector_kernel == nullptr) return kernel.task_tiles;
    return made ? shared : kernel.task_tiles;
  }

  /// Returns whether work must go query tile by query tile, because dropout numbers are drawn or weights written per
  /// tile.
  static bool by_query_tiles(const DropoutTiles& dropout, const ReturnedWeights* weights) {
    return weights != nullptr || dropout.active();
  }

  /// Returns whether every thread takes whole heads, so that K and V are in the cache of one core instead of all. On 2
  /// threads (1, 12, 1024, 64) takes 0.98 of the time, causal 0.95, (1, 16, 2048, 128) 0.99. With longer rows, the
  /// heads of many threads would exceed the last-level cache. Calls with a score callback do not, because a callback
  /// may change the processor's floating-point state, which only separate tasks restore.
  bool goes_by_head() const {
    constexpr std::int64_t most_bytes = 4 << 20;
    const std::int64_t threads = num_threads(), query_tiles = partition_.tasks_of_head(),
                       columns = problem_.dim + problem_.value_dim;
    return threads > 1 && query_tiles > 0 && partition_.tasks() >= query_tiles * threads &&
           problem_.k_rows * columns * static_cast<std::int64_t>(sizeof(T)) <= most_bytes &&
           kernel_.vector_kernel != nullptr && problem_.score_callback.call == nullptr;
  }
  /// Each thread first computes adjacent heads, one after another; then it takes over heads of other threads, and
  /// finally single query tiles.
  void head_by_head() const {
    const std::int64_t query_tiles = partition_.tasks_of_head(), heads = partition_.tasks() / query_tiles;
    if (query_tiles == 1)
      return runtime::parallel_for_neighbours(
          heads, [&](std::int64_t head) { one_query_tile(partition_.task(head), nullptr); });
    std::vector<std::atomic<std::int64_t>> taken(static_cast<std::size_t>(heads));
    const auto finish = [&](std::int64_t head) {
      auto& next = taken[static_cast<std::size_t>(head)];
      for (std::int64_t n = next.load(std::memory_order_relaxed);
           n < query_tiles && (n = next.fetch_add(1, std::memory_order_relaxed)) < query_tiles;)
        one_query_tile(partition_.task(head * query_tiles + n), nullptr);
    };
    runtime::Shares shares(heads, num_threads());
    runtime::parallel_for(num_threads(), [&](std::int64_t own) {
      shares.run_from(own, finish);
      for (std::int64_t head = 0; head < heads; ++head) finish(head);
    });
  }

  std::int64_t splits() const { return (partition_.most_keys() + kernels::kv_split - 1) / kernels::kv_split; }

  /// Returns how many splits of a task a thread takes at a time, because prefetching continues across their borders.
  /// (1, 32 / 8, 1 x 32,768, 128) in bf16 takes 5 % less time, 4,096 keys of f32 8 %.
  std::int64_t splits_together() const {
    constexpr std::int64_t most = 4, shares_of_thread = 4;
    return std::clamp<std::int64_t>(partition_.tasks() * splits() / (shares_of_thread * num_threads()), 1, most);
  }

  void split_by_split() const {
    const kernels::ForwardKernel& forward = *kernel_.vector_kernel;
    const std::int64_t splits_of_task = splits(), together = splits_together(),
                       shares = (splits_of_task + together - 1) / together;
    const std::size_t bytes = aligned(forward.partial_bytes(problem_, {0, 0, 1, 0, partition_.most_lanes()}));
    const std::unique_ptr<void, void (*)(void*)> memory(
        runtime::allocate(bytes * static_cast<std::size_t>(partition_.tasks() * splits_of_task)), runtime::deallocate);
    auto* const partials = static_cast<char*>(memory.get());
    // the number of splits of a task that contain keys; the partial results of a task are adjacent
    const auto used = [](const kernels::AttentionProblem& problem, std::int64_t b) {
      return (problem.keys_end(b) - problem.keys_begin(b) + kernels::kv_split - 1) / kernels::kv_split;
    };
    const auto partials_of = [&](std::int64_t index) {
      return partials + static_cast<std::size_t>(index * splits_of_task) * bytes;
    };
    runtime::parallel_for(partition_.tasks() * shares, [&](std::int64_t part) {
      const std::int64_t index = part / shares, first = part % shares * together;
      const Task task = partition_.task(index);
      const kernels::AttentionProblem problem = problem_of(call_, problem_, task.sequence);
      kernels::QueryTile tile = task.tile;
      tile.rows = std::clamp<std::int64_t>(problem.rows_end(tile.batch) - tile.row, 0, tile.rows);
      const std::int64_t last = std::min(first + together, used(problem, tile.batch));
      if (tile.rows > 0 && first < last)
        forward.attend_splits(
            problem, tile, first, last,
            partials_of(index) + static_cast<std::size_t>(first) * forward.partial_bytes(problem, tile),
            runtime::thread_scratch(kernel_bytes_));
    });
    runtime::parallel_for(partition_.tasks(), [&](std::int64_t index) {
      const Task task = partition_.task(index);
      const kernels::AttentionProblem problem = problem_of(call_, problem_, task.sequence);
      merge_query_tile(forward, problem, task.tile, partials_of(index),
                       std::max<std::int64_t>(used(problem, task.tile.batch), 0),
                       runtime::thread_scratch(kernel_bytes_));
    });
  }

  char* scratch() const {
    return static_cast<char*>(runtime::thread_scratch(kernel_bytes_ + keep_bytes_ + row_bytes_ + 2 * lanes_bytes_));
  }
  char* lanes_of(char* scratch) const { return scratch + kernel_bytes_ + keep_bytes_ + row_bytes_; }

  /// Computes the rows of a query tile. If its weights are wanted, they are added to `average` (unless null) and passed
  /// to write(tile).
  template <typename F>
  void one_query_tile(const Task& task, void* average, F&& write) const {
    char* const memory = scratch();
    const bool wanted = weights_ != nullptr && weights_->wants(task.tile);
    // the task needs no problem of its own
    if (task.sequence == nullptr && !wanted && !dropout_.active()) return kernel_.rows(problem_, task.tile, memory);
    kernels::AttentionProblem problem = problem_of(call_, problem_, task.sequence);
    problem.tile_begin = task.tile.row;
    if (task.sequence != nullptr)
      problem.heads_ahead = partition_.heads_ahead(task.sequence->rows_end - task.sequence->rows_begin);
    if (wanted) {
      problem.lane_row = memory + kernel_bytes_ + keep_bytes_;
      problem.lane_weights = lanes_of(memory);
      problem.lane_average = average;
    }
    if (dropout_.active()) {
      auto* keep = reinterpret_cast<std::uint8_t*>(memory + kernel_bytes_);
      dropout_.draw(task.tile.batch * problem.q_heads + task.tile.head, task.tile.row / kernel_.query_tile_rows, keep);
      problem.keep = keep;
      problem.keep_stride = problem.k_rows;
      problem.keep_scale = dropout_.scale(sizeof(T) == sizeof(double));
    }
    kernel_.rows(problem, task.tile, memory);
    if (wanted) write(WeightsTile{problem, task.tile, kernel_.vector_kernel});
  }
  void one_query_tile(const Task& task, void* average) const {
    one_query_tile(task, average, [](const WeightsTile&) {});
  }

  /// Sums the weights over ascending heads, in the lanes, and divides by the number of heads.
  void average_heads(Task task) const {
    void* const sums = lanes_of(scratch()) + lanes_bytes_;
    std::fill_n(static_cast<char*>(sums), lanes_bytes_, '\0');
    const std::int64_t last = problem_.q_heads - 1;
    for (task.tile.head = 0; task.tile.head <= last; ++task.tile.head)
      one_query_tile(task, sums, [&](const WeightsTile& from) {
        if (task.tile.head == last) write_average(*weights_, from, sums);
      });
  }

  /// Sums each block of 64 rows in a chain and adds the blocks in order. Blocks are computed in waves, so that only a
  /// few block sums exist at a time.
  void column_sums() const {
    constexpr std::int64_t block_rows = 64, wave = 64;
    struct Block {
      const kernels::Sequence* sequence;
      std::int64_t batch, head, begin, end;
    };
    std::vector<Block> blocks;
    for_each_sequence(
        call_, problem_,
        [&](const kernels::AttentionProblem& problem, std::int64_t b, std::int64_t begin, std::int64_t end) {
          for (std::int64_t h = 0; h < problem.q_heads; ++h)
            for (std::int64_t row = begin; row < end; row += block_rows)
              blocks.push_back({problem.sequence, b, h, row, std::min(row + block_rows, end)});
        });
    const std::int64_t keys = partition_.most_keys(), count = static_cast<std::int64_t>(blocks.size());
    std::vector<T> sums(static_cast<std::size_t>(std::min(wave, count) * keys));
    for (std::int64_t first = 0; first < count; first += wave) {
      const std::int64_t blocks_of_wave = std::min(wave, count - first);
      std::fill(sums.begin(), sums.end(), T(0));
      runtime::parallel_for(blocks_of_wave, [&](std::int64_t n) {
        const Block& block = blocks[static_cast<std::size_t>(first + n)];
        for (std::int64_t row = block.begin; row < block.end; row += kernel_.query_tile_rows) {
          const Task task{block.sequence,
                          {block.batch, block.head, 1, row, std::min(kernel_.query_tile_rows, block.end - row)}};
          one_query_tile(task, nullptr, [&](const WeightsTile& from) { add_columns(from, sums.data() + n * keys); });
        }
      });
      for (std::int64_t n = 0; n < blocks_of_wave; ++n) {
        const Block& block = blocks[static_cast<std::size_t>(first + n)];
        const kernels::AttentionProblem problem = problem_of(call_, problem_, block.sequence);
        const std::int64_t begin = problem.keys_begin(block.batch), end = problem.keys_end(block.batch);
        T* const to =
            weights_->values.template data<T>() + (block.batch * problem.q_heads + block.head) * problem.k_rows;
        for (std::int64_t j = begin; j < end; ++j) to[j] += sums[static_cast<std::size_t>(n * keys + j - begin)];
      }
    }
  }

  const Call& call_;
  const AttentionKernel& kernel_;
  const DropoutTiles& dropout_;
  const ReturnedWeights* weights_;
  // a reference into `call_`: the struct is large, and a copy would count in the time of a small call
  const kernels::AttentionProblem& problem_;
  TaskPartition partition_;
  // With few query tiles and many keys (decode), the key splits are separate tasks. Depends on the shape only; the bits
  // are the same.
  bool split_;
  bool by_head_;
  std::size_t kernel_bytes_ = 0, keep_bytes_ = 0, row_bytes_ = 0, lanes_bytes_ = 0;
};

}  // namespace

void run_attention(Call& call, const AttentionKernel& kernel, const DropoutTiles& dropout,
                   const ReturnedWeights* weights) {
  if (call.compute_dtype() == Dtype::f64) Run<double>(call, kernel, dropout, weights).all();
  else Run<float>(call, kernel, dropout, weights).all();
}

}  // namespace attn
