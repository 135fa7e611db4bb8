// include/attn/train.h: trains a language model on a text, or an encoder-decoder on pairs of texts: batches, steps,
// validation, and checkpoints that survive a crash.
#pragma once
#include <attn/encoder_decoder.h>
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

// The declarations of this header are in the library attn::model, as those of model.h.
namespace attn {

class Ranks;

/// A pair of texts: what the encoder reads and what the decoder should generate.
struct TextPair {
  std::string source, target;
};

/// The ids of a pair, each text with the token that ends it.
struct IdPair {
  std::vector<std::int64_t> source, target;
};

/// Builds one vocabulary of both texts of all pairs (`Tokenizer::train`) and appends two special tokens: </s>, which
/// ends a text (`encode(text, true)` adds it), and <pad>, the last id, after which the decoder begins.
/// Errors   those of Tokenizer::train
ATTN_API Tokenizer train_pair_tokenizer(const std::vector<TextPair>& pairs, Tokenizer::Kind kind,
                                        std::int64_t vocab_size = 0);
/// Encodes pairs with such a tokenizer. ValueError, with the pair's number, for a text that it cannot encode.
ATTN_API std::vector<IdPair> encode_pairs(const Tokenizer& tokenizer, const std::vector<TextPair>& pairs);

/// Options of a training. Choices that are not options are nanoGPT's: weights of rank 2 decay, others do not.
struct ATTN_API TrainOptions {
  ModelConfig model;  ///< must have the tokenizer's vocab_size; not used with `encoder_decoder`
  /// f32, or bf16: weights, activations and gradients are bf16; the optimiser keeps f32 copies of the weights.
  Dtype dtype = Dtype::f32;
  std::int64_t steps = 2000;
  std::int64_t batch = 12;    ///< windows of `model.context` tokens per step; with `encoder_decoder` pairs
  std::uint64_t seed = 1337;  ///< seeds the weights, the batches and dropout
  double lr = 1e-3;           ///< learning rate at the end of the warm-up; a half cosine then lowers it to a tenth
  /// Warm-up steps, at most `steps`. Default: 100, or a tenth of `steps` below 1000.
  std::optional<std::int64_t> warmup = std::nullopt;
  std::pair<double, double> betas = {0.9, 0.99};
  double weight_decay = 0.1;
  double clip = 1.0;              ///< largest norm of all gradients together; 0: no clipping
  std::int64_t eval_every = 250;  ///< steps between validations; the last step always validates
  /// Parts of a batch, each with a separate backward pass (docs/training.md#parts); at most `batch`. It belongs to the
  /// training and not to the machines that run it: another number gives other bits. 0: one for every 1,024 tokens of a
  /// batch, from 1 to `batch`; for pairs one part.
  std::int64_t parts = 0;
  /// The encoder-decoder that a training on pairs trains. It must have the tokenizer's vocab_size; its padding_id is
  /// the token before the first of a target.
  std::optional<EncoderDecoderConfig> encoder_decoder = std::nullopt;
  double label_smoothing = 0;  ///< of pairs: this fraction of a target is spread evenly over all tokens
  /// Returns the number of parts, by the rule above if `parts` is 0.
  std::int64_t part_count() const;
  /// Returns the number of warm-up steps.
  std::int64_t warmup_steps() const;
  /// Returns the learning rate of a step, counted from 1.
  double lr_of(std::int64_t step) const;
  /// Throws ValueError, one line, for an option out of range; DtypeError for a dtype other than f32 and bf16.
  void check() const;
  friend bool operator==(const TrainOptions&, const TrainOptions&) = default;
};

/// The results of one step.
struct TrainStep {
  std::int64_t step = 0;  ///< steps done, including this one
  double loss = 0;        ///< the loss of the step's batch, before the update
  double lr = 0;
  double gradient_norm = 0;          ///< before clipping
  std::optional<double> validation;  ///< validation loss, if this step validated
  bool best = false;                 ///< the validation loss is the lowest so far: the moment to call `save_model`
};

/// Trains one model: holds the model, its optimiser, its data and its progress.
///  The first 90 % of the ids, or of the pairs, are for training, the rest for validation. A batch is `batch` windows
/// at random positions, drawn by torch's randint as nanoGPT draws them; of pairs, `batch` pairs drawn so, whose texts
/// are packed without padding. Weights, batches and dropout draw from the global generator, which is seeded at the
/// start; with several parts, dropout draws from a generator that the seed, the step and the part determine. The
/// gradients are adjacent in one buffer, in the order of the parameters; those of the parts are added by a pairwise
/// tree.
///
/// Moving        leaves an empty object: every call on it throws ValueError.
/// Bits          the same for any number of threads; a training that was saved and resumed continues as if it had
///               never stopped.
/// Thread safety one thread at a time; nothing else may draw from the global generator meanwhile.
class ATTN_API Trainer {
 public:
  /// Errors   ValueError or DtypeError as TrainOptions::check; ValueError for an id below 0 or of model.vocab_size or
  ///          more, and fewer ids than one window of training and two tokens of validation need.
  Trainer(std::vector<std::int64_t> ids, const TrainOptions& options);

