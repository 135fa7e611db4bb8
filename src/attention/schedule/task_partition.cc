// src/attention/schedule/task_partition.cc: assigns rows and heads to tasks. Long sequences and query tiles with many
// keys come first, so that no long task is left for the end.
#include "attention/schedule/task_partition.h"

#include <algorithm>
#include <numeric>

namespace attn {
namespace {

/// The number of tasks per thread to aim for: with this many, the last task is a small part of the whole. Additive
/// scores gain more from larger tasks than they lose by threads that wait at the end.
constexpr std::int64_t tasks_of_thread = 12, additive_tasks_of_thread = 4;

std::int64_t heads_together(const kernels::AttentionProblem& problem, const AttentionKernel& kernel,
                            std::int64_t rows) {
  if (kernel.vector_kernel == nullptr || rows == 0 || problem.q_heads == 0) return 1;
  // every head has its own K or V, so no K and V are shared
  if (problem.k_heads == problem.q_heads || problem.v_heads == problem.q_heads) return 1;
  const std::int64_t group = std::gcd(problem.q_heads / problem.k_heads, problem.q_heads / problem.v_heads);
  for (std::int64_t heads = group; heads > 1; --heads)
    if (group % heads == 0 && heads * rows <= kernel.query_tile_rows) return heads;
  return 1;
}

}  // namespace

TaskPartition::TaskPartition(const kernels::AttentionProblem& problem, std::span<const kernels::Sequence> sequences,
                             const AttentionKernel& kernel, Heads heads, std::int64_t most_query_tiles, int threads)
    : threads_(threads) {
  if (sequences.empty() && problem.batch > 0)
    whole_ = {.batches = problem.batch, .rows_end = problem.q_rows, .keys = problem.k_rows};
  for (const kernels::Sequence& sequence : sequences)
    segments_.push_back({.sequence = &sequence,
                         .batch = sequence.batch,
                         .rows_begin = sequence.rows_begin,
                         .rows_end = sequence.rows_end,
                         .keys = sequence.keys_end - sequence.keys_begin});
  if (!segments_.empty())
    std::stable_sort(segments_.begin(), segments_.end(),
                     [](const Segment& a, const Segment& b) { return a.work() > b.work(); });
  for (std::int64_t query_tiles = most_query_tiles; query_tiles > 0; query_tiles /= 2) {
    query_tile_rows_ = kernel.query_tile_rows;
    task_rows_ = query_tile_rows_ * query_tiles;
    count(problem, kernel, heads);
    if (tasks() >= (problem.score == kernels::ScoreOp::additive ? additive_tasks_of_thread : tasks_of_thread) * threads)
      break;
  }
}

void TaskPartition::count(const kernels::AttentionProblem& problem, const AttentionKernel& kernel, Heads heads) {
  tasks_ = 0;
  for (Segment& segment : segments()) {
    const std::int64_t rows = segment.rows_end - segment.rows_begin;
    segment.heads = heads == Heads::grouped ? heads_together(problem, kernel, rows) : 1;
    segment.groups = heads == Heads::all ? (problem.q_heads > 0 ? 1 : 0) : problem.q_heads / segment.heads;
    segment.query_tiles = (rows + task_rows_ - 1) / task_rows_;
    segment.tasks_end = tasks_ += segment.batches * segment.groups * segment.query_tiles;
    most_keys_ = std::max(most_keys_, segment.keys);
    most_lanes_ = std::max(most_lanes_, segment.heads * std::min(rows, task_rows_));
  }
}

std::int64_t TaskPartition::heads_ahead(std::int64_t rows) const {
  const std::int64_t query_tiles = (rows + task_rows_ - 1) / task_rows_;
  return query_tiles == 0 ? 1 : std::max<std::int64_t>(1, threads_ / query_tiles);
}

kernels::Task TaskPartition::task(std::int64_t index) const {
  const auto segment = std::upper_bound(segments().begin(), segments().end(), index,
                                        [](std::int64_t n, const Segment& p) { return n < p.tasks_end; });
  const std::int64_t tasks = segment->groups * segment->query_tiles,
                     of_segment = index - (segment->tasks_end - segment->batches * tasks);
  const std::int64_t batch = segment->batch + of_segment / tasks, own = of_segment % tasks;
  // the last query tile of a head comes first, because it sees the most keys under a causal mask
  const std::int64_t begin = segment->rows_begin + (segment->query_tiles - 1 - own % segment->query_tiles) * task_rows_;
  const std::int64_t rows = std::min(task_rows_, segment->rows_end - begin);
  return {.batch = batch,
          .head = own / segment->query_tiles * segment->heads,
          .heads = segment->heads,
          .row = begin,
          .rows = rows,
          .sequence = segment->sequence};
}

}  // namespace attn
