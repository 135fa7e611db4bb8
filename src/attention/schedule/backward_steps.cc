// src/attention/schedule/backward_steps.cc: splits the backward pass into units and steps: which rows and keys each
// has, and in which order they must run.
#include "attention/schedule/backward_steps.h"

#include "kernels/attention/normalizer_problem.h"
#include "runtime/alignment.h"

#include <algorithm>
#include <numeric>

namespace attn {

using kernels::AttentionGradient;
using kernels::AttentionProblem;
using runtime::aligned;

BackwardSteps::BackwardSteps(const AttentionGradient& gradient, const BackwardPlan& plan, const Partition& partition,
                             const DropoutTiles* dropout, const RelativeGradients* products)
    : gradient_(gradient), kernel_(*plan.kernel),
      reference_(plan.reference != nullptr ? *plan.reference : kernels::gradient_reference_of(gradient.problem)),
      partition_(partition), dropout_(dropout), products_(products) {
  const AttentionProblem& p = gradient.problem;
  shared_heads_ = p.q_heads == 0 ? 0 : std::gcd(p.k_heads, p.v_heads);
  if (shared_heads_ == 0) return;
  heads_of_unit_ = p.q_heads / shared_heads_;
  unit_before_ = shared_heads_;
  kernel_bytes_ = aligned(std::max(kernel_.scratch_bytes(gradient), reference_.scratch_bytes(gradient)));
  keep_bytes_ =
      dropout_ != nullptr || p.drop_least != 0 ? aligned(static_cast<std::size_t>(kernels::query_block * p.k_rows)) : 0;
  order_ = order_of_shared(static_cast<std::int64_t>(partition_.groups.size()));
  for_each_sum([&](bool own_heads, bool, bool) {
    if (!own_heads) unit_before_ = 1;
  });
  constexpr std::size_t most_copied_bytes = std::size_t{4} << 20;
  const std::size_t copies =
      aligned(static_cast<std::size_t>(p.k_rows * (p.dim + p.value_dim) * kernels::bytes_of(p.element)));
  if (p.copy_rows && one_key_head() && !has_sequences() && copies <= most_copied_bytes) copy_bytes_ = copies;
  if (kernel_.totals_bytes == nullptr) return;
  std::int64_t keys = 0;
  for (const GradientGroup& group : partition_.groups) keys = std::max(keys, keys_of(group).end - keys_of(group).begin);
  totals_bytes_ = aligned(kernel_.totals_bytes(gradient, keys));
}

/// Calls sum(own_heads, own_items, own_rows) for each gradient to which steps add, except dK and dV. The arguments say
/// whether each head, each batch item and each block of rows has elements of its own in that gradient.
template <typename F>
void BackwardSteps::for_each_sum(F&& sum) const {
  for (int n = 0; n < gradient_.dense_count; ++n) {
    const kernels::DenseGradient& dense = gradient_.dense[n];
    sum(dense.stride[1] != 0, dense.stride[0] != 0, dense.stride[2] != 0);
  }
  const auto each_lookup = [&](const kernels::ScoreGradient* expression) {
    for (int n = 0; expression != nullptr && n < expression->lookup_count; ++n) {
      const kernels::ScoreSlope& lookup = expression->lookups[n];
      if (lookup.line != kernels::ScoreLine::step)
        sum(lookup.by_head, lookup.by_item && !has_sequences(), expression->elements == kernels::ElementOrder::by_key);
    }
  };
  const AttentionProblem& p = gradient_.problem;
  each_lookup(p.score_gradient);
  if (p.normalization != nullptr) each_lookup(p.normalization->weight_gradient);
}

// --- rows and keys --------------------------------------------------------------------------------------------------

BackwardSteps::Step BackwardSteps::rows_of_block(std::int64_t n, std::int64_t block, std::int64_t h) const {
  const BackwardSegment* segment = &partition_.segments[static_cast<std::size_t>(n)];
  while (block >= segment->first_block + segment->blocks()) ++segment;
  const AttentionProblem& p = gradient_.problem;
  const std::int64_t row = segment->rows_begin + (block - segment->first_block) * kernels::query_block;
  kernels::Task task{
      .batch = segment->batch, .head = h, .row = row, .block = block, .sequence = segment->sequence, .hints = hints_};
  const std::int64_t end = std::min(segment->rows_end, p.rows_end(task));
  task.rows = std::clamp<std::int64_t>(end - row, 0, kernels::query_block);
  return {0, 0, segment, task};
}

std::int64_t BackwardSteps::steps_of_unit(std::int64_t unit) const { return heads_of_unit_ * group_of(unit).blocks; }

bool BackwardSteps::one_step_each() const {
  return steps() == 0 ||
         (heads_of_unit_ == 1 && std::all_of(partition_.groups.begin(), partition_.groups.end(),
                                             [](const GradientGroup& group) { return group.blocks == 1; }));
}

BackwardSteps::Step BackwardSteps::step_of_unit(std::int64_t unit, std::int64_t in_unit) const {
  const GradientGroup& group = group_of(unit);
  Step step = rows_of_block(group.first_segment, group.first_block + in_unit % group.blocks,
                            first_head(unit) + in_unit / group.blocks);
  step.unit = unit;
  step.in_unit = in_unit;
  return step;
}

BackwardSteps::Step BackwardSteps::step(std::int64_t index) const {
  const std::int64_t heads = gradient_.problem.q_heads;
  const auto after =
      std::upper_bound(partition_.groups.begin(), partition_.groups.end(), index / heads,
                       [](std::int64_t n, const GradientGroup& g) { return n < g.first_block + g.blocks; });
  const std::int64_t in_group = index - after->first_block * heads, steps = heads_of_unit_ * after->blocks;
  return step_of_unit((after - partition_.groups.begin()) * shared_heads_ + in_group / steps, in_group % steps);
}

BackwardSteps::Keys BackwardSteps::keys_of(const BackwardSegment& segment) const {
  if (segment.sequence == nullptr) return {0, gradient_.problem.k_rows};
  return {segment.sequence->keys_begin, segment.sequence->keys_end};
}

BackwardSteps::Keys BackwardSteps::keys_of(const GradientGroup& group) const {
  const auto segments = segments_of(group);
  Keys all = keys_of(segments[0]);
  for (const BackwardSegment& segment : segments) {
    const Keys keys = keys_of(segment);
    all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  }
  return all;
}

std::int64_t BackwardSteps::first_step(std::int64_t unit) const {
  const GradientGroup& group = group_of(unit);
  return group.first_block * gradient_.problem.q_heads + unit % shared_heads_ * steps_of_unit(unit);
}

BackwardSteps::Part BackwardSteps::part(std::int64_t group, std::int64_t groups) const {
  const GradientGroup &first = partition_.groups[static_cast<std::size_t>(group)],
                      &last = partition_.groups[static_cast<std::size_t>(group + groups - 1)];
  const std::int64_t heads = shared_heads_ == 0 ? 0 : gradient_.problem.q_heads;
  return {groups, group * shared_heads_, groups * shared_heads_, first.first_block * heads,
          (last.first_block + last.blocks - first.first_block) * heads};
}

// --- order ----------------------------------------------------------------------------------------------------------

/// Returns the order that units or steps must keep. Several units may add to the same gradient of a bias or lookup.
/// They may then run at the same time, one slightly behind the other, if there are no sequences and the steps of a unit
/// add to different elements: each block of rows has its own, and so has each head if a unit has several. Otherwise all
/// steps run one after another.
BackwardSteps::Order BackwardSteps::order_of_shared(std::int64_t items) const {
  bool shared = false, alike = !has_sequences();
  for_each_sum([&](bool own_heads, bool own_items, bool own_rows) {
    if ((own_heads || shared_heads_ == 1) && (own_items || items == 1)) return;
    shared = true;
    alike = alike && own_rows && (own_heads || heads_of_unit_ == 1);
  });
  return !shared ? Order::any : alike ? Order::units : Order::steps;
}

}  // namespace attn
