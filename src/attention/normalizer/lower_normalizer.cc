// src/attention/normalizer/lower_normalizer.cc: lowers a normalizer and an expression of the weight, and computes tiles
// of rows with them.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/normalizer/lowered_normalizer.h"
#include "runtime/cpu.h"
#include "runtime/once.h"
#include "tensor/build.h"

#include <algorithm>

namespace attn {
namespace {

using kernels::AttentionProblem;
using kernels::NormalizerOp;

NormalizerOp op_of(Normalizer::Kind kind) {
  switch (kind) {
    case Normalizer::Kind::sigmoid: return NormalizerOp::sigmoid;
    case Normalizer::Kind::sparsemax: return NormalizerOp::sparsemax;
    case Normalizer::Kind::entmax15: return NormalizerOp::entmax15;
    case Normalizer::Kind::relu_squared: return NormalizerOp::relu_squared;
    default: return NormalizerOp::softmax;
  }
}

/// Returns the number of keys of each batch item or packed sequence, at least 1.
std::vector<double> keys_of_items(const ScoreShape& shape, const AttentionProblem& p) {
  std::vector<double> keys;
  for (std::int64_t item = 0; item < shape.items(); ++item) {
    const auto at = static_cast<std::size_t>(item);
    const std::int64_t count = shape.packed ? shape.packed->k[at + 1] - shape.packed->k[at]
                                            : p.keys_end({.batch = item}) - p.keys_begin({.batch = item});
    keys.push_back(static_cast<double>(std::max<std::int64_t>(count, 1)));
  }
  return keys;
}

/// Returns sigmoid's bias or relu_squared's scale of each item.
std::vector<double> numbers_of_items(const Normalizer& normalizer, const ScoreShape& shape, const AttentionProblem& p) {
  const auto items = static_cast<std::size_t>(shape.items());
  if (normalizer.number) return std::vector<double>(items, *normalizer.number);
  std::vector<double> numbers = keys_of_items(shape, p);
  if (normalizer.kind == Normalizer::Kind::relu_squared) {
    for (double& x : numbers) x = 1 / x;
    return numbers;
  }
  if (items == 0) return numbers;
  const NoGrad no_grad;
  const Tensor logs =
      log(tensor<double>(numbers, {shape.items()}));  // the library's own, with the same bits everywhere
  for (std::size_t n = 0; n < items; ++n) numbers[n] = 0 - logs.data<double>()[n];
  return numbers;
}

}  // namespace

std::shared_ptr<const LoweredNormalizer> lower_normalizer(const AttentionOptions& options, const ScoreShape& shape,
                                                          const Lengths& lengths, Dtype computed,
                                                          const AttentionProblem& problem) {
  const auto result = std::make_shared<LoweredNormalizer>();
  kernels::Normalization& to = result->described;
  to.op = op_of(options.normalizer.kind);
  if (!to.is_coupled()) {
    result->of_item = numbers_of_items(options.normalizer, shape, problem);
    to.of_item = result->of_item.data();
  }
  bool fits_f32 = problem.score_mod.fits_f32;
  if (!options.weight_mod.empty()) {
    ScoreShape named = shape;
    named.expression = "weight_mod";
    result->weight_expression = options.weight_mod;
    LoweredScore lowered = lower_score(options.weight_mod, named, lengths, computed);
    result->weight_mod = std::move(lowered.one_head.program.empty() ? lowered.any_rows : lowered.one_head);
    to.weight_mod = result->weight_mod.program;
    fits_f32 = fits_f32 && to.weight_mod.fits_f32;
  }
  to.reference = &kernels::normalizer_reference(kernels::reference());
  constinit static runtime::Once<const kernels::NormalizerTarget*> here;
  const kernels::NormalizerTarget* const target =
      here.get([] { return kernels::normalizer_target(runtime::target().c_str()); });
  if (target != nullptr && (fits_f32 || computed == Dtype::f64)) to.kernel = &target->of(problem);
  return result;
}

void lower_weight_gradient(const LoweredNormalizer& lowered, const std::vector<Tensor>& gradients,
                           const ScoreShape& shape, const Lengths& lengths, Dtype computed, LoweredWeightGradient& to) {
  ScoreShape named = shape;
  named.expression = "weight_mod";
  to.expression =
      lower_score_gradient(lowered.weight_expression, lowered.weight_mod, gradients, named, lengths, computed);
  // Sums over a step (ScoreLine::step) are those of score_mod; here each row has its own sum.
  kernels::ScoreGradient& gradient = to.expression.gradient;
  if (gradient.step_count != 0 && gradient.elements != kernels::ElementOrder::none)
    gradient.elements = kernels::ElementOrder::after_all;
  for (kernels::ScoreSlope& slope : to.expression.slopes)
    if (slope.line == kernels::ScoreLine::step) slope.line = kernels::ScoreLine::row;
  gradient.step_count = 0;
  to.described = lowered.described;
  to.described.weight_gradient = &to.expression.gradient;
}

std::size_t normalizer_scratch_bytes(const AttentionProblem& problem) {
  const kernels::Normalization& stage = *problem.normalization;
  const std::size_t reference = stage.reference->scratch_bytes(problem);
  return stage.kernel == nullptr ? reference : std::max(reference, stage.kernel->scratch_bytes(problem));
}

namespace {

/// Adds the weights of a tile to those of earlier heads. It comes last, because rows may be computed twice.
template <typename T>
void add_to_average(const AttentionProblem& p, const kernels::Task& tile, std::int64_t rows) {
  const std::int64_t keys = p.keys_end(tile) - p.keys_begin(tile);
  const T* const from = static_cast<const T*>(tile.lane_weights);
  T* const to = static_cast<T*>(tile.lane_average);
  for (std::int64_t j = 0; j < keys; ++j)
    for (std::int64_t i = 0; i < rows; ++i) to[j * tile.lane_rows + i] += from[j * tile.lane_rows + i];
}

}  // namespace

void normalizer_rows(const AttentionProblem& problem, const kernels::Task& tile, void* scratch) {
  const kernels::Normalization& stage = *problem.normalization;
  const std::int64_t rows = std::clamp<std::int64_t>(problem.rows_end(tile) - tile.row, 0, tile.rows);
  for (std::int64_t head = tile.head; head < tile.head + tile.heads; ++head) {
    kernels::Task part = tile.with_rows(head, tile.row, rows);
    if (stage.kernel == nullptr || (rows > 0 && !stage.kernel->rows(problem, part, scratch)))
      stage.reference->rows(problem, part, scratch);
    if (tile.lane_average != nullptr)
      problem.element == kernels::Element::f64 ? add_to_average<double>(problem, part, rows)
                                               : add_to_average<float>(problem, part, rows);
    part.row += rows;
    part.rows = tile.rows - rows;
    part.lane_weights = nullptr;  // the weights of padding rows are not read
    if (part.rows > 0) stage.reference->rows(problem, part, scratch);
  }
}

}  // namespace attn
