// src/attention/schedule/backward_steps.cc: orders and runs the steps of the backward pass, and recomputes units in
// which a number is not finite.
#include "attention/schedule/backward_steps.h"

#include <attn/runtime.h>

#include "kernels/attention/kv_rows.h"
#include "runtime/cpu.h"
#include "runtime/once.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace attn {
namespace {

using kernels::AttentionGradient;
using kernels::AttentionProblem;
using kernels::Element;
using kernels::StepOrder;

/// K and V of a unit are copied only if the unit has at least least_copying_steps steps and the copies take at most
/// most_copied_bytes. While rows are copied, the row copy_ahead rows later is prefetched.
constexpr std::int64_t least_copying_steps = 4, copy_ahead = 16;
constexpr std::size_t most_copied_bytes = std::size_t{4} << 20;

std::size_t size_of_element(const AttentionProblem& p) {
  return p.element == Element::f64 ? 8 : p.element == Element::bf16 ? 2 : 4;
}
std::size_t size_of_computed(const AttentionProblem& p) { return p.element == Element::f64 ? 8 : 4; }

}  // namespace

BackwardPlan plan_backward(const AttentionProblem& problem) {
  constinit static runtime::Once<const kernels::GradientTarget*> here;
  const kernels::GradientTarget* const target =
      here.get([] { return kernels::gradient_target(runtime::target().c_str()); });
  const bool far =
      problem.element != Element::f64 &&
      !(problem.score_mod.fits_f32 && (problem.score_gradient == nullptr || problem.score_gradient->program.fits_f32));
  if (problem.element == Element::bf16) {
    if (far || target == nullptr || target->bf16.step == nullptr || !runtime::cpu().avx512_bf16 ||
        problem.score != kernels::ScoreOp::dot)
      return {"", nullptr};
    return {target->name, &target->bf16};
  }
  if (target != nullptr && !far) return {target->name, &target->of(problem)};
  return {"ref", &kernels::gradient_reference()};
}

BackwardSteps::BackwardSteps(const AttentionGradient& gradient, const BackwardPlan& plan, const Partition& partition,
                             const DropoutTiles* dropout)
    : gradient_(gradient), kernel_(*plan.kernel), partition_(partition), dropout_(dropout) {
  const AttentionProblem& p = gradient.problem;
  shared_heads_ = p.q_heads == 0 ? 0 : std::gcd(p.k_heads, p.v_heads);
  if (shared_heads_ == 0) return;
  heads_of_unit_ = p.q_heads / shared_heads_;
  unit_before_ = shared_heads_;
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  kernel_bytes_ =
      aligned(std::max(kernel_.scratch_bytes(gradient), kernels::gradient_reference().scratch_bytes(gradient)));
  keep_bytes_ =
      dropout_ != nullptr || p.drops() ? aligned(static_cast<std::size_t>(kernels::query_block * p.k_rows)) : 0;
  order_ = order_of_shared(static_cast<std::int64_t>(partition_.groups.size()));
  for_each_sum([&](bool own_heads, bool, bool) {
    if (!own_heads) unit_before_ = 1;
  });
  const std::size_t copies = aligned(static_cast<std::size_t>(p.k_rows * (p.dim + p.value_dim)) * size_of_element(p));
  if (p.hints.copy_rows && one_key_head() && !has_sequences() && copies <= most_copied_bytes) copy_bytes_ = copies;
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
  const kernels::ScoreGradient* const expression = gradient_.problem.score_gradient;
  for (int n = 0; expression != nullptr && n < expression->lookup_count; ++n) {
    const kernels::ScoreSlope& lookup = expression->lookups[n];
    if (lookup.line != kernels::ScoreLine::step)
      sum(lookup.by_head, lookup.by_item && !has_sequences(), expression->elements == kernels::ElementOrder::by_key);
  }
}

// --- which rows ----------------------------------------------------------------------------------------------------

