// src/model/reader.h: declares how a model reads texts while they grow: with a cache, or each text again from the
// start.
#pragma once
#include <attn/model.h>

#include <algorithm>
#include <functional>
#include <vector>

namespace attn {

/// Returns the index of the first token that a model still sees of a text of n tokens: if the text outgrows the
/// context, its oldest tokens are dropped, half a context at a time. It depends on n and the context only, so that the
/// result is the same with and without a cache.
std::int64_t first_seen(std::int64_t n, std::int64_t context);

class Reader {
 public:
  /// Without a cache each call computes the whole texts. `on_pass` as in GenerateOptions.
  Reader(const LanguageModel& model, ModelCache* cache, std::function<void()> on_pass = {})
      : model_(model), cache_(cache), on_pass_(std::move(on_pass)) {}

  /// A text whose last `rows` tokens are each to be followed by a next one.
  struct Wanted {
    std::int64_t sequence = 0;  // in the cache
    const std::vector<std::int64_t>* ids = nullptr;
    std::int64_t rows = 1;  // 1 + room() at most
  };
  /// Returns the logits after each of those tokens, [rows, V] for each text. The cache then holds the texts.
  std::vector<Tensor> logits(const std::vector<Wanted>& texts) const;

  /// Returns how many tokens, `most` at most, a text of n tokens may get before its oldest are dropped, or the
  /// frequencies of its rotary positions change.
  std::int64_t room(std::int64_t n, std::int64_t most) const {
    const ModelConfig& config = model_.config;
    const std::int64_t seen = n - first_seen(n, config.context);
    most = std::min(most, config.context - seen);
    while (most > 0 && !config.same_frequencies(seen, seen + most)) --most;
    return most;
  }

  /// Computes the tokens of a text, and no logits.
  void read(const Wanted& text) const;
  const LanguageModel& model() const { return model_; }

 private:
  struct Part;
  Part part(const Wanted& text) const;
  /// Computes the parts as one batch; sets their rows of hidden().
  void compute(std::vector<Part*> parts) const;
  /// Computes the beginning of a long part in separate passes: the memory that they need in addition to the cache does
  /// not grow with the text, and on_pass is called between them.
  void begin(Part& part) const;
  const LanguageModel& model_;
  ModelCache* const cache_;
  const std::function<void()> on_pass_;
};

}  // namespace attn
