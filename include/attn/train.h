// include/attn/train.h: a language model learns a text: batches, steps, validation, checkpoints that survive anything.
#pragma once
#include <attn/model.h>
#include <attn/optim.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What this header declares is in attn::model, as model.h is.
namespace attn {

/// How to train. What is not given here is nanoGPT's: weights of rank 2 decay, others do not.
struct ATTN_API TrainOptions {
  ModelConfig model;  ///< its vocab_size is the tokenizer's
  /// f32, or bf16: weights, activations and gradients are bf16, the optimiser keeps the weights in f32
  Dtype dtype = Dtype::f32;
  std::int64_t steps = 2000;
  std::int64_t batch = 12;    ///< windows of `model.context` tokens a step
  std::uint64_t seed = 1337;  ///< of the weights, the batches and dropout
  double lr = 1e-3;           ///< at the end of the warm-up; a half cosine takes it down to a tenth
  /// steps, at most `steps`; none given: 100, or a tenth of fewer than a thousand
  std::optional<std::int64_t> warmup = std::nullopt;
  std::pair<double, double> betas = {0.9, 0.99};
  double weight_decay = 0.1;
  double clip = 1.0;              ///< largest norm of all gradients; 0: any
  std::int64_t eval_every = 250;  ///< steps between validations; the last step is always one
  /// How many steps of warm-up that is.
  std::int64_t warmup_steps() const;
  /// The learning rate of a step, the first is 1.
  double lr_of(std::int64_t step) const;
  /// ValueError, one line, for what is out of range.
  void check() const;
  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// What a step did.
struct TrainStep {
  std::int64_t step = 0;  ///< steps done, this one included
  double loss = 0;        ///< of its batch, before the update
  double lr = 0;
  double gradient_norm = 0;          ///< before clipping
  std::optional<double> validation;  ///< where a validation was due
  bool best = false;                 ///< it is the lowest so far: the moment for `save_model`
};

/// One training: a model, its optimiser, its data, and where it stands.
///  The first 90 % of the ids are trained on, the rest is for validation. A batch is `batch` windows that begin
/// anywhere, drawn by torch's randint as nanoGPT draws them; weights, batches and dropout come from the global
/// generator, seeded at the beginning. Gradients lie side by side in one buffer and are added in the order of the
/// parameters.
///
/// Moving        leaves one that holds nothing: what is asked of it is a ValueError.
/// Bits          the same for any number of threads; a training that was saved and resumed goes on as if it had never
///               stopped.
/// Thread safety one thread at a time; nothing else may draw from the global generator meanwhile.
class ATTN_API Trainer {
 public:
  /// Errors   ValueError for options out of range, an id that is not below model.vocab_size, and ids too few for one
  ///          window of training and two tokens of validation.
  Trainer(std::vector<std::int64_t> ids, const TrainOptions& options);

  /// Goes on where `save` into this folder left off. The ids must be those it was begun with.
  /// Errors   IoError; FormatError for a damaged file: its checksum covers every tensor and setting (files of before
  ///          have none); ValueError when the ids are others.
  static Trainer resume(const std::string& folder, std::vector<std::int64_t> ids);
  /// What a training in that folder was begun with, and how far it is: the step; none when there is no training in it.
  static std::optional<std::pair<TrainOptions, std::int64_t>> find(const std::string& folder);

  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  /// One step. ValueError when all are done, and when the loss, the gradients or the validation are no finite numbers.
  TrainStep advance();
  /// More steps than it was begun with, also after the last. From the next step on the learning rate is that of a
  /// training which was begun with `steps`: where the former was further down, it rises once. Saved and resumed it goes
  /// on to the bit; the bits of a training that was begun with `steps` it does not have. ValueError for fewer than
  /// there are.
  void extend(std::int64_t steps);
  /// Mean cross entropy of the validation part, all of it, in windows side by side; in nats a token.
  double validate() const;

  /// train_state.safetensors: weights, optimiser, generator, losses, options. The one file holds all that `resume`
  /// needs and is written whole or not at all, so whatever happens, at any moment, the last good checkpoint is there.
  /// The folder is made when it is not there. IoError.
  void save(const std::string& folder) const;
  /// config.json and model.safetensors, the weights of now (`LanguageModel::save`). Save the best ones before the state
  /// that knows of them.
  void save_model(const std::string& folder) const;

  /// Empty, or one line to show after `resume`: this bf16 training was saved under another numerics version, so its
  /// next steps have other bits.
  const std::string& notice() const;

  const TrainOptions& options() const;
  const LanguageModel& model() const;
  std::int64_t step() const;
  bool done() const { return step() >= options().steps; }
  /// The lowest validation loss and its step; infinite before the first.
  double best_loss() const;
  std::int64_t best_step() const;

  /// Step and loss, as f64 [n, 2]: of every batch, of every validation.
  Tensor losses() const;
  Tensor validations() const;

 private:
  struct State;
  explicit Trainer(std::unique_ptr<State> state);
  State& state() const;
  std::unique_ptr<State> state_;
};

/// Losses over the steps as a drawing that needs nothing else: batches (each and smoothed) and validation, light or
/// dark as the page.
ATTN_API std::string loss_curve_svg(const Trainer& trainer, const std::string& title);

}  // namespace attn
