// src/attention/schedule/schedule.h: decides how a call is split into tasks and in which order they run. No bit depends
// on it.
#pragma once
#include <attn/attention.h>

#include "attention/schedule/task_partition.h"

namespace attn {

/// What the split depends on.
struct Workload {
  const kernels::AttentionProblem& problem;
  std::span<const kernels::Sequence> sequences = {};
  bool torch_dropout = false;             // drawn from torch's stream, query tile by query tile
  Weights::Kind weights = Weights::none;  // the returned weights, also written by query tiles
};

struct Schedule {
  enum class Order : std::uint8_t {
    tasks,   // in the order of their indices
    heads,   // every thread computes whole heads, so that K and V are in the cache of one core instead of all
    splits,  // few tasks with many keys (decode): their key splits are tasks of their own, which are merged
  };
  TaskPartition partition;
  Order order = Order::tasks;
  // Order::splits: the most splits of a task, and how many a thread takes at a time, because prefetching continues
  // across their borders. (1, 32 / 8, 1 x 32,768, 128) in bf16 takes 5 % less time, 4,096 keys of f32 8 %.
  std::int64_t splits = 1, splits_together = 1;
  kernels::ScheduleHints hints = {};
};

Schedule schedule(const Workload& work, const AttentionKernel& kernel, int threads);

}  // namespace attn
