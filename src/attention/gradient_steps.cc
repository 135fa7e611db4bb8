// src/attention/gradient_steps.cc: units, steps and waves of the backward pass; what happens to heads whose numbers are not finite.
#include "attention/gradient_steps.h"

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
using kernels::Turn;

std::size_t size_of_element(const AttentionProblem& p) { return p.element == Element::f64 ? 8 : p.element == Element::bf16 ? 2 : 4; }
std::size_t size_of_computed(const AttentionProblem& p) { return p.element == Element::f64 ? 8 : 4; }

/// Keys that one part takes of a bias gradient that is summed over rows.
constexpr std::int64_t keys_of_part = 512;

}  // namespace

GradientPlan plan_gradient(const AttentionProblem& problem) {
  static const kernels::GradientTarget* const target = kernels::gradient_target(runtime::target().c_str());
  if (problem.element == Element::bf16) {
    if (target == nullptr || target->bf16.step == nullptr || !runtime::cpu().avx512_bf16 || problem.score != kernels::ScoreOp::dot) return {"", nullptr};
    return {target->name, &target->bf16};
  }
  if (target != nullptr && problem.score == kernels::ScoreOp::dot)
    return {target->name, problem.element == Element::f64 ? &target->f64 : &target->f32};
  return {"ref", &kernels::gradient_reference()};
}

GradientSteps::GradientSteps(const AttentionGradient& gradient, const GradientPlan& plan, const Cut& cut, const DropoutStrips* dropout)
    : gradient_(gradient), kernel_(*plan.kernel), cut_(cut), dropout_(dropout != nullptr && dropout->active() ? dropout : nullptr) {
  const AttentionProblem& p = gradient.problem;
  shared_heads_ = p.q_heads == 0 ? 0 : std::gcd(p.k_heads, p.v_heads);
  if (shared_heads_ == 0) return;
  heads_of_unit_ = p.q_heads / shared_heads_;
  const auto aligned = [](std::size_t bytes) { return (bytes + 63) / 64 * 64; };
  kernel_bytes_ = aligned(std::max(kernel_.scratch_bytes(gradient), kernels::gradient_reference().scratch_bytes(gradient)));
  keep_bytes_ = dropout_ != nullptr || p.drops() ? aligned(static_cast<std::size_t>(kernels::query_block * p.k_rows)) : 0;
  if (kernel_.totals_bytes == nullptr) return;
  std::int64_t keys = 0;
  for (const GradientGroup& group : cut_.groups) keys = std::max(keys, keys_of(group).end - keys_of(group).begin);
  totals_bytes_ = aligned(kernel_.totals_bytes(gradient, keys));
}

// --- which rows ----------------------------------------------------------------------------------------------------------

GradientSteps::Step GradientSteps::rows_of_block(std::int64_t n, std::int64_t block, std::int64_t h) const {
  const GradientPiece* piece = &cut_.pieces[static_cast<std::size_t>(n)];
  while (block >= piece->first_block + piece->blocks()) ++piece;
  const AttentionProblem& p = gradient_.problem;
  const std::int64_t row = piece->rows_begin + (block - piece->first_block) * kernels::query_block;
  const std::int64_t end = std::min(piece->rows_end, piece->part != nullptr ? piece->part->rows_end : p.rows_end(piece->batch));
  return {0, 0, piece, {piece->batch, h, row, std::clamp<std::int64_t>(end - row, 0, kernels::query_block), block}};
}

std::int64_t GradientSteps::steps_of_unit(std::int64_t unit) const { return heads_of_unit_ * cut_.groups[static_cast<std::size_t>(unit / shared_heads_)].blocks; }

GradientSteps::Step GradientSteps::step_of_unit(std::int64_t unit, std::int64_t in_unit) const {
  const GradientGroup& group = cut_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  Step step = rows_of_block(group.first_piece, group.first_block + in_unit % group.blocks, unit % shared_heads_ * heads_of_unit_ + in_unit / group.blocks);
  step.unit = unit;
  step.in_unit = in_unit;
  return step;
}

GradientSteps::Step GradientSteps::step(std::int64_t index) const {
  const std::int64_t heads = gradient_.problem.q_heads;
  const auto after = std::upper_bound(cut_.groups.begin(), cut_.groups.end(), index / heads, [](std::int64_t n, const GradientGroup& g) { return n < g.first_block + g.blocks; });
  const std::int64_t in_group = index - after->first_block * heads, steps = heads_of_unit_ * after->blocks;
  return step_of_unit((after - cut_.groups.begin()) * shared_heads_ + in_group / steps, in_group % steps);
}

GradientSteps::Keys GradientSteps::keys_of(const GradientPiece& piece) const {
  if (piece.part == nullptr) return {0, gradient_.problem.k_rows};
  return {piece.part->keys_begin, piece.part->keys_end};
}

