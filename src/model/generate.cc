// src/model/generate.cc: continues prompts token by token, several at once, with a cache or without.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/draft.h"
#include "model/generate_internal.h"
#include "model/reader.h"
#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;

/// A prompt and its continuation.
struct Text {
  Ids ids;                 // prompt and new tokens
  std::size_t prompt = 0;  // number of tokens of the prompt
  Generator generator;
  bool over = false;
  Generated result = {};
};

class TextBatch {
 public:
  TextBatch(const LanguageModel& model, const std::vector<Ids>& prompts, const GenerateOptions& options)
      : options_(options), end_(options.end_tokens.value_or(model.config.end_tokens)),
        reader_(model, cache_of(model, prompts.size()), options.on_pass),
        guesser_(options.draft, texts_of(prompts, options), options.sample, end_) {
    texts_.reserve(texts_of(prompts, options));
    for (const Ids& prompt : prompts)
      for (std::int64_t n = 0; n < options.samples; ++n)
        texts_.push_back({.ids = prompt,
                          .prompt = prompt.size(),
                          .generator = Generator(options.seed + static_cast<std::uint64_t>(n))});
  }

  bool step() {
    const std::vector<std::size_t> open = still_open();
    if (open.empty()) return false;
    if (options_.samples > 1 && !shared_) share_prompts();
    shared_ = true;
    step(open);
    return !still_open().empty();
  }

  std::vector<Generated> texts() {
    std::vector<Generated> result;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const Text& text = texts_[i];
      Generated& one = result.emplace_back(text.result);
      one.tokens.assign(text.ids.begin() + static_cast<std::ptrdiff_t>(text.prompt), text.ids.end());
      if (!text.over && left(i) > 0) one.finish = Finish::stopped;
      if (options_.model_cache != nullptr) drop_guesses(i);
    }
    return result;
  }

 private:
  static std::size_t texts_of(const std::vector<Ids>& prompts, const GenerateOptions& options) {
    return prompts.size() * static_cast<std::size_t>(options.samples);
  }

  ModelCache* cache_of(const LanguageModel& model, std::size_t prompts) {
    if (!options_.cache || prompts == 0) return nullptr;
    if (options_.model_cache != nullptr) return options_.model_cache;
    // samples share the pages of their prompt
    own_cache_.emplace(model, ModelCacheOptions{.sequences = static_cast<std::int64_t>(prompts) * options_.samples,
                                                .dtype = model.dtype(),
                                                .page_rows = options_.samples > 1 ? 64 : 0});
    return &*own_cache_;
  }

  ModelCache* cache() {
    return options_.model_cache != nullptr ? options_.model_cache : own_cache_ ? &*own_cache_ : nullptr;
  }

  /// Computes each prompt without its last token once, for all of its texts.
  void share_prompts() {
    if (cache() == nullptr) return;
    std::vector<std::int64_t> from;
    for (std::size_t i = 0; i < texts_.size(); ++i) {
      const std::size_t first = i - i % static_cast<std::size_t>(options_.samples);
      from.push_back(static_cast<std::int64_t>(first));
      const Ids before(texts_[i].ids.begin(), texts_[i].ids.end() - 1);
      if (i == first && !before.empty()) reader_.read({.sequence = from.back(), .ids = &before});
    }
    cache()->reorder(from);
  }

  std::vector<std::size_t> still_open() const {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < texts_.size(); ++i)
      if (!texts_[i].over && left(i) > 0) open.push_back(i);
    return open;
  }

  std::int64_t left(std::size_t i) const {
    return options_.tokens - (std::ssize(texts_[i].ids) - static_cast<std::int64_t>(texts_[i].prompt));
  }

  /// Adds to each text in `open` its next token, and the right guesses after it.
  void step(const std::vector<std::size_t>& open) {
    std::vector<Guesser::Wanted> guessable;
    for (const std::size_t i : open)
      guessable.push_back({.text = i,
                           .ids = &texts_[i].ids,
                           .generator = &texts_[i].generator,
                           .most = reader_.room(std::ssize(texts_[i].ids), left(i) - 1)});
    const std::vector<Ids> guesses = guesser_.guess(guessable);
    std::vector<Ids> ids;
    for (std::size_t n = 0; n < open.size(); ++n) {
      ids.push_back(texts_[open[n]].ids);
      for (const std::int64_t guess : guesses[n])
        if (guess < reader_.model().config.vocab_size) ids.back().push_back(guess);
        else break;
    }
    std::vector<Reader::Wanted> wanted;
    for (std::size_t n = 0; n < open.size(); ++n)
      wanted.push_back({.sequence = static_cast<std::int64_t>(open[n]),
                        .ids = &ids[n],
                        .rows = 1 + std::ssize(ids[n]) - std::ssize(texts_[open[n]].ids)});
    const std::vector<Tensor> logits = reader_.logits(wanted);  // [1 + guesses, V] each
    for (std::size_t n = 0; n < open.size(); ++n) {
      Text& text = texts_[open[n]];
      const std::size_t before = text.ids.size(), guessed = ids[n].size() - before;
      std::size_t right = 0;
      for (std::size_t row = 0;; ++row) {
        add(open[n], logits[n][static_cast<std::int64_t>(row)]);
        // after an end token the text has not grown
        if (row == guessed || text.ids.size() == before + row || text.ids.back() != ids[n][before + row]) break;
        ++right;
        if (text.over) break;
      }
      guesser_.learn(open[n], guessed, right);
      text.result.guessed += static_cast<std::int64_t>(guessed);
      text.result.guessed_right += static_cast<std::int64_t>(right);
    }
  }

  /// Adds the token that follows from the logits [V].
  void add(std::size_t i, Tensor logits) {
    Text& text = texts_[i];
    const Tensor of_model = logits;
    if (options_.on_logits) {
      logits = logits.clone();
      options_.on_logits(i, text.ids, logits);
    }
    const std::int64_t token = sample(logits, text.ids, options_.sample, text.generator);
    if (std::find(end_.begin(), end_.end(), token) != end_.end()) {
      text.over = true;
      text.result.finish = Finish::end;
      return;
    }
    text.ids.push_back(token);
    if (options_.log_probabilities) {
      const Tensor rows = of_model.unsqueeze(0).to(of_model.dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);
      text.result.log_probabilities.push_back(-cross_entropy(rows, tensor<std::int64_t>({token})).item());
    }
    if (options_.on_token && !options_.on_token(i, token)) {
      text.over = true;
      text.result.finish = Finish::stopped;
    }
  }

  /// Leaves nothing but the text in the caller's cache.
  void drop_guesses(std::size_t i) {
    const Ids& ids = texts_[i].ids;
    const auto seen = static_cast<std::size_t>(first_seen(std::ssize(ids), reader_.model().config.context));
    cache()->keep_common(static_cast<std::int64_t>(i), std::span(ids).subspan(seen));
  }

  const GenerateOptions& options_;
  const Ids end_;
  std::vector<Text> texts_;
  bool shared_ = false;  // the samples have the cache of their prompt
  std::optional<ModelCache> own_cache_;
  const Reader reader_;
  Guesser guesser_;
};

