// src/model/train.cc: runs the steps of a training: draws a batch, computes gradients, updates the weights, and
// validates when that is due.
#include <attn/autograd.h>
#include <attn/error.h>
#include <attn/train.h>

#include "io/checksum.h"
#include "model/train_internal.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace attn {
namespace {

[[noreturn]] void diverged(std::int64_t step, const std::string& what) {
  throw ValueError(
      runtime::format("Trainer: step {} has {}: the training has diverged; a smaller lr may help", step, what));
}

Tensor as_tensor(const std::vector<LossPoint>& points) {
  Tensor result = empty({static_cast<std::int64_t>(points.size()), 2}, Dtype::f64);
  auto* value = result.data<double>();
  for (const LossPoint& point : points) {
    *value++ = static_cast<double>(point.step);
    *value++ = point.loss;
  }
  return result;
}

/// Computes the gradients of a step without ranks, and clips them. Returns the loss and the norm before that.
std::pair<double, double> gradients_alone(const Trainer::State& s, std::int64_t step,
                                          const std::vector<std::int64_t>& batch) {
  const std::int64_t parts = s.options.part_count();
  double loss = 0;
  if (parts == 1) {  // one graph, whose dropout draws from the global generator
    s.gradients.zero();
    const Tensor mean = s.task->loss(batch);
    mean.backward();
    loss = mean.item();
  } else {
    PartGradients gradients(s.source(), step, batch);
    const Tensor sum = gradients.sum({0, parts}, /*in_buffer=*/true);
    if (const Tensor& buffer = s.gradients.buffers().front(); sum.data() != buffer.data()) buffer.copy_(sum);
    loss = mean_loss(gradients.losses());
  }
  const double clip = s.options.clip;
  return {loss, optim::clip_grad_norm_(s.parameters, clip > 0 ? clip : std::numeric_limits<double>::infinity())};
}

}  // namespace

std::vector<optim::Group<optim::AdamWOptions>> groups_of(const std::vector<Tensor>& parameters,
                                                         const std::vector<Tensor>& shares,
                                                         const TrainOptions& options) {
  std::vector<Tensor> matrices, vectors;
  for (std::size_t i = 0; i < parameters.size(); ++i)
    (parameters[i].dim() >= 2 ? matrices : vectors).push_back(shares[i]);
  const optim::AdamWOptions adamw{.lr = options.lr, .betas = options.betas, .weight_decay = options.weight_decay};
  optim::AdamWOptions without_decay = adamw;
  without_decay.weight_decay = 0;
  std::vector<optim::Group<optim::AdamWOptions>> groups;
  if (!matrices.empty()) groups.push_back({matrices, adamw});
  if (!vectors.empty()) groups.push_back({vectors, without_decay});
  return groups;
}

void TrainOptions::check() const {
  const auto at_least = [](const char* name, double value, double least) {
    if (!(value >= least) || std::isinf(value))
      throw ValueError(runtime::format("Trainer: {} is {}; it must be {} or more", name, value, least));
  };
  at_least("steps", static_cast<double>(steps), 1);
  // the same limit as a model's sizes, so that products do not overflow
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  if (batch < 1 || batch > most)
    throw ValueError(runtime::format("Trainer: batch is {}; it must be from 1 to {}", batch, most));
  const bool in_range = parts >= 0 && parts <= batch;
  if (!in_range && encoder_decoder)
    throw ValueError(runtime::format(
        "Trainer: parts is {}; it must be from 1 to the {} pairs of a batch, or 0, which is 1", parts, batch));
  if (!in_range)
    throw ValueError(runtime::format(
        "Trainer: parts is {}; it must be from 1 to the {} windows of a batch, or 0 to choose by its tokens", parts,
        batch));
  at_least("eval_every", static_cast<double>(eval_every), 1);
  at_least("warmup", static_cast<double>(warmup_steps()), 0);
  at_least("lr", lr, 0);
  at_least("weight_decay", weight_decay, 0);
  at_least("clip", clip, 0);
  if (warmup && *warmup > steps)
    throw ValueError(runtime::format("Trainer: warmup is {} of {} steps; it must be from 0 to that", *warmup, steps));
  if (dtype != Dtype::f32 && dtype != Dtype::bf16)
    throw DtypeError(runtime::format("Trainer: dtype is {}; it must be f32 or bf16", name_of(dtype)));
  if (!(label_smoothing >= 0 && label_smoothing < 1))
    throw ValueError(runtime::format("Trainer: label_smoothing is {}; it must be from 0 to below 1", label_smoothing));
  if (encoder_decoder) return;  // the task checks it
  if (label_smoothing > 0) throw ValueError("Trainer: label_smoothing is for pairs");
  const auto& layers = model.per_layer;
  if (model.rotary_scaling ||
      std::any_of(layers.begin(), layers.end(), [](const auto& one) { return one.rotary_scaling.has_value(); }))
    throw ValueError("Trainer: rotary_scaling stretches a trained model; a training begins without");
  model.check();
}

std::int64_t TrainOptions::warmup_steps() const { return warmup.value_or(std::min<std::int64_t>(100, steps / 10)); }

