// src/attention/schedule/task_order.cc: chooses tasks of one or several query tiles, and whether threads take tasks,
// heads or key splits.
#include "attention/schedule/task_order.h"

#include "kernels/attention/kv_rows.h"

#include <algorithm>

namespace attn {
namespace {

using kernels::AttentionProblem;
using Heads = TaskPartition::Heads;

/// The most query tiles in a task that copies K and V: copying takes up to a fifth of the time of a query tile. And the
/// most in a task that computes exponentials of keys or converts rows: that is done once for all its query tiles.
constexpr std::int64_t copying_tiles = 16, converting_tiles = 4;
/// With this many tasks or more the keys are not split: the tasks alone are taken to keep the threads busy.
constexpr std::int64_t most_split_tasks = 32;

Heads heads_of_task(const Workload& work) {
  if (work.weights == Weights::none) return work.torch_dropout ? Heads::one : Heads::grouped;
  return work.weights == Weights::head_average ? Heads::all : Heads::one;
}

/// Returns whether the kernel should copy K and V: rows of K or V conflict in the cache sets, or those of K have an odd
/// number of bf16 elements.
bool copies(const AttentionProblem& p, const AttentionKernel& kernel, std::int64_t keys) {
  if (kernel.vector_kernel == nullptr || p.score != kernels::ScoreOp::dot) return false;
  return (kernel.computes == kernels::Element::bf16 && p.dim % 2 != 0) || kernels::collide(p.k, p.dim, keys) ||
         kernels::collide(p.v, p.value_dim, keys);
}

/// Returns how many query tiles a task may have: larger tasks save conversions and copies.
std::int64_t tiles_of_task(const AttentionProblem& p, const AttentionKernel& kernel, bool copying) {
  const bool converts =
      p.score == kernels::ScoreOp::additive || p.k.element != kernel.computes || p.v.element != kernel.computes;
  std::int64_t tiles = copying                                       ? copying_tiles
                       : converts && kernel.vector_kernel != nullptr ? converting_tiles
                                                                     : kernel.task_tiles;
  const std::int64_t of_head = (p.q_rows + kernel.query_tile_rows - 1) / kernel.query_tile_rows;
  while (tiles / 2 >= of_head && tiles > 1) tiles /= 2;
  return tiles;
}

/// Returns whether each thread should compute all tasks of a head. On 2 threads (B, H, T, D) = (1, 12, 1024, 64) then
/// takes .98 of the time, causal .95, and (1, 16, 2048, 128) .99. K and V of a head may have at most 4 MiB in the
/// compute type: each thread has its own head, and larger heads would together exceed the last-level cache. A call with
/// a score callback is excluded, because the callable may change the processor's floating-point state, which only
/// separate tasks restore.
bool goes_by_head(const AttentionProblem& p, const AttentionKernel& kernel, const TaskPartition& partition,
                  int threads) {
  constexpr std::int64_t most_bytes = 4 << 20;
  const std::int64_t tasks = partition.tasks_of_head(), size = p.element == kernels::Element::f64 ? 8 : 4;
  return threads > 1 && tasks > 0 && partition.tasks() >= tasks * threads &&
         p.k_rows * (p.dim + p.value_dim) * size <= most_bytes && kernel.vector_kernel != nullptr &&
         p.score_callback.call == nullptr;
}

}  // namespace

Schedule schedule(const Workload& work, const AttentionKernel& kernel, int threads) {
  const AttentionProblem& p = work.problem;
  const auto partition = [&](Heads heads, std::int64_t tiles) {
    return TaskPartition(p, work.sequences, kernel, heads, tiles, threads);
  };
  Schedule s{.partition = partition(heads_of_task(work), 1)};
  s.splits = (s.partition.most_keys() + kernels::kv_split - 1) / kernels::kv_split;
  if (work.weights == Weights::none && !work.torch_dropout) {
    if (kernel.vector_kernel != nullptr && s.splits > 1 && s.partition.tasks() < most_split_tasks && !work.products) {
      constexpr std::int64_t most_together = 4, shares_of_thread = 4;
      s.order = Schedule::Order::splits;
      s.splits_together =
          std::clamp<std::int64_t>(s.partition.tasks() * s.splits / (shares_of_thread * threads), 1, most_together);
    } else {
      const bool copying = copies(p, kernel, s.partition.most_keys());
      const std::int64_t tiles = tiles_of_task(p, kernel, copying);
      if (tiles > 1) s.partition = partition(Heads::grouped, tiles);
      s.copy_rows = copying && std::min(s.partition.task_rows(), p.q_rows) >=
                                   kernels::least_copying_tiles * kernel.query_tile_rows;
      if (goes_by_head(p, kernel, s.partition, threads)) s.order = Schedule::Order::heads;
    }
  }
  const bool by_head = s.order == Schedule::Order::heads;
  s.hints.heads_ahead = by_head ? 1 : s.partition.heads_ahead(p.q_rows);
  s.hints.rows_ahead = by_head ? s.partition.query_tile_rows() : s.partition.rows_ahead();
  return s;
}

}  // namespace attn
