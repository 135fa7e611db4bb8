// tests/attention/task_order_test.cc: the split of a call depends on the call, the kernel and the threads alone.
#include "attention/schedule/task_order.h"

#include <gtest/gtest.h>

#include <vector>

namespace attn {
namespace {

using kernels::AttentionProblem;
using Order = Schedule::Order;

/// Contiguous rows, as if there were memory for them.
AttentionProblem problem_of(std::int64_t batch, std::int64_t heads, std::int64_t rows, std::int64_t keys,
                            std::int64_t dim) {
  AttentionProblem p;
  p.batch = batch, p.q_heads = p.k_heads = p.v_heads = heads;
  p.q_rows = rows, p.k_rows = keys, p.dim = p.value_dim = dim;
  p.k.row_stride = p.v.row_stride = dim;
  return p;
}

const kernels::ForwardKernel vector_kernel{};
const AttentionKernel kernel{.name = "",
                             .computes = kernels::Element::f32,
                             .query_tile_rows = 64,
                             .task_tiles = 1,
                             .ask = nullptr,
                             .scratch_bytes = nullptr,
                             .rows = nullptr,
                             .vector_kernel = &vector_kernel};

TEST(Schedule, ManyHeadsGoHeadByHeadOnSeveralThreads) {
  const AttentionProblem p = problem_of(1, 12, 512, 512, 64);
  const Schedule one = schedule({p}, kernel, 1), two = schedule({p}, kernel, 2);
  EXPECT_EQ(one.order, Order::tasks);
  EXPECT_EQ(one.hints.heads_ahead, 1);
  EXPECT_EQ(one.hints.rows_ahead, 64);
  EXPECT_EQ(two.order, Order::heads);
  EXPECT_EQ(two.partition.tasks(), 12 * 8);
  EXPECT_EQ(two.hints.heads_ahead, 1);
  EXPECT_EQ(two.hints.rows_ahead, 64);
  EXPECT_EQ(schedule({p}, kernel, 16).order, Order::tasks) << "fewer heads than threads";
  EXPECT_EQ(schedule({p}, kernel, 16).hints.heads_ahead, 2);
  EXPECT_EQ(schedule({p}, kernel, 16).hints.rows_ahead, 16 * 64);
}

TEST(Schedule, LongRowsOrACallbackDoNotGoHeadByHead) {
  EXPECT_EQ(schedule({problem_of(1, 12, 512, 8192, 128)}, kernel, 2).order, Order::tasks);
  AttentionProblem p = problem_of(1, 12, 512, 512, 64);
  p.score_callback.call = [](void*, const kernels::ScoreTileView&) noexcept {};
  EXPECT_EQ(schedule({p}, kernel, 2).order, Order::tasks);
}

TEST(Schedule, DecodeOverManyKeysSplitsThem) {
  AttentionProblem p = problem_of(1, 32, 1, 32768, 128);
  p.k_heads = p.v_heads = 8;
  const Schedule s = schedule({p}, kernel, 2);
  EXPECT_EQ(s.order, Order::splits);
  EXPECT_EQ(s.partition.tasks(), 8) << "query heads that share a head of K and V are one task";
  EXPECT_EQ(s.partition.task(0).heads, 4);
  EXPECT_EQ(s.splits, 32);
  EXPECT_EQ(s.splits_together, 4);
  EXPECT_EQ(schedule({p}, kernel, 64).splits_together, 1);
  p.k_rows = 1024;
  EXPECT_NE(schedule({p}, kernel, 2).order, Order::splits) << "one split";
  p.k_rows = 32768, p.batch = 4;
  EXPECT_NE(schedule({p}, kernel, 2).order, Order::splits) << "32 tasks are enough";
}

TEST(Schedule, TheReferenceCodeTakesQueryTilesOfOneHead) {
  AttentionKernel reference = kernel;
  reference.vector_kernel = nullptr;
  AttentionProblem p = problem_of(1, 32, 1, 32768, 128);
  p.k_heads = p.v_heads = 8;
  const Schedule s = schedule({p}, reference, 2);
  EXPECT_EQ(s.order, Order::tasks);
  EXPECT_EQ(s.partition.tasks(), 32);
  EXPECT_EQ(s.partition.task(0).heads, 1);
}

TEST(Schedule, ReturnedWeightsAndTorchDropoutGoQueryTileByQueryTile) {
  AttentionProblem p = problem_of(2, 8, 4, 4096, 64);
  p.k_heads = p.v_heads = 2;
  for (const Workload& work :
       {Workload{p, {}, true}, Workload{p, {}, false, Weights::full}, Workload{p, {}, true, Weights::top_k(3).kind}}) {
    const Schedule s = schedule(work, kernel, 2);
    EXPECT_EQ(s.order, Order::tasks);
    EXPECT_EQ(s.partition.tasks(), 16);
    EXPECT_EQ(s.partition.task(3).heads, 1);
  }
  EXPECT_EQ(schedule({p, {}, false, Weights::head_average}, kernel, 2).partition.tasks(), 2) << "all heads together";
}

TEST(Schedule, TasksThatConvertKeysOrCopyRowsHaveSeveralQueryTiles) {
  AttentionProblem p = problem_of(8, 12, 1024, 1024, 64);
  EXPECT_EQ(schedule({p}, kernel, 2).partition.task_rows(), 64);
  p.k.element = kernels::Element::f16;
  EXPECT_EQ(schedule({p}, kernel, 2).partition.task_rows(), 4 * 64);
  EXPECT_FALSE(schedule({p}, kernel, 2).copy_rows);
  p.k.element = kernels::Element::f32;
  p.k.row_stride = 1024;  // 4 KB apart: a thousand rows in a few sets of the cache
  EXPECT_EQ(schedule({p}, kernel, 2).partition.task_rows(), 16 * 64);
  EXPECT_TRUE(schedule({p}, kernel, 2).copy_rows);
  EXPECT_EQ(schedule({p}, kernel, 64).partition.task_rows(), 2 * 64) << "tasks for all threads go first";
  EXPECT_FALSE(schedule({p}, kernel, 64).copy_rows) << "too few query tiles share a copy";
}

TEST(Schedule, SequencesAreSegmentsTheLongestFirst) {
  const AttentionProblem p = problem_of(1, 2, 300, 300, 64);
  const std::vector<kernels::Sequence> sequences{
      {.rows_begin = 0, .rows_end = 100, .keys_begin = 0, .keys_end = 100},
      {.rows_begin = 100, .rows_end = 300, .keys_begin = 100, .keys_end = 300}};
  const Schedule s = schedule({p, sequences}, kernel, 2);
  EXPECT_EQ(s.order, Order::tasks);
  EXPECT_EQ(s.partition.tasks(), 2 * (4 + 2));
  EXPECT_EQ(s.partition.task(0).sequence, &sequences[1]);
  EXPECT_EQ(s.partition.task(0).row, 292) << "its last query tile, which sees the most keys under a causal mask";
  EXPECT_EQ(s.partition.most_keys(), 200);
}

}  // namespace
}  // namespace attn
