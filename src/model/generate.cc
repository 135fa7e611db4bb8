// src/model/generate.cc: continues prompts token by token, several at once, with a cache or without.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/generate_internal.h"

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
  Finish finish = Finish::length;
};

/// Returns the index of the first token that the model still sees of a text of n tokens. It depends on n and the
/// context only, so that the result is the same with and without a cache.
std::int64_t first_seen(std::int64_t n, std::int64_t context) {
  const std::int64_t half = std::max<std::int64_t>(context / 2, 1);
  return n <= context ? 0 : (n - context + half - 1) / half * half;
}

class Run {
 public:
  Run(const LanguageModel& model, const std::vector<Ids>& prompts, const GenerateOptions& options)
      : model_(model), options_(options), end_(options.end_tokens.value_or(model.config.end_tokens)) {
    for (const Ids& prompt : prompts)
      texts_.push_back({.ids = prompt, .prompt = prompt.size(), .generator = Generator(options.seed)});
    if (options.cache && !prompts.empty())
      cache_.emplace(model.config, static_cast<std::int64_t>(prompts.size()), model.dtype());
    seen_from_.resize(prompts.size());
  }

  std::vector<Generated> all() {
    for (std::int64_t n = 0; n < options_.tokens; ++n) {
      std::vector<std::size_t> open;
      for (std::size_t i = 0; i < texts_.size(); ++i)
        if (!texts_[i].over) open.push_back(i);
      if (open.empty()) break;
      const std::vector<Tensor> logits = next_logits(open);
      for (std::size_t i = 0; i < open.size(); ++i) add(open[i], logits[i]);
    }
    std::vector<Generated> result;
    for (const Text& text : texts_)
      result.push_back({.tokens = Ids(text.ids.begin() + static_cast<std::ptrdiff_t>(text.prompt), text.ids.end()),
                        .finish = text.finish});
    return result;
  }

 private:
  void add(std::size_t i, const Tensor& logits) {
    Text& text = texts_[i];
    const std::int64_t token = sample(logits, text.ids, options_.sample, text.generator);
    if (std::find(end_.begin(), end_.end(), token) != end_.end()) {
      text.over = true;
      text.finish = Finish::end;
      return;
    }
    text.ids.push_back(token);
    if (options_.on_token && !options_.on_token(i, token)) {
      text.over = true;
      text.finish = Finish::stopped;
    }
  }

  /// Returns the logits [V] for the next token of each text in `open`, the indices of the texts that go on.
  std::vector<Tensor> next_logits(const std::vector<std::size_t>& open) {
    std::vector<Tensor> rows(open.size());  // [1, C]
    std::vector<std::size_t> steps;         // those of `open` whose cache lacks only the last token
    for (std::size_t i = 0; i < open.size(); ++i) {
      if (one_token_behind(open[i])) steps.push_back(i);
      else rows[i] = whole(open[i]);
    }
    if (!steps.empty()) {
      Ids last, sequences;
      for (const std::size_t i : steps) {
        last.push_back(texts_[open[i]].ids.back());
        sequences.push_back(static_cast<std::int64_t>(open[i]));
      }
      const Tensor hidden = model_.hidden(tensor<std::int64_t>(last).unsqueeze(1), *cache_, sequences).select(1, 0);
      for (std::size_t n = 0; n < steps.size(); ++n) rows[steps[n]] = hidden.narrow(0, static_cast<std::int64_t>(n), 1);
    }
    const Tensor logits = model_.logits(rows.size() == 1 ? rows[0] : cat(rows, 0));
    std::vector<Tensor> result;
    for (std::size_t i = 0; i < open.size(); ++i) result.push_back(logits[static_cast<std::int64_t>(i)]);
    return result;
  }

  std::int64_t first(std::size_t i) const {
    return first_seen(static_cast<std::int64_t>(texts_[i].ids.size()), model_.config.context);
  }

  bool one_token_behind(std::size_t i) const {
    const auto n = static_cast<std::int64_t>(texts_[i].ids.size());
    return cache_ && first(i) == seen_from_[i] && n > 1 &&
           cache_->length(static_cast<std::int64_t>(i)) == n - 1 - seen_from_[i];
  }

  /// Runs the model on all tokens of a text that it still sees; returns the last row of hidden(), [1, C].
  Tensor whole(std::size_t i) {
    const Ids& ids = texts_[i].ids;
    seen_from_[i] = first(i);
    const Tensor in = tensor<std::int64_t>(Ids(ids.begin() + seen_from_[i], ids.end())).unsqueeze(0);
    if (!cache_) return model_.hidden(in).select(1, -1);
    cache_->truncate(static_cast<std::int64_t>(i), 0);
    return model_.hidden(in, *cache_, {static_cast<std::int64_t>(i)}).select(1, -1);
  }

  const LanguageModel& model_;
  const GenerateOptions& options_;
  const Ids end_;
  std::vector<Text> texts_;
  std::optional<ModelCache> cache_;
  std::vector<std::int64_t> seen_from_;  // for each text, the index of the first token in the cache
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

}  // namespace

std::vector<Generated> generate(const LanguageModel& model, const std::vector<Ids>& prompts,
                                const GenerateOptions& options) {
  check_sample(options.sample);
  if (options.tokens < 0)
    throw ValueError("generate: tokens is " + std::to_string(options.tokens) + "; it must be 0 or more");
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string name = prompts.size() == 1 ? "the prompt" : "prompt " + std::to_string(i);
    if (prompts[i].empty()) throw ValueError("generate: " + name + " is empty; it must have a token");
    for (const std::int64_t id : prompts[i])
      if (id < 0 || id >= model.config.vocab_size)
        throw ValueError("generate: " + name + " holds the token " + std::to_string(id) + "; it must be from 0 to " +
                         std::to_string(model.config.vocab_size - 1));
  }
  const NoGrad no_grad;
  const Evaluating evaluating(model);
  return Run(model, prompts, options).all();
}

}  // namespace attn