GradientSteps::Keys GradientSteps::keys_of(const GradientGroup& group) const {
  const auto pieces = cut_.pieces.subspan(static_cast<std::size_t>(group.first_piece), static_cast<std::size_t>(group.pieces));
  Keys all = keys_of(pieces[0]);
  for (const GradientPiece& piece : pieces) {
    const Keys keys = keys_of(piece);
    all = {std::min(all.begin, keys.begin), std::max(all.end, keys.end)};
  }
  return all;
}

// --- steps ---------------------------------------------------------------------------------------------------------------

AttentionGradient GradientSteps::with_totals(std::int64_t unit, char* totals) const {
  AttentionGradient g = gradient_;
  const Keys keys = keys_of(cut_.groups[static_cast<std::size_t>(unit / shared_heads_)]);
  g.totals = reinterpret_cast<float*>(totals);
  g.totals_begin = keys.begin;
  g.totals_end = keys.end;
  return g;
}

template <typename F>
void GradientSteps::with_rows(const Step& step, char* scratch, char* totals, F&& use) const {
  if (dropout_ == nullptr && !gradient_.problem.drops() && step.piece->part == nullptr && totals == nullptr) return use(gradient_);
  AttentionGradient g = totals != nullptr ? with_totals(step.unit, totals) : gradient_;
  g.problem.part = step.piece->part;
  if (step.piece->mask != nullptr) g.problem.mask.nodes = step.piece->mask;
  if (keep_bytes_ != 0) {
    auto* keep = reinterpret_cast<std::uint8_t*>(scratch + kernel_bytes_);
    if (g.problem.drops()) {
      draw_by_counter(g.problem, {step.rows.batch, step.rows.head, 1, step.rows.row, step.rows.rows}, keep);
    } else {
      dropout_->draw_rows(step.rows.batch * g.problem.q_heads + step.rows.head, step.rows.row, step.rows.rows, keep);
      g.problem.keep_scale = dropout_->scale(g.problem.element == Element::f64);
    }
    g.problem.drop_least = 0;
    g.problem.keep = keep;
    g.problem.keep_stride = g.problem.k_rows;
    g.problem.strip_begin = step.rows.row;
  }
  use(g);
}

bool GradientSteps::run(const kernels::GradientKernel& kernel, const Step& step, const Turn& turn, char* scratch, char* totals) const {
  bool good = true;
  if (step.rows.rows > 0) with_rows(step, scratch, totals, [&](const AttentionGradient& g) { good = kernel.step(g, step.rows, turn, scratch); });
  if (step.rows.rows == 0 && gradient_.parameters != nullptr) {
    const std::size_t bytes = size_of_computed(gradient_.problem) * static_cast<std::size_t>(kernels::parameter_count(gradient_.problem));
    std::memset(static_cast<char*>(gradient_.parameters) + static_cast<std::size_t>(step.rows.block * gradient_.problem.q_heads + step.rows.head) * bytes, 0, bytes);
  }
  return good;
}

void GradientSteps::clear_unit(std::int64_t unit, char* totals) const {
  const AttentionProblem& p = gradient_.problem;
  const GradientGroup& group = cut_.groups[static_cast<std::size_t>(unit / shared_heads_)];
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
        std::memset(static_cast<char*>(rows.to) + static_cast<std::size_t>(b * rows.stride[0] + h * rows.stride[1] + i * rows.stride[2]) * size, 0,
                    static_cast<std::size_t>(together ? (end - begin) * rows.columns : rows.columns) * size);
  };
  for (const GradientPiece& piece : cut_.pieces.subspan(static_cast<std::size_t>(group.first_piece), static_cast<std::size_t>(group.pieces))) {
    const kernels::Part* part = piece.part;
    const Keys keys = keys_of(piece);
    clear({gradient_.dq, gradient_.dq_stride, p.q_heads, p.dim}, piece.batch, part != nullptr ? part->rows_end : p.rows_end(piece.batch), piece.rows_end);
    if (totals != nullptr) continue;
    clear({gradient_.dk, gradient_.dk_stride, p.k_heads, p.dim}, piece.batch, keys.begin, keys.end);
    clear({gradient_.dv, gradient_.dv_stride, p.v_heads, p.value_dim}, piece.batch, keys.begin, keys.end);
  }
  if (totals != nullptr) std::memset(totals, 0, kernel_.totals_bytes(gradient_, keys_of(group).end - keys_of(group).begin));
}

void GradientSteps::finish_unit(std::int64_t unit, char* totals) const {
  if (totals == nullptr) return;
  const GradientGroup& group = cut_.groups[static_cast<std::size_t>(unit / shared_heads_)];
  kernel_.finish(with_totals(unit, totals), cut_.pieces[static_cast<std::size_t>(group.first_piece)].batch, unit % shared_heads_ * heads_of_unit_);
}

bool GradientSteps::run_unit(const kernels::GradientKernel& kernel, std::int64_t unit, char* scratch) const {
  char* const totals = totals_bytes_ != 0 ? scratch + kernel_bytes_ + keep_bytes_ : nullptr;
  clear_unit(unit, totals);
  bool good = true;
  for (std::int64_t n = 0; n < steps_of_unit(unit) && good; ++n) good = run(kernel, step_of_unit(unit, n), {}, scratch, totals);
  finish_unit(unit, totals);
  return good;
}

