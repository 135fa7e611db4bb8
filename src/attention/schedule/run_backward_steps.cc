// src/attention/schedule/run_backward_steps.cc: runs the steps of the backward pass, unit by unit or as a wave, and
// recomputes units in which a number is not finite.
#include <attn/runtime.h>

#include "attention/schedule/backward_steps.h"
#include "kernels/attention/kv_rows.h"

#include <algorithm>
#include <cstring>

namespace attn {

using kernels::AttentionGradient;
using kernels::AttentionProblem;
using kernels::StepOrder;

namespace {

/// K and V of a unit are copied only if the unit has at least least_copying_steps steps. While rows are copied, the row
/// copy_ahead rows later is prefetched.
constexpr std::int64_t least_copying_steps = 4, copy_ahead = 16;

/// The progress of a step that has finished all keys but still has other work.
constexpr std::uint32_t every_key_done = runtime::Progress::whole - 1;

}  // namespace

AttentionGradient BackwardSteps::with_totals(const AttentionGradient& gradient, std::int64_t unit, char* totals) const {
  AttentionGradient g = gradient;
  const Keys keys = keys_of(group_of(unit));
  g.totals = reinterpret_cast<float*>(totals);
  g.totals_begin = keys.begin;
  g.totals_end = keys.end;
  return g;
}

std::optional<AttentionGradient> BackwardSteps::with_copies(std::int64_t unit, char* copies) const {
  const std::int64_t batch = batch_of(unit);
  const std::int64_t blocks =
      (gradient_.problem.rows_end({.batch = batch}) + kernels::query_block - 1) / kernels::query_block;
  if (copy_bytes_ == 0 || heads_of_unit_ * blocks < least_copying_steps) return std::nullopt;
  AttentionGradient g = gradient_;
  AttentionProblem& p = g.problem;
  const auto copy = [&](kernels::KvRows& rows, std::int64_t(&stride)[2], std::int64_t columns) {
    const std::size_t bytes = static_cast<std::size_t>(columns * kernels::bytes_of(p.element));
    const kernels::KvRows head = kernels::rows_of_head(rows, stride, batch, unit % shared_heads_);
    rows.base = copies;
    rows.row_stride = columns;
    stride[0] = stride[1] = 0;  // every head index addresses the copy
    const kernels::Task item{.batch = batch};
    for (std::int64_t j = p.keys_begin(item); j < p.keys_end(item); ++j) {
      const char* const later = kernels::row_at(head, std::min(j + copy_ahead, p.k_rows - 1));
      for (std::size_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(later + byte);
      std::memcpy(copies + static_cast<std::size_t>(j) * bytes, kernels::row_at(head, j), bytes);
    }
    copies += static_cast<std::size_t>(p.k_rows) * bytes;
  };
  copy(p.k, p.k_stride, p.dim);
  copy(p.v, p.v_stride, p.value_dim);
  return g;
}

template <typename F>
void BackwardSteps::with_rows(const AttentionGradient& gradient, const kernels::GradientKernel& kernel,
                              const Step& step, char* scratch, char* totals, F&& use) const {
  const AttentionProblem& p = gradient.problem;
  kernels::Task task = step.rows;
  if (dropout_ != nullptr || (p.drop_least != 0 && !kernel.draws)) {
    auto* keep = reinterpret_cast<std::uint8_t*>(scratch + kernel_bytes_);
    if (p.drop_least != 0) draw_by_counter(p, task, keep);
    else dropout_->draw_rows(task.batch * p.q_heads + task.head, task.row, task.rows, keep);
    task.keep = keep, task.keep_stride = p.k_rows, task.first_row = task.row;
  }
  if (step.segment->mask == nullptr && totals == nullptr) return use(gradient, task);
  AttentionGradient g = totals != nullptr ? with_totals(gradient, step.unit, totals) : gradient;
  if (step.segment->mask != nullptr) g.problem.mask.nodes = step.segment->mask;
  use(g, task);
}

bool BackwardSteps::run(const AttentionGradient& gradient, const Step& step, const StepOrder& step_order, char* scratch,
                        char* totals) const {
  bool good = true;
  if (step.rows.rows > 0)
    with_rows(gradient, kernel_, step, scratch, totals, [&](const AttentionGradient& g, const kernels::Task& task) {
      good = products_ == nullptr ? kernel_.step(g, task, step_order, scratch)
                                  : products_->run(g, {kernel_, task, step_order, step.unit / shared_heads_, false},
                                                   scratch, scratch + products_begin());
    });
  if (step.rows.rows == 0 && gradient_.parameters != nullptr) {
    const std::size_t bytes = (gradient_.problem.element == kernels::Element::f64 ? 8 : 4) *
                              static_cast<std::size_t>(kernels::parameter_count(gradient_.problem));
    std::memset(static_cast<char*>(gradient_.parameters) +
                    static_cast<std::size_t>(step.rows.block * gradient_.problem.q_heads + step.rows.head) * bytes,
                0, bytes);
  }
  return good;
}

void BackwardSteps::clear_unit(std::int64_t unit, char* totals, bool keys_too) const {
  const AttentionProblem& p = gradient_.problem;
  const GradientGroup& group = group_of(unit);
  const std::int64_t first = first_head(unit);
  struct Rows {
    void* to;
    const std::int64_t (&stride)[3];
    std::int64_t heads, columns;
  };
  const auto clear = [&](const Rows& rows, std::int64_t b, std::int64_t begin, std::int64_t end) {
    if (rows.to == nullptr || begin >= end) return;
    const std::int64_t share = p.q_heads / rows.heads;
    const auto size = static_cast<std::size_t>(kernels::bytes_of(p.element));
    const bool together = rows.stride[2] == rows.columns;
    for (std::int64_t h = first / share; h < (first + heads_of_unit_) / share; ++h)
      for (std::int64_t i = begin; i < (together ? begin + 1 : end); ++i)
        std::memset(static_cast<char*>(rows.to) +
                        static_cast<std::size_t>(b * rows.stride[0] + h * rows.stride[1] + i * rows.stride[2]) * size,
                    0, static_cast<std::size_t>(together ? (end - begin) * rows.columns : rows.columns) * size);
  };
  for (const BackwardSegment& segment : segments_of(group)) {
    const Keys keys = keys_of(segment);
    clear({gradient_.dq, gradient_.dq_stride, p.q_heads, p.dim}, segment.batch,
          p.rows_end({.batch = segment.batch, .sequence = segment.sequence}), segment.rows_end);
    if (totals != nullptr || !keys_too) continue;
    clear({gradient_.dk, gradient_.dk_stride, p.k_heads, p.dim}, segment.batch, keys.begin, keys.end);
    clear({gradient_.dv, gradient_.dv_stride, p.v_heads, p.value_dim}, segment.batch, keys.begin, keys.end);
  }
  if (totals != nullptr && keys_too)
    std::memset(totals, 0, kernel_.totals_bytes(gradient_, keys_of(group).end - keys_of(group).begin));
}

void BackwardSteps::finish_unit(std::int64_t unit, char* totals, std::int64_t begin) const {
  const std::int64_t end = keys_of(group_of(unit)).end;
  if (totals != nullptr && begin < end)
    kernel_.finish(with_totals(gradient_, unit, totals), batch_of(unit), first_head(unit), begin, end);
}

bool BackwardSteps::run_unit(std::int64_t unit, char* scratch, Wave* wave) const {
  char* const totals = totals_bytes_ != 0 ? scratch + kernel_bytes_ + keep_bytes_ : nullptr;
  const bool begins = begins_keys();
  const std::optional<AttentionGradient> copied =
      with_copies(unit, scratch + kernel_bytes_ + keep_bytes_ + totals_bytes_);
  const AttentionGradient& gradient = copied ? *copied : gradient_;
  clear_unit(unit, totals, !begins);
  const Keys keys = keys_of(group_of(unit));
  std::int64_t summed = keys.begin, rounded = keys.begin;
  struct Context {
    runtime::Progress *before, *mine;  // `before` null: no earlier unit adds to these elements
  } context{};
  StepOrder step_order;
  if (wave != nullptr)
    step_order = {
        .wait_dense =
            [](void* at, std::int64_t key) {
              if (auto* before = static_cast<Context*>(at)->before) before->wait(static_cast<std::uint32_t>(key));
            },
        .done = [](void* at,
                   std::int64_t key) { static_cast<Context*>(at)->mine->reach(static_cast<std::uint32_t>(key)); },
        .context = &context};
  if (begins) step_order.summed = &summed;
  bool good = true;
  const std::int64_t steps = steps_of_unit(unit);
  const bool all = gradient_.dense_count != 0 || gradient_.problem.score_gradient != nullptr ||
                   gradient_.problem.normalization != nullptr || products_ != nullptr;
  for (std::int64_t n = 0; n < steps && (good || all); ++n) {
    if (wave != nullptr) {
      context.mine = wave->progress + first_step(unit) + n;
      context.before = unit < unit_before_ ? nullptr : wave->progress + first_step(unit - unit_before_) + n;
    }
    if (n == steps - 1 && totals != nullptr && one_key_head()) step_order.rounded = &rounded;
    good = run(gradient, step_of_unit(unit, n), step_order, scratch, totals) && good;
    if (context.before != nullptr) context.before->wait(runtime::Progress::whole);
    if (context.mine != nullptr) context.mine->reach(runtime::Progress::whole);
  }
  if (begins && summed < keys.end) {
    const AttentionGradient g = with_totals(gradient_, unit, totals);
    kernel_.clear_keys(g, batch_of(unit), first_head(unit), summed, keys.end);
  }
  finish_unit(unit, totals, rounded);
  return good;
}

void BackwardSteps::run_again(std::int64_t unit, char* scratch) const {
  clear_unit(unit, nullptr);
  for (std::int64_t n = 0; n < steps_of_unit(unit); ++n) {
    const Step step = step_of_unit(unit, n);
    if (step.rows.rows == 0) continue;
    with_rows(gradient_, reference_, step, scratch, nullptr, [&](AttentionGradient g, const kernels::Task& task) {
      if (products_ != nullptr) {
        products_->run(g, {reference_, task, {}, 0, true}, scratch, scratch + products_begin());
        return;
      }
      g.dense_count = 0;
      g.adds_lookups = false;
      reference_.step(g, task, {}, scratch);
    });
  }
}

void BackwardSteps::unit(std::int64_t unit, char* scratch) const {
  if (!run_unit(unit, scratch, nullptr)) run_again(unit, scratch);
}

void BackwardSteps::next_unit(Wave& wave, char* scratch) const {
  const std::int64_t unit = wave.next.fetch_add(1, std::memory_order_relaxed);
  if (!run_unit(unit, scratch, &wave)) run_again(unit, scratch);
}

/// Returns how many keys a step stays behind the step before it, if there are enough keys for all threads. If a step
/// followed directly, it would wait at every block of keys and read cache lines that the other core has just written:
/// in half of the processes two threads then took 1.5 times as long, measured in bf16 at (1, 1, 4096, 64).
std::int64_t BackwardSteps::keys_apart(std::int64_t unit) const {
  constexpr std::int64_t blocks_of_thread = 4;
  const Keys keys = keys_of(group_of(unit));
  return keys.end - keys.begin >= blocks_of_thread * num_threads() * kernels::kv_block ? kernels::kv_block : 0;
}

void BackwardSteps::wave_step(Wave& wave, char* scratch) const {
  const std::int64_t index = wave.next.fetch_add(1, std::memory_order_relaxed);
  const Step here = step(index);
  struct Context {
    runtime::Progress* before;        // the step before this one in the unit; null: none
    runtime::Progress* before_dense;  // the step before this one in the call, for dense gradients; null: none
    runtime::Progress* mine;
    std::int64_t apart;
  } context{here.in_unit == 0 ? nullptr : wave.progress + index - 1,
            index == 0 || order_ == Order::any ? nullptr : wave.progress + index - 1, wave.progress + index,
            keys_apart(here.unit)};
  if (context.before != nullptr) context.before_dense = context.before;
  char* const totals = totals_of(wave, here.unit);
  if (context.before == nullptr) clear_unit(here.unit, totals);
  const StepOrder step_order{
      .wait =
          [](void* at, std::int64_t key) {
            const Context& step = *static_cast<Context*>(at);
            if (step.before == nullptr) return;
            step.before->wait(key == kernels::every_key ? runtime::Progress::whole
                                                        : static_cast<std::uint32_t>(key + step.apart));
          },
      .wait_dense =
          [](void* at, std::int64_t key) {
            if (auto* before = static_cast<Context*>(at)->before_dense)
              before->wait(key == kernels::every_key ? every_key_done : static_cast<std::uint32_t>(key));
          },
      .done =
          [](void* at, std::int64_t key) {
            const Context& step = *static_cast<Context*>(at);
            if (key != kernels::every_key) return step.mine->reach(static_cast<std::uint32_t>(key));
            // the previous step may still work on keys that the rows of this step do not see
            if (step.before_dense != nullptr) step.before_dense->wait(every_key_done);
            step.mine->reach(every_key_done);
          },
      .context = &context};
  if (!run(gradient_, here, step_order, scratch, totals))
    wave.to_recompute[here.unit].store(1, std::memory_order_relaxed);
  if (context.before_dense != nullptr) context.before_dense->wait(runtime::Progress::whole);
  context.mine->reach(runtime::Progress::whole);
}

void BackwardSteps::recompute(const Wave& wave, std::int64_t unit, char* scratch) const {
  char* const totals = totals_of(wave, unit);
  if (steps_of_unit(unit) == 0) clear_unit(unit, totals);  // a unit without rows has no step that clears its keys
  finish_unit(unit, totals, keys_of(group_of(unit)).begin);
  if (wave.to_recompute[unit].load(std::memory_order_relaxed) != 0) run_again(unit, scratch);
}

}  // namespace attn
