// src/attention/schedule/task_order.h: decides how a call is split into tasks and in which order they run. No bit
// depends on it.
#pragma once
#include <attn/attention.h>

#include "attention/schedule/task_partition.h"

namespace attn {

/// The properties of a call that decide how it is split.
struct Workload {
  const kernels::AttentionProblem& problem;
  std::span<const kernels::Sequence> sequences = {};
  bool torch_dropout = false;             // dropout that is drawn from torch's stream, query tile by query tile
  Weights::Kind weights = Weights::none;  // which weights are returned; they too are written query tile by query tile
  bool products = false;                  // relative products, which are made for a query tile and all of its keys
};

struct Schedule {
  enum class Order : std::uint8_t {
    tasks,   // in the order of their indices
    heads,   // every thread computes whole heads, so that K and V of a head are in the cache of one core only
    splits,  // few tasks with many keys (decode): the keys of a task are split among threads, and the results merged
  };
  TaskPartition partition;
  Order order = Order::tasks;
  // With Order::splits: the most key splits of a task, and how many adjacent splits a thread takes at a time. A thread
  // takes several because prefetching continues from one to the next: (1, 32 / 8, 1 x 32,768, 128) in bf16 takes 5 %
  // less time, 4,096 keys of f32 8 %.
  std::int64_t splits = 1, splits_together = 1;
  kernels::ScheduleHints hints = {};
  bool copy_rows = false;  // AttentionProblem::copy_rows
};

Schedule schedule(const Workload& work, const AttentionKernel& kernel, int threads);

}  // namespace attn
