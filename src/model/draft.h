// src/model/draft.h: declares the guesses of speculative decoding.
#pragma once
#include <attn/generate.h>

#include "model/reader.h"

#include <optional>

namespace attn {

class Guesser {
 public:
  /// `texts`: how many there are. The draft model must be in eval mode.
  Guesser(const Draft& draft, std::size_t texts, const SampleOptions& sample, const std::vector<std::int64_t>& end);

  /// A text, and how many tokens to guess at most.
  struct Wanted {
    std::size_t text;
    const std::vector<std::int64_t>* ids;
    const Generator* generator;  // of the text's next token
    std::int64_t most;
  };
  /// Returns the guesses of each text; they may be none.
  std::vector<std::vector<std::int64_t>> guess(const std::vector<Wanted>& texts);
  /// Records how many of a text's guesses were right; the next number of guesses depends on it.
  void learn(std::size_t text, std::size_t guessed, std::size_t right);

 private:
  void by_model(const std::vector<Wanted>& texts, std::vector<std::vector<std::int64_t>>& guesses) const;

  const Draft& draft_;
  const SampleOptions& sample_;
  const std::vector<std::int64_t>& end_;
  std::vector<std::int64_t> next_;  // for each text, how many to guess
  std::optional<ModelCache> cache_;
  std::optional<Reader> reader_;
};

}  // namespace attn