BackwardSteps::Step BackwardSteps::rows_of_block(std::int64_t n, std::int64_t block, std::int64_t h) const {
  const BackwardSegment* segment = &partition_.segments[static_cast<std::size_t>(n)];
  while (block >= segment->first_block + segment->blocks()) ++segment;
  const AttentionProblem& p = gradient_.problem;
  const std::int64_t row = segment->rows_begin + (block - segment->first_block) * kernels::query_block;
  const std::int64_t end = std::min(
      segment->rows_end, segment->sequence != nullptr ? segment->sequence->rows_end : p.rows_end(segment->batch));
  return {0, 0, segment, {segment->batch, h, row, std::clamp<std::int64_t>(end - row, 0, kernels::query_block), block}};
}

std::int64_t BackwardSteps::steps_of_unit(std::int64_t unit) const {
  return heads_of_unit_ * partition_.groups[static_cast<std::size_t>(unit / shared_heads_)].blocks;
}

bool BackwardSteps::one_step_each() const {
  return steps() == 0 ||
         (heads_of_unit_ == 1 && std::all_of(partition_.groups.begin(), partition_.groups.end(),
                                             [](const GradientGroup& group) { return group.blocks == 1; }));
}

BackwardSteps::Step BackwardSteps::step_of_unit(std::int64_t unit, std::int64_t in_unit) const {
  const GradientGroup& group = partition_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  Step step = rows_of_block(group.first_segment, group.first_block + in_unit % group.blocks,
                            unit % shared_heads_ * heads_of_unit_ + in_unit / group.blocks);
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
  const auto segments = partition_.segments.subspan(static_cast<std::size_t>(group.first_segment),
                                                    static_cast<std::size_t>(group.segments));
  Keys all = keys_of(segments[0]);
  for (const BackwardSegment& segment : segments) {
    const Keys keys = keys_of(segment);
    all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  }
  return all;
}

// --- steps ---------------------------------------------------------------------------------------------------------

AttentionGradient BackwardSteps::with_totals(const AttentionGradient& gradient, std::int64_t unit, char* totals) const {
  AttentionGradient g = gradient;
  const Keys keys = keys_of(partition_.groups[static_cast<std::size_t>(unit / shared_heads_)]);
  g.totals = reinterpret_cast<float*>(totals);
  g.totals_begin = keys.begin;
  g.totals_end = keys.end;
  return g;
}

