// src/attention/schedule/task_partition.h: splits a call into tasks: query tiles of one head, or of heads that share K
// and V. Rows are independent: no bit depends on the split.
#pragma once
#include "attention/schedule/attention_kernel.h"

#include <span>
#include <vector>

namespace attn {

class TaskPartition {
 public:
  enum class Heads {
    // Query heads that share a head of K and V form one task if their rows fit one query tile: K and V are read once.
    grouped,
    one,
    all,  // one task for all heads; its tile names the first head
  };
  /// If `sequences` is empty, the call has batch items instead. A task has at most `most_query_tiles` query tiles of a
  /// head, or fewer if there would be too few tasks for the threads.
  TaskPartition(const kernels::AttentionProblem& problem, std::span<const kernels::Sequence> sequences,
                const AttentionKernel& kernel, Heads heads, std::int64_t most_query_tiles, int threads);

  std::int64_t tasks() const { return tasks_; }
  kernels::Task task(std::int64_t index) const;
  /// Returns the keys of the longest batch item or sequence.
  std::int64_t most_keys() const { return most_keys_; }
  std::int64_t most_lanes() const { return most_lanes_; }
  /// Returns the number of tasks of a head (or group of heads), whose indices are adjacent, if it is the same for all
  /// heads; else 0.
  std::int64_t tasks_of_head() const { return segments_.empty() ? whole_.query_tiles : 0; }
  std::int64_t query_tile_rows() const { return query_tile_rows_; }
  /// Returns the most rows that a task can have.
  std::int64_t task_rows() const { return task_rows_; }
  /// For heads of `rows` rows, returns by how many heads the threads will have advanced when a task is done.
  std::int64_t heads_ahead(std::int64_t rows) const;
  /// The query tiles of a head run from the last rows to the first. Returns how many rows before this query tile the
  /// next one of the same head begins that this thread will compute.
  std::int64_t rows_ahead() const {
    return query_tile_rows_ < task_rows_ ? query_tile_rows_ : query_tile_rows_ * threads_;
  }

 private:
  void count(const kernels::AttentionProblem& problem, const AttentionKernel& kernel, Heads heads);

  /// The rows of all batch items together, because they have equal sizes, or of one sequence.
  struct Segment {
    const kernels::Sequence* sequence = nullptr;
    std::int64_t batch = 0, batches = 1, rows_begin = 0, rows_end = 0, keys = 0;
    // heads of a task; groups of heads; query tiles of a head; index of the first task after this segment
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
