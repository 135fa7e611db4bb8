// src/attention/cut.cc: which rows and heads a task has; long parts and long strips come first, so that none is left to
// the end.
#include "attention/cut.h"

#include <algorithm>
#include <numeric>

namespace attn {
namespace {

/// So many, and the last of them is a small part of the whole. Additive scores gain more from being together than they
/// lose at the end.
constexpr std::int64_t tasks_of_thread = 12, additive_tasks_of_thread = 4;

std::int64_t heads_together(const kernels::AttentionProblem& problem, const AttentionKernel& kernel,
                            std::int64_t rows) {
  if (kernel.strips == nullptr || rows == 0 || problem.q_heads == 0) return 1;
  if (problem.k_heads == problem.q_heads || problem.v_heads == problem.q_heads) return 1;  // each has its own
  const std::int64_t group = std::gcd(problem.q_heads / problem.k_heads, problem.q_heads / problem.v_heads);
  for (std::int64_t heads = group; heads > 1; --heads)
    if (group % heads == 0 && heads * rows <= kernel.query_tile_rows) return heads;
  return 1;
}

}  // namespace

Cut::Cut(const Call& call, const AttentionKernel& kernel, Heads heads, std::int64_t most_strips) {
  const kernels::AttentionProblem& problem = call.problem;
  if (call.parts.empty() && problem.batch > 0)
    whole_ = {.batches = problem.batch, .rows_end = problem.q_rows, .keys = problem.k_rows};
  for (const kernels::Part& part : call.parts)
    parts_.push_back({.part = &part,
                      .batch = part.batch,
                      .rows_begin = part.rows_begin,
                      .rows_end = part.rows_end,
                      .keys = part.keys_end - part.keys_begin});
  if (!parts_.empty())
    std::stable_sort(parts_.begin(), parts_.end(), [](const Piece& a, const Piece& b) { return a.work() > b.work(); });
  for (std::int64_t strips = most_strips; strips > 0; strips /= 2) {
    query_tile_rows_ = kernel.query_tile_rows;
    task_rows_ = query_tile_rows_ * strips;
    count(call, kernel, heads);
    if (tasks() >=
        (problem.score == kernels::ScoreOp::additive ? additive_tasks_of_thread : tasks_of_thread) * num_threads())
      break;
  }
}

void Cut::count(const Call& call, const AttentionKernel& kernel, Heads heads) {
  const kernels::AttentionProblem& problem = call.problem;
  tasks_ = 0;
  for (Piece& piece : pieces()) {
    const std::int64_t rows = piece.rows_end - piece.rows_begin;
    piece.heads = heads == Heads::grouped ? heads_together(problem, kernel, rows) : 1;
    piece.groups = heads == Heads::all ? (problem.q_heads > 0 ? 1 : 0) : problem.q_heads / piece.heads;
    piece.strips = (rows + task_rows_ - 1) / task_rows_;
    piece.tasks_end = tasks_ += piece.batches * piece.groups * piece.strips;
    most_keys_ = std::max(most_keys_, piece.keys);
    most_lanes_ = std::max(most_lanes_, piece.heads * std::min(rows, task_rows_));
  }
}

std::int64_t Cut::heads_ahead(std::int64_t rows) const {
  const std::int64_t strips = (rows + task_rows_ - 1) / task_rows_;
  return strips == 0 ? 1 : std::max<std::int64_t>(1, num_threads() / strips);
}

Task Cut::task(std::int64_t index) const {
  const auto piece = std::upper_bound(pieces().begin(), pieces().end(), index,
                                      [](std::int64_t n, const Piece& p) { return n < p.tasks_end; });
  const std::int64_t tasks = piece->groups * piece->strips,
                     of_piece = index - (piece->tasks_end - piece->batches * tasks);
  const std::int64_t batch = piece->batch + of_piece / tasks, own = of_piece % tasks;
  // the last strip of a head first: under a causal mask it sees the most keys
  const std::int64_t begin = piece->rows_begin + (piece->strips - 1 - own % piece->strips) * task_rows_;
  const std::int64_t rows = std::min(task_rows_, piece->rows_end - begin);
  return {piece->part, {batch, own / piece->strips * piece->heads, piece->heads, begin, rows}};
}

}  // namespace attn