void GradientSteps::unit(std::int64_t unit, char* scratch) const {
  if (!run_unit(kernel_, unit, scratch)) run_unit(kernels::gradient_reference(), unit, scratch);
}

void GradientSteps::wave_step(Wave& wave, char* scratch) const {
  const std::int64_t index = wave.next.fetch_add(1, std::memory_order_relaxed);
  const Step here = step(index);
  struct Context {
    runtime::Progress* before;  // null: the unit's first step
    runtime::Progress* mine;
  } context{here.in_unit == 0 ? nullptr : wave.progress + index - 1, wave.progress + index};
  char* const totals = totals_of(wave, here.unit);
  if (context.before == nullptr) clear_unit(here.unit, totals);
  const Turn turn{.wait =
                      [](void* at, std::int64_t key) {
                        if (auto* before = static_cast<Context*>(at)->before) before->wait(static_cast<std::uint32_t>(key));
                      },
                  .done = [](void* at, std::int64_t key) { static_cast<Context*>(at)->mine->reach(static_cast<std::uint32_t>(key)); },
                  .context = &context};
  if (!run(kernel_, here, turn, scratch, totals)) wave.undecided[here.unit].store(1, std::memory_order_relaxed);
  if (context.before != nullptr) context.before->wait(runtime::Progress::whole);  // it may have been at keys that these rows do not see
  context.mine->reach(runtime::Progress::whole);
}

void GradientSteps::decide(const Wave& wave, std::int64_t unit, char* scratch) const {
  finish_unit(unit, totals_of(wave, unit));
  if (wave.undecided[unit].load(std::memory_order_relaxed) != 0) run_unit(kernels::gradient_reference(), unit, scratch);
}

// --- the gradient of a dense bias ------------------------------------------------------------------------------------------

/// By blocks of rows where each has its own; by keys where rows are summed over and keys not. Parts may cut rows elsewhere in each
/// batch item, so their rows stay together.
GradientSteps::DenseCut GradientSteps::cut_of(const kernels::DenseGradient& dense) const {
  const AttentionProblem& p = gradient_.problem;
  const bool whole_items = cut_.pieces[0].part == nullptr;
  DenseCut cut;
  if (dense.stride[2] != 0 && whole_items) cut.rows = cut_.pieces[0].blocks();
  if (dense.stride[2] == 0 && dense.stride[3] != 0) cut.keys = (p.k_rows + keys_of_part - 1) / keys_of_part;
  return cut;
}

std::int64_t GradientSteps::dense_parts(const kernels::DenseGradient& dense) const {
  if (steps() == 0) return 0;
  const DenseCut cut = cut_of(dense);
  return (dense.stride[0] != 0 ? gradient_.problem.batch : 1) * (dense.stride[1] != 0 ? gradient_.problem.q_heads : 1) * cut.rows * cut.keys;
}

void GradientSteps::dense_part(const kernels::DenseGradient& dense, std::int64_t part, char* scratch) const {
  const AttentionProblem& p = gradient_.problem;
  const DenseCut cut = cut_of(dense);
  const std::int64_t own = part % (cut.rows * cut.keys), rest = part / (cut.rows * cut.keys), heads = dense.stride[1] != 0 ? p.q_heads : 1;
  const std::int64_t h0 = dense.stride[1] != 0 ? rest % heads : 0, h_end = dense.stride[1] != 0 ? h0 + 1 : p.q_heads;
  const std::int64_t key_begin = cut.keys > 1 ? own * keys_of_part : 0, key_end = cut.keys > 1 ? std::min(p.k_rows, key_begin + keys_of_part) : p.k_rows;
  const auto add = [&](std::size_t piece, std::int64_t h, std::int64_t block) {
    const Step step = rows_of_block(static_cast<std::int64_t>(piece), block, h);
    if (step.rows.rows > 0)
      with_rows(step, scratch, nullptr, [&](const AttentionGradient& g) { kernel_.dense(g, step.rows, dense, key_begin, key_end, scratch); });
  };
  for (std::size_t begin = 0, end; begin < cut_.pieces.size(); begin = end) {  // the pieces of a batch item, head after head
    const std::int64_t b = cut_.pieces[begin].batch;
    for (end = begin + 1; end < cut_.pieces.size() && cut_.pieces[end].batch == b; ++end) {
    }
    if (dense.stride[0] != 0 && b != rest / heads) continue;
    for (std::int64_t h = h0; h < h_end; ++h)
      for (std::size_t n = begin; n < end; ++n) {
        const GradientPiece& piece = cut_.pieces[n];
        for (std::int64_t block = cut.rows > 1 ? own : 0; block < (cut.rows > 1 ? own + 1 : piece.blocks()); ++block) add(n, h, piece.first_block + block);
      }
  }
}

}  // namespace attn
