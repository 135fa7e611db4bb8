// src/attention/schedule/partial_backward.cc: the steps of the backward pass of some keys or some rows of a call.
#include "attention/schedule/partial_backward.h"

#include "attention/score/dropout.h"
#include "kernels/attention/mask/mask_program.h"
#include "kernels/attention/mask/masked_values.h"
#include "runtime/alignment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

namespace attn {
namespace {

using kernels::AttentionGradient;
using kernels::AttentionProblem;
using kernels::GradientKernel;
using kernels::Task;
using runtime::aligned;

constexpr std::int64_t block = CallPart::block;
static_assert(kernels::query_block == block && kernels::kv_block == block);

std::size_t step_bytes(const AttentionGradient& g, const GradientKernel& kernel) {
  const std::size_t steps = aligned(std::max(kernel.scratch_bytes(g), kernels::gradient_reference().scratch_bytes(g)));
  return steps + (g.problem.drop_least != 0 ? aligned(static_cast<std::size_t>(block * g.problem.k_rows)) : 0);
}

/// Runs one step by the reference code, which reads dropout as bytes at the end of the scratch.
bool reference_step(const AttentionGradient& g, Task rows, std::size_t bytes, void* scratch) {
  if (g.problem.drop_least != 0) {
    const std::size_t kept = aligned(static_cast<std::size_t>(block * g.problem.k_rows));
    auto* keep = static_cast<std::uint8_t*>(scratch) + bytes - kept;
    draw_by_counter(g.problem, rows, keep);
    rows.keep = keep, rows.keep_stride = g.problem.k_rows, rows.first_row = rows.row;
  }
  return kernels::gradient_reference().step(g, rows, {}, scratch);
}

bool run_step(const GradientKernel& kernel, const AttentionGradient& g, const Task& rows, std::size_t bytes,
              void* scratch) {
  if (&kernel == &kernels::gradient_reference()) return reference_step(g, rows, bytes, scratch);
  return kernel.step(g, rows, {}, scratch);
}

std::int64_t blocks_of(std::int64_t rows) { return (rows + block - 1) / block; }

template <typename T>
bool finite_rows(const void* data, std::int64_t start, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  const T* at = static_cast<const T*>(data) + start;
  for (std::int64_t i = 0; i < rows; ++i, at += stride) {
    T sum = 0;  // 0, or NaN if some number is not finite
    for (std::int64_t c = 0; c < columns; ++c) sum += at[c] - at[c];
    if (sum != 0) return false;
  }
  return true;
}

/// Returns whether the step's rows of Q and dO are finite. If not, the product with the weight 0 of a masked pair would
/// be NaN. (What is not finite in K, V or delta reaches only pairs that are seen.)
template <typename T>
bool finite_step(const AttentionGradient& g, const Task& rows) {
  const auto start = [&](const std::int64_t(&s)[3]) { return rows.batch * s[0] + rows.head * s[1] + rows.row * s[2]; };
  const AttentionProblem& p = g.problem;
  return finite_rows<T>(p.q, start(p.q_stride), p.q_stride[2], rows.rows, p.dim) &&
         finite_rows<T>(g.dout, start(g.dout_stride), g.dout_stride[2], rows.rows, p.value_dim);
}

}  // namespace

// --- dQ of rows -----------------------------------------------------------------------------------------------------

PartialRows::PartialRows(const AttentionGradient& gradient, const BackwardPlan& plan, const CallPart& part)
    : gradient_(gradient), kernel_(*plan.kernel), part_(part), bytes_(step_bytes(gradient, *plan.kernel)) {}

std::int64_t PartialRows::blocks() const { return blocks_of(gradient_.problem.q_rows); }

void PartialRows::run(std::int64_t task, void* scratch) const {
  const std::int64_t n = task % blocks(), head = task / blocks(), heads = gradient_.problem.q_heads;
  const AttentionGradient& g = gradient_;
  const AttentionProblem& p = g.problem;
  Task rows{.batch = head / heads, .head = head % heads, .row = n * block, .block = head / heads * blocks() + n};
  const kernels::Sequence sequence = part_.sequence(p, rows.batch, rows.row);
  const std::int64_t all = std::min(p.q_rows - rows.row, block);
  rows.rows = std::clamp<std::int64_t>(sequence.rows_end - rows.row, 0, all);
  rows.sequence = &sequence;
  const std::int64_t begin = sequence.keys_begin, end = sequence.keys_end;
  const bool empty =
      rows.rows == 0 || begin >= end ||
      kernels::classify(p, rows, {rows.row, rows.row + rows.rows, begin, end, rows.head}) == kernels::Visibility::empty;
  if (empty && !g.rows.begins && !g.rows.ends) return;
  if (rows.rows > 0 && !run_step(kernel_, g, rows, bytes_, scratch)) reference_step(g, rows, bytes_, scratch);
  const auto size = static_cast<std::size_t>(kernels::bytes_of(p.element));
  if (g.rows.ends)  // padding
    for (std::int64_t i = rows.row + rows.rows; i < rows.row + all; ++i)
      std::memset(static_cast<char*>(g.dq) + static_cast<std::size_t>(rows.batch * g.dq_stride[0] +
                                                                      rows.head * g.dq_stride[1] + i * g.dq_stride[2]) *
                                                 size,
                  0, static_cast<std::size_t>(p.dim) * size);
  if (rows.rows == 0 && g.parameters != nullptr) {
    const std::size_t sums =
        (p.element == kernels::Element::f64 ? 8 : 4) * static_cast<std::size_t>(kernels::parameter_count(p));
    std::memset(static_cast<char*>(g.parameters) + static_cast<std::size_t>(rows.block * heads + rows.head) * sums, 0,
                sums);
  }
}

// --- dK and dV of keys ----------------------------------------------------------------------------------------------

std::int64_t PartialKeys::units(const AttentionProblem& problem) {
  return problem.q_heads == 0 ? 0 : std::gcd(problem.k_heads, problem.v_heads);
}

std::size_t PartialKeys::totals_bytes(const AttentionGradient& gradient, const BackwardPlan& plan) {
  if (plan.kernel->totals_bytes == nullptr) return 0;
  return aligned(plan.kernel->totals_bytes(gradient, gradient.problem.k_rows));
}

PartialKeys::PartialKeys(const AttentionGradient& gradient, const BackwardPlan& plan, const CallPart& part,
                         const Chunk& chunk, int threads)
    : gradient_(gradient), kernel_(*plan.kernel), part_(part), chunk_(chunk), units_(units(gradient.problem)),
      heads_of_unit_(units_ == 0 ? 0 : gradient.problem.q_heads / units_), bytes_(step_bytes(gradient, *plan.kernel)) {
  const std::int64_t wanted = threads == 1 ? 1 : 4 * threads, together = gradient.problem.batch * units_;
  ranges_ = together == 0 ? 0
                          : std::clamp<std::int64_t>((wanted + together - 1) / together, 1,
                                                     std::max<std::int64_t>(1, blocks_of(gradient.problem.k_rows)));
}

void PartialKeys::clear(const AttentionGradient& g, std::int64_t b, std::int64_t unit, std::int64_t begin,
                        std::int64_t end) const {
  const AttentionProblem& p = g.problem;
  const std::int64_t first = unit * heads_of_unit_;
  if (kernel_.totals_bytes != nullptr) {
    for (std::int64_t h = first; h < first + heads_of_unit_; ++h) kernel_.clear_keys(g, b, h, begin, end);
    return;
  }
  const auto size = static_cast<std::size_t>(kernels::bytes_of(p.element));
  const auto rows = [&](void* to, const std::int64_t(&stride)[3], std::int64_t heads, std::int64_t columns) {
    if (to == nullptr) return;
    const std::int64_t share = p.q_heads / heads;
    for (std::int64_t h = first / share; h < (first + heads_of_unit_) / share; ++h)
      for (std::int64_t j = begin; j < end; ++j)
        std::memset(
            static_cast<char*>(to) + static_cast<std::size_t>(b * stride[0] + h * stride[1] + j * stride[2]) * size, 0,
            static_cast<std::size_t>(columns) * size);
  };
  rows(g.dk, g.dk_stride, p.k_heads, p.dim);
  rows(g.dv, g.dv_stride, p.v_heads, p.value_dim);
}

/// Rounds the sums, or makes every NaN the canonical one.
void PartialKeys::finish(const AttentionGradient& g, std::int64_t b, std::int64_t unit, std::int64_t begin,
                         std::int64_t end) const {
  const AttentionProblem& p = g.problem;
  const std::int64_t first = unit * heads_of_unit_;
  if (kernel_.finish != nullptr) return kernel_.finish(g, b, first, begin, end);
  const auto rows = [&]<typename T>(T* to, const std::int64_t(&stride)[3], std::int64_t heads, std::int64_t columns) {
    if (to == nullptr) return;
    const std::int64_t share = p.q_heads / heads;
    for (std::int64_t h = first / share; h < (first + heads_of_unit_) / share; ++h)
      for (std::int64_t j = begin; j < end; ++j) {
        T* const row = to + b * stride[0] + h * stride[1] + j * stride[2];
        for (std::int64_t c = 0; c < columns; ++c) row[c] = kernels::canonical(row[c]);
      }
  };
  if (p.element == kernels::Element::f64) {
    rows(static_cast<double*>(g.dk), g.dk_stride, p.k_heads, p.dim);
    rows(static_cast<double*>(g.dv), g.dv_stride, p.v_heads, p.value_dim);
  } else {
    rows(static_cast<float*>(g.dk), g.dk_stride, p.k_heads, p.dim);
    rows(static_cast<float*>(g.dv), g.dv_stride, p.v_heads, p.value_dim);
  }
}

void PartialKeys::head(const AttentionGradient& g, kernels::Sequence& keys, std::int64_t b, std::int64_t h,
                       void* scratch) const {
  const AttentionProblem& p = g.problem;
  for (std::int64_t row = 0; row < p.q_rows; row += block) {
    const kernels::Sequence at = part_.sequence(gradient_.problem, b, row);
    keys.rows_end = at.rows_end;
    keys.row_offset[0] = at.row_offset[0], keys.row_offset[1] = at.row_offset[1];
    const Task rows{.batch = b, .head = h, .row = row, .rows = std::min(at.rows_end - row, block), .sequence = &keys};
    if (rows.rows <= 0 || kernels::classify(p, rows, {row, row + rows.rows, keys.keys_begin, keys.keys_end, h}) ==
                              kernels::Visibility::empty)
      continue;
    const bool finite =
        kernel_.totals_bytes != nullptr ||
        (p.element == kernels::Element::f64 ? finite_step<double>(g, rows) : finite_step<float>(g, rows));
    if (finite) run_step(kernel_, g, rows, bytes_, scratch);
    else reference_step(g, rows, bytes_, scratch);
  }
}

void PartialKeys::run(std::int64_t task, void* scratch) const {
  const std::int64_t range = task % ranges_, unit = task / ranges_ % units_, b = task / ranges_ / units_;
  const std::int64_t blocks = blocks_of(gradient_.problem.k_rows);
  const std::int64_t begin = blocks * range / ranges_ * block,
                     end = std::min(gradient_.problem.k_rows, blocks * (range + 1) / ranges_ * block);
  AttentionGradient g = gradient_;
  g.dq = nullptr;
  g.rows = {.dq = nullptr, .delta = gradient_.rows.delta, .begins = false, .ends = true};
  g.totals_begin = 0, g.totals_end = g.problem.k_rows;
  if (kernel_.totals_bytes != nullptr && chunk_.totals != nullptr)
    g.totals = chunk_.totals + static_cast<std::size_t>(b * units_ + unit) *
                                   (aligned(kernel_.totals_bytes(g, g.problem.k_rows)) / sizeof(float));
  if (chunk_.begins) clear(g, b, unit, begin, end);
  // the keys of the range that exist
  kernels::Sequence keys = part_.sequence(gradient_.problem, b, 0);
  const std::int64_t origin = keys.keys_begin, last = std::min(keys.keys_end, end);
  keys.keys_begin = std::max(origin, begin);
  keys.keys_end = last;
  keys.first_position += (keys.keys_begin - origin) / block * part_.key_block_step;
  if (keys.keys_begin < keys.keys_end)
    for (std::int64_t n = 0; n < heads_of_unit_; ++n) {
      if (chunk_.head_of_unit >= 0 && n != chunk_.head_of_unit) continue;
      AttentionGradient of_head = g;
      const std::int64_t h = unit * heads_of_unit_ + n;
      if (chunk_.place) chunk_.place(of_head, b, h);
      head(of_head, keys, b, h, scratch);
    }
  if (chunk_.ends) finish(g, b, unit, begin, end);
}

}  // namespace attn