/// Turns dropout off while the object lives. It does not write to a model in eval mode, so several threads may generate
/// with one.
class Evaluating {
 public:
  explicit Evaluating(const LanguageModel& model) : model_(model), before_(model.is_training()) {
    if (before_) model_.eval();
  }
  ~Evaluating() {
    if (before_) model_.train();
  }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  const LanguageModel& model_;
  const bool before_;
};

void check_options(const LanguageModel& model, std::size_t prompts, const GenerateOptions& options) {
  const auto at_least = [](const char* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      throw ValueError(runtime::format("generate: {} is {}; it must be {}{}", name, value, least ? "at least " : "",
                                       least ? std::to_string(least) : "0 or more"));
  };
  at_least("tokens", options.tokens, 0);
  at_least("samples", options.samples, 1);
  at_least("draft.tokens", options.draft.tokens, 1);
  at_least("draft.ngram", options.draft.ngram, 0);
  const auto count = static_cast<std::int64_t>(prompts);
  if (count > ModelCacheOptions::most_sequences)
    throw ValueError(runtime::format("generate: there are {} prompts; at most {} are computed together", count,
                                     ModelCacheOptions::most_sequences));
  const std::int64_t most = ModelCacheOptions::most_sequences / std::max<std::int64_t>(count, 1);
  if (options.samples > most)
    throw ValueError(runtime::format("generate: samples is {}; it must be at most {}", options.samples, most));
  if (options.model_cache == nullptr) return;
  const ModelCache& cache = *options.model_cache;
  const std::int64_t texts = count * options.samples;
  if (!options.cache) throw ValueError("generate: model_cache is given and cache is false");
  if (cache.sequences() != texts)
    throw ValueError(runtime::format("generate: model_cache has {} sequences; it must have {}, one for each text",
                                     cache.sequences(), texts));
  if (cache.options().dtype != model.dtype())
    throw DtypeError(runtime::format("generate: model_cache is {}; it must be {} as the model",
                                     name_of(cache.options().dtype), name_of(model.dtype())));
}

}  // namespace

struct Generation::State {
  const LanguageModel& model;
  const GenerateOptions options;  // `run` refers to it
  TextBatch run;

  State(const LanguageModel& from, const std::vector<Ids>& prompts, GenerateOptions given)
      : model(from), options(std::move(given)), run(model, prompts, options) {}
};

Generation::Generation(const LanguageModel& model, const std::vector<Ids>& prompts, GenerateOptions options) {
  check_sample(options.sample);
  check_options(model, prompts.size(), options);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = prompts.size() == 1 ? "the prompt" : "prompt " + std::to_string(i);
    if (prompts[i].empty()) throw ValueError("generate: " + name + " is empty; it must have a token");
    for (const std::int64_t id : prompts[i])
      if (id < 0 || id >= model.config.vocab_size)
        throw ValueError("generate: " + name + " holds the token " + std::to_string(id) + "; it must be from 0 to " +
                         std::to_string(model.config.vocab_size - 1));
  }
  state_ = std::make_unique<State>(model, prompts, std::move(options));
}

Generation::~Generation() = default;

bool Generation::step() {
  const NoGrad no_grad;
  const LanguageModel* const draft = state_->options.draft.model;
  const Evaluating evaluating(state_->model), evaluating_draft(draft != nullptr ? *draft : state_->model);
  return state_->run.step();
}

std::vector<Generated> Generation::texts() { return state_->run.texts(); }

std::vector<Generated> generate(const LanguageModel& model, const std::vector<Ids>& prompts,
                                const GenerateOptions& options) {
  Generation run(model, prompts, options);
  while (run.step()) {}
  return run.texts();
}

}  // namespace attn
