// src/model/train.cc: runs the steps of a training: draws a batch, computes gradients, updates the weights, and
// validates when that is due.
#include <attn/autograd.h>
#include <attn/error.h>
#include <attn/train.h>

#include "model/train_internal.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

/// Groups the parameters as nanoGPT does: matrices and tables get weight decay, biases and norms do not.
std::vector<optim::Group<optim::AdamWOptions>> groups_of(const std::vector<Tensor>& parameters,
                                                         const TrainOptions& options) {
  std::vector<Tensor> matrices, vectors;
  for (const Tensor& x : parameters) (x.dim() >= 2 ? matrices : vectors).push_back(x);
  const optim::AdamWOptions adamw{.lr = options.lr, .betas = options.betas, .weight_decay = options.weight_decay};
  optim::AdamWOptions without_decay = adamw;
  without_decay.weight_decay = 0;
  std::vector<optim::Group<optim::AdamWOptions>> groups;
  if (!matrices.empty()) groups.push_back({matrices, adamw});
  if (!vectors.empty()) groups.push_back({vectors, without_decay});
  return groups;
}

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

}  // namespace

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

double TrainOptions::lr_of(std::int64_t step) const {
  return optim::Schedule{.peak = lr, .last = lr / 10, .warmup = warmup_steps(), .steps = steps}(step - 1);
}

Trainer::State::State(std::unique_ptr<TrainTask> given_task, const TrainOptions& given)
    : options(given), task(std::move(given_task)), parameters(task->module().parameters()), gradients(parameters),
      adamw(groups_of(parameters, given)) {}

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
  s.gradients.zero();
  const Tensor loss = s.task->draw_loss();
  loss.backward();
  report.loss = loss.item();
  report.gradient_norm =
      optim::clip_grad_norm_(s.parameters, o.clip > 0 ? o.clip : std::numeric_limits<double>::infinity());
  if (!std::isfinite(report.loss) || !std::isfinite(report.gradient_norm))
    diverged(report.step, runtime::format("loss {} and gradients of norm {}", report.loss, report.gradient_norm));
  for (auto& group : s.adamw.groups) group.options.lr = report.lr;
  s.adamw.step();

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
  double sum = 0;
  std::int64_t count = 0;
  s.task->validate([&](double loss, std::int64_t targets) {
    sum += loss * static_cast<double>(targets);
    count += targets;
  });
  model.train(training);
  return sum / static_cast<double>(count);
}

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
