// src/attention/schedule/task_partition.h: splits a call into tasks: query tiles of one head, or of heads that share K
// and V. Rows are independent: no bit depends on the split.
#pragma once
#include "attention/schedule/attention_kernel.h"

#include <span>
#include <vector>

namespace attn {

struct Task {
  const kernels::Sequence* sequence = nullptr;  // null: the whole batch item
  kernels::QueryTile tile;
};

class TaskPartition {
 public:
  enum class Heads {
    // Query heads that share a head of K and V form one task if their rows fit one query tile: K and V are read once.
    grouped,
    one,
    all,  // one task for all heads; its tile names the first head
  };
  /// `sequences`: empty: batch items. `most_query_tiles`: most query tiles of a head in a task; fewer if there would be
  /// too few tasks for the threads.
  TaskPartition(const kernels::AttentionProblem& problem, std::span<const kernels::Sequence> sequences,
                const AttentionKernel& kernel, Heads heads, std::int64_t most_query_tiles, int threads);

  std::int64_t tasks() const { return tasks_; }
  Task task(std::int64_t index) const;
  /// Returns the keys of the longest batch item or sequence.
  std::int64_t most_keys() const { return most_keys_; }
  std::int64_t most_lanes() const { return most_lanes_; }
  /// Returns the tasks of a head (or group of heads), which have adjacent indices, if it is the same for all heads;
  /// else 0.
  std::int64_t tasks_of_head() const { return segments_.empty() ? whole_.query_tiles : 0; }
  std::int64_t query_tile_rows() const { return query_tile_rows_; }
  /// Returns the rows of a task, if its head has that many.
  std::int64_t task_rows() const { return task_rows_; }
  /// Returns how many heads ahead the threads will be when a task is done, for heads of `rows` rows.
  std::int64_t heads_ahead(std::int64_t rows) const;
  /// Returns how many rows earlier the next query tile of the same head begins that this thread will compute.
  std::int64_t rows_ahead() const {
    return query_tile_rows_ < task_rows_ ? query_tile_rows_ : query_tile_rows_ * threads_;
  }

 private:
  void count(const kernels::AttentionProblem& problem, const AttentionKernel& kernel, Heads heads);

  /// All batch items, which have equal sizes, or one sequence.
  struct Segment {
    const kernels::Sequence* sequence = nullptr;
    std::int64_t batch = 0, batches = 1, rows_begin = 0, rows_end = 0, keys = 0;
    // heads of a task, tasks per query tile, query tiles
    std::int64_t heads = 1, groups = 1, query_tiles = 0, tasks_end = 0;
    double work() const { return static_cast<double>(rows_end - rows_begin) * static_cast<double>(keys); }
  };
  std::span<Segment> segments() { return segments_.empty() ? std::span(&whole_, 1) : std::span(segments_); }
  std::span<const Segment> segments() const { return segments_.empty() ? std::span(&whole_, 1) : std::span(segments_); }

  Segment whole_;  // for a call without sequences
  std::vector<Segment> segments_;
  int threads_;
  std::int64_t query_tile_rows_ = 0, task_rows_ = 0, most_keys_ = 0, most_lanes_ = 0, tasks_ = 0;
};

}  // namespace attn