  /// Trains `options.encoder_decoder` on pairs: the mean cross entropy of every target token of the batch.
  /// Errors   as above; ValueError, with the pair's number, for a text without tokens or with more than
  ///          encoder_decoder.positions, and for fewer than two pairs
  static Trainer of_pairs(std::vector<IdPair> pairs, const TrainOptions& options);

  /// Resumes the training that `save` wrote into this folder. The ids must be those of its start.
  /// Errors   IoError; FormatError for a damaged file: its checksum covers every tensor and setting (older files have
  ///          none); ValueError for other ids.
  static Trainer resume(const std::string& folder, std::vector<std::int64_t> ids);
  static Trainer resume_pairs(const std::string& folder, std::vector<IdPair> pairs);
  /// Returns the options of the training in that folder (after `extend`, with more steps) and its step; nullopt if
  /// there is none.
  static std::optional<std::pair<TrainOptions, std::int64_t>> find(const std::string& folder);

  /// The same training, shared by ranks, with the bits of one process (docs/ranks.md). Each computes some parts of
  /// every batch and keeps the optimiser's state of its share of the weights. Collective, as are `advance`, `validate`,
  /// `save` and `save_model` from then on. Rank 0 alone reads and writes the folder, and no file names a rank: any
  /// other number of ranks can resume it. Pairs have one part by default: `parts` must be at least the number of ranks.
  /// Errors   RankError, at every rank, for what fails at one of them, and when they differ in version, options, ids,
  ///          weights, or (bf16) the processor's kind of product; ValueError for more ranks than parts.
  Trainer(std::vector<std::int64_t> ids, const TrainOptions& options, const Ranks& ranks);
  static Trainer of_pairs(std::vector<IdPair> pairs, const TrainOptions& options, const Ranks& ranks);
  static Trainer resume(const std::string& folder, std::vector<std::int64_t> ids, const Ranks& ranks);
  static Trainer resume_pairs(const std::string& folder, std::vector<IdPair> pairs, const Ranks& ranks);

  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  /// Returns the seconds of the steps so far in which this rank did nothing but exchange gradients and weights, or wait
  /// for others; 0 alone.
  double exchange_seconds() const;
  /// Returns the seconds in which gradients were sent while this rank computed.
  double hidden_seconds() const;

  /// Runs one step. ValueError when all steps are done, and when the loss, the gradients or the validation loss is not
  /// finite.
  TrainStep advance();
  /// Raises the number of steps, also after the last step. From the next step on the learning rate is that of a
  /// training started with `steps` steps; if it was already lower, it rises once. The extended training can be saved
  /// and resumed bit for bit, but its bits differ from those of a training started with `steps`. ValueError if `steps`
  /// is below the current number.
  void extend(std::int64_t steps);
  /// Returns the mean cross entropy over the whole validation part, in adjacent windows; in nats per token. Of pairs:
  /// over all target tokens, without label smoothing.
  double validate() const;

  /// Writes train_state.safetensors: weights, optimiser, generator, losses, options. This one file holds all that
  /// `resume` needs, and it is replaced whole or not at all, so after a crash the last good checkpoint is still there.
  /// Creates the folder if needed. IoError.
  void save(const std::string& folder) const;
  /// Writes config.json and model.safetensors with the current weights (`LanguageModel::save`, or
  /// `EncoderDecoder::save` and generation_config.json). When the current
  /// weights are the best ones, call it before `save`, whose state then refers to them.
  void save_model(const std::string& folder) const;

  /// Returns an empty text, or one line to show after `resume`: this bf16 training was saved under another numerics
  /// version, so its next steps have other bits.
  const std::string& notice() const;

  /// Returns a digest of all weights, 16 hexadecimal digits.
  std::string weights_digest() const;

  const TrainOptions& options() const;
  const LanguageModel& model() const;             ///< ValueError if it trains an encoder-decoder
  const EncoderDecoder& encoder_decoder() const;  ///< ValueError if it trains a language model
  std::int64_t parameters() const;                ///< how many numbers are trained
  double tokens_a_step() const;                   ///< of pairs the mean, source and target
  std::int64_t step() const;
  bool done() const { return step() >= options().steps; }
  /// The lowest validation loss and its step; infinite before the first validation.
  double best_loss() const;
  std::int64_t best_step() const;

  /// Return steps and their losses, f64 [n, 2]: of all batches, of all validations.
  Tensor losses() const;
  Tensor validations() const;

  struct State;  // internal

 private:
  explicit Trainer(std::unique_ptr<State> state);
  void write_state(const std::string& folder, const std::string& path, const optim::StateDict& optimizer) const;
  State& state() const;
  std::unique_ptr<State> state_;
};

/// Returns a self-contained SVG drawing of the losses over the steps: batches (each, and smoothed) and validation. It
/// follows the page's light or dark theme.
ATTN_API std::string loss_curve_svg(const Trainer& trainer, const std::string& title);

}  // namespace attn