std::optional<AttentionGradient> BackwardSteps::with_copies(std::int64_t unit, char* copies) const {
  const GradientGroup& group = partition_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  const std::int64_t batch = partition_.segments[static_cast<std::size_t>(group.first_segment)].batch;
  const std::int64_t blocks = (gradient_.problem.rows_end(batch) + kernels::query_block - 1) / kernels::query_block;
  if (copy_bytes_ == 0 || heads_of_unit_ * blocks < least_copying_steps) return std::nullopt;
  AttentionGradient g = gradient_;
  AttentionProblem& p = g.problem;
  const auto copy = [&](kernels::KvRows& rows, std::int64_t(&stride)[2], std::int64_t columns) {
    const std::size_t bytes = static_cast<std::size_t>(columns) * size_of_element(p);
    const kernels::KvRows head = kernels::rows_of_head(rows, stride, batch, unit % shared_heads_);
    rows.base = copies;
    rows.row_stride = columns;
    stride[0] = stride[1] = 0;  // every head index addresses the copy
    for (std::int64_t j = p.keys_begin(batch); j < p.keys_end(batch); ++j) {
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
  const bool kept_bytes = dropout_ != nullptr || (gradient_.problem.drops() && !kernel.draws);
  if (!kept_bytes && step.segment->sequence == nullptr && totals == nullptr) return use(gradient);
  AttentionGradient g = totals != nullptr ? with_totals(gradient, step.unit, totals) : gradient;
  g.problem.task.sequence = step.segment->sequence;
  if (step.segment->mask != nullptr) g.problem.mask.nodes = step.segment->mask;
  if (kept_bytes) {
    auto* keep = reinterpret_cast<std::uint8_t*>(scratch + kernel_bytes_);
    if (g.problem.drops()) {
      draw_by_counter(g.problem, {step.rows.batch, step.rows.head, 1, step.rows.row, step.rows.rows}, keep);
    } else {
      dropout_->draw_rows(step.rows.batch * g.problem.q_heads + step.rows.head, step.rows.row, step.rows.rows, keep);
      g.problem.keep_scale = dropout_->scale(g.problem.element == Element::f64);
    }
    g.problem.drop_least = 0;
    g.problem.task.keep = keep;
    g.problem.task.keep_stride = g.problem.k_rows;
    g.problem.task.first_row = step.rows.row;
  }
  use(g);
}

bool BackwardSteps::run(const AttentionGradient& gradient, const Step& step, const StepOrder& step_order, char* scratch,
                        char* totals) const {
  bool good = true;
  if (step.rows.rows > 0)
    with_rows(gradient, kernel_, step, scratch, totals,
              [&](const AttentionGradient& g) { good = kernel_.step(g, step.rows, step_order, scratch); });
  if (step.rows.rows == 0 && gradient_.parameters != nullptr) {
    const std::size_t bytes =
        size_of_computed(gradient_.problem) * static_cast<std::size_t>(kernels::parameter_count(gradient_.problem));
    std::memset(static_cast<char*>(gradient_.parameters) +
                    static_cast<std::size_t>(step.rows.block * gradient_.problem.q_heads + step.rows.head) * bytes,
                0, bytes);
  }
  return good;
}

void BackwardSteps::clear_unit(std::int64_t unit, char* totals, bool keys_too) const {
  const AttentionProblem& p = gradient_.problem;
  const GradientGroup& group = partition_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  const std::int64_t first = unit % shared_heads_ * heads_of_unit_;
  struct Rows {
    void* to;
    const std::int64_t (&stride)[3];
    std::int64_t heads, columns;
  };
  const auto clear = [&](const Rows& rows, std::int64_t b, std::int64_t begin, std::int64_t end) {
    if (rows.to == nullptr || begin >= end) return;
    const std::int64_t share = p.q_heads / rows.heads;
    const std::size_t size = size_of_element(p);
    const bool together = rows.stride[2] == rows.columns;
    for (std::int64_t h = first / share; h < (first + heads_of_unit_) / share; ++h)
      for (std::int64_t i = begin; i < (together ? begin + 1 : end); ++i)
        std::memset(static_cast<char*>(rows.to) +
                        static_cast<std::size_t>(b * rows.stride[0] + h * rows.stride[1] + i * rows.stride[2]) * size,
                    0, static_cast<std::size_t>(together ? (end - begin) * rows.columns : rows.columns) * size);
  };
  for (const BackwardSegment& segment : partition_.segments.subspan(static_cast<std::size_t>(group.first_segment),
                                                                    static_cast<std::size_t>(group.segments))) {
    const kernels::Sequence* sequence = segment.sequence;
    const Keys keys = keys_of(segment);
    clear({gradient_.dq, gradient_.dq_stride, p.q_heads, p.dim}, segment.batch,
          sequence != nullptr ? sequence->rows_end : p.rows_end(segment.batch), segment.rows_end);
    if (totals != nullptr || !keys_too) continue;
    clear({gradient_.dk, gradient_.dk_stride, p.k_heads, p.dim}, segment.batch, keys.begin, keys.end);
    clear({gradient_.dv, gradient_.dv_stride, p.v_heads, p.value_dim}, segment.batch, keys.begin, keys.end);
  }
  if (totals != nullptr && keys_too)
    std::memset(totals, 0, kernel_.totals_bytes(gradient_, keys_of(group).end - keys_of(group).begin));
}

void BackwardSteps::finish_unit(std::int64_t unit, char* totals, std::int64_t begin) const {
  const GradientGroup& group = partition_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  const std::int64_t end = keys_of(group).end;
  if (totals == nullptr || begin >= end) return;
  kernel_.finish(with_totals(gradient_, unit, totals),
                 partition_.segments[static_cast<std::size_t>(group.first_segment)].batch,
                 unit % shared_heads_ * heads_of_unit_, begin, end);
}

bool BackwardSteps::run_unit(std::int64_t unit, char* scratch, Wave* wave) const {
  char* const totals = totals_bytes_ != 0 ? scratch + kernel_bytes_ + keep_bytes_ : nullptr;
  const bool begins = begins_keys();
  const std::optional<AttentionGradient> copied =
      with_copies(unit, scratch + kernel_bytes_ + keep_bytes_ + totals_bytes_);
  const AttentionGradient& gradient = copied ? *copied : gradient_;
  clear_unit(unit, totals, !begins);
  const Keys keys = keys_of(partition_.groups[static_cast<std::size_t>(unit / shared_heads_)]);
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
  for (std::int64_t n = 0;
       n < steps && (good || gradient_.dense_count != 0 || gradient_.problem.score_gradient != nullptr); ++n) {
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
    kernel_.clear_keys(g,
                       partition_
                           .segments[static_cast<std::size_t>(
                               partition_.groups[static_cast<std::size_t>(unit / shared_heads_)].first_segment)]
                           .batch,
                       unit % shared_heads_ * heads_of_unit_, summed, keys.end);
  }
  finish_unit(unit, totals, rounded);
  return good;
}

void BackwardSteps::run_again(std::int64_t unit, char* scratch) const {
  clear_unit(unit, nullptr);
  for (std::int64_t n = 0; n < steps_of_unit(unit); ++n) {
    const Step step = step_of_unit(unit, n);
    if (step.rows.rows == 0) continue;
    with_rows(gradient_, kernels::gradient_reference(), step, scratch, nullptr, [&](AttentionGradient g) {
      g.dense_count = 0;
      g.adds_lookups = false;
      kernels::gradient_reference().step(g, step.rows, {}, scratch);
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

std::int64_t BackwardSteps::first_step(std::int64_t unit) const {
  const GradientGroup& group = partition_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  return group.first_block * gradient_.problem.q_heads + unit % shared_heads_ * steps_of_unit(unit);
}

/// Returns the order that units or steps must keep. Several units may add to the same gradient of a bias or lookup.
/// They may then run at the same time, one slightly behind the other, if there are no sequences and each step of a unit
/// has elements of its own: each block of rows must have its own, and each head too unless a unit has one head.
/// Otherwise all steps run one after another.
BackwardSteps::Order BackwardSteps::order_of_shared(std::int64_t items) const {
  bool shared = false, alike = !has_sequences();
  for_each_sum([&](bool own_heads, bool own_items, bool own_rows) {
    if ((own_heads || shared_heads_ == 1) && (own_items || items == 1)) return;
    shared = true;
    alike = alike && own_rows && (own_heads || heads_of_unit_ == 1);
  });
  return !shared ? Order::any : alike ? Order::units : Order::steps;
}

/// Returns how many keys a step stays behind the step before it, if there are enough keys for all threads. If a step
/// followed directly, it would wait at every block of keys and read cache lines that the other core has just written:
/// in half of the processes two threads then took 1.5 times as long, measured in bf16 at (1, 1, 4096, 64).
std::int64_t BackwardSteps::keys_apart(std::int64_t unit) const {
  constexpr std::int64_t blocks_of_thread = 4;
  const Keys keys = keys_of(partition_.groups[static_cast<std::size_t>(unit / shared_heads_)]);
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
            if (step.before != nullptr) step.before->wait(static_cast<std::uint32_t>(key + step.apart));
          },
      .wait_dense =
          [](void* at, std::int64_t key) {
            if (auto* before = static_cast<Context*>(at)->before_dense) before->wait(static_cast<std::uint32_t>(key));
          },
      .done = [](void* at,
                 std::int64_t key) { static_cast<Context*>(at)->mine->reach(static_cast<std::uint32_t>(key)); },
      .context = &context};
  if (!run(gradient_, here, step_order, scratch, totals))
    wave.to_recompute[here.unit].store(1, std::memory_order_relaxed);
  // the previous step may still work on keys that the rows of this step do not see
  if (context.before_dense != nullptr) context.before_dense->wait(runtime::Progress::whole);
  context.mine->reach(runtime::Progress::whole);
}

void BackwardSteps::recompute(const Wave& wave, std::int64_t unit, char* scratch) const {
  char* const totals = totals_of(wave, unit);
  if (steps_of_unit(unit) == 0) clear_unit(unit, totals);  // a unit without rows has no step that clears its keys
  finish_unit(unit, totals, keys_of(partition_.groups[static_cast<std::size_t>(unit / shared_heads_)]).begin);
  if (wave.to_recompute[unit].load(std::memory_order_relaxed) != 0) run_again(unit, scratch);
}

}  // namespace attn