std::int64_t TrainOptions::part_count() const {
  // a thousand tokens keep the products of a part as fast as those of a whole batch
  constexpr std::int64_t tokens = 1024;
  if (parts != 0) return parts;
  return encoder_decoder ? 1 : std::clamp<std::int64_t>(batch * model.context / tokens, 1, batch);
}

double TrainOptions::lr_of(std::int64_t step) const {
  return optim::Schedule{.peak = lr, .last = lr / 10, .warmup = warmup_steps(), .steps = steps}(step - 1);
}

Trainer::State::State(std::unique_ptr<TrainTask> given_task, const TrainOptions& given)
    : options(given), task(std::move(given_task)), parameters(task->module().parameters()), gradients(parameters),
      adamw(groups_of(parameters, parameters, given)) {}

Trainer::Trainer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Trainer::Trainer(Trainer&&) noexcept = default;
Trainer& Trainer::operator=(Trainer&&) noexcept = default;
Trainer::~Trainer() = default;

Trainer::State& Trainer::state() const {
  if (!state_) throw ValueError("Trainer: it is empty (moved from)");
  return *state_;
}

TrainStep Trainer::advance() {
  State& s = state();
  const TrainOptions& o = s.options;
  if (done()) throw ValueError(runtime::format("Trainer: all {} steps are done", o.steps));
  TrainStep report;
  report.step = s.step + 1;
  report.lr = o.lr_of(report.step);

  s.task->module().train();
  const std::vector<std::int64_t> batch = s.task->draw();
  std::tie(report.loss, report.gradient_norm) =
      s.ranks ? s.ranks->gradients(report.step, batch) : gradients_alone(s, report.step, batch);
  if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm))
    diverged(report.step, runtime::format("loss {} and gradients of norm {}", report.loss, report.gradient_norm));
  if (s.ranks) {
    s.ranks->update(report.lr);
  } else {
    for (auto& group : s.adamw.groups) group.options.lr = report.lr;
    s.adamw.step();
  }

  s.step = report.step;
  s.losses.push_back({s.step, report.loss});
  if (s.step % o.eval_every == 0 || done()) {
    report.validation = validate();
    if (!std::isfinite(*report.validation)) diverged(s.step, runtime::format("validation loss {}", *report.validation));
    s.validations.push_back({s.step, *report.validation});
    report.best = *report.validation < s.best;
    if (report.best) s.best = *report.validation, s.best_step = s.step;
  }
  return report;
}

void Trainer::extend(std::int64_t steps) {
  State& s = state();
  TrainOptions longer = s.options;
  longer.steps = steps;
  if (steps < s.options.steps)
    throw ValueError(runtime::format("Trainer: extend is given {} steps; it must be at least the {} there are", steps,
                                     s.options.steps));
  longer.check();
  s.options = std::move(longer);
}

double Trainer::validate() const {
  const State& s = state();
  const NoGrad guard;
  const nn::Module& model = s.task->module();
  const bool training = model.is_training();
  model.eval();
  const ValidationBatches batches = s.task->validation();
  const auto number = static_cast<std::int64_t>(batches.targets.size());
  std::vector<double> losses;
  if (s.ranks) losses = s.ranks->validation(number, batches.loss);
  else
    for (std::int64_t i = 0; i < number; ++i) losses.push_back(batches.loss(i));
  double sum = 0;
  std::int64_t count = 0;
  for (std::size_t i = 0; i < losses.size(); ++i) {
    sum += losses[i] * static_cast<double>(batches.targets[i]);
    count += batches.targets[i];
  }
  model.train(training);
  return sum / static_cast<double>(count);
}

std::string digest_of(const std::vector<Tensor>& parameters) {
  std::uint64_t digest = 0;
  for (const Tensor& x : parameters) {
    const Tensor values = x.detach().contiguous();
    digest = io::xxh64({static_cast<const std::byte*>(values.data()),
                        static_cast<std::size_t>(values.numel()) * size_of(values.dtype())},
                       digest);
  }
  return runtime::format("{:016x}", digest);
}

std::string Trainer::weights_digest() const { return digest_of(state().parameters); }
double Trainer::exchange_seconds() const { return state().ranks ? state().ranks->exchange_seconds() : 0; }
double Trainer::hidden_seconds() const { return state().ranks ? state().ranks->hidden_seconds() : 0; }
const std::string& Trainer::notice() const { return state().notice; }
const TrainOptions& Trainer::options() const { return state().options; }
double Trainer::tokens_a_step() const { return state().task->tokens_a_step(); }
std::int64_t Trainer::parameters() const {
  std::int64_t count = 0;
  for (const Tensor& x : state().parameters) count += x.numel();
  return count;
}
std::int64_t Trainer::step() const { return state().step; }
double Trainer::best_loss() const { return state().best; }
std::int64_t Trainer::best_step() const { return state().best_step; }
Tensor Trainer::losses() const { return as_tensor(state().losses); }
Tensor Trainer::validations() const { return as_tensor(state().validations); }

}  // namespace attn
