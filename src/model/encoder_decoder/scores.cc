// src/model/encoder_decoder/scores.cc: repetition penalty, repeated n-grams, bad words, lengths, forced and suppressed
// tokens.
#include "model/encoder_decoder/scores.h"

#include <attn/ops.h>

#include <algorithm>
#include <limits>
#include <set>

namespace attn {
namespace {

using Said = std::vector<std::int64_t>;
using Scores = std::vector<float>;

constexpr float nothing = -std::numeric_limits<float>::infinity();

void ban(Scores& scores, std::int64_t token) {
  if (token >= 0 && token < std::ssize(scores)) scores[static_cast<std::size_t>(token)] = nothing;
}

void penalise_repeated(double penalty, const Said& said, Scores& scores) {
  if (penalty == 1) return;
  const auto by = static_cast<float>(penalty);
  for (const std::int64_t token : std::set<std::int64_t>(said.begin(), said.end())) {
    if (token < 0 || token >= std::ssize(scores)) continue;
    float& score = scores[static_cast<std::size_t>(token)];
    score = score < 0 ? score * by : score / by;
  }
}

/// Bans each token that followed the last n - 1 tokens where they came before.
void ban_repeated_ngrams(std::int64_t n, const Said& said, Scores& scores) {
  if (n < 1 || std::ssize(said) + 1 < n) return;
  const auto last = said.end() - (n - 1);
  for (auto at = said.begin(); said.end() - at >= n; ++at)
    if (std::equal(last, said.end(), at)) ban(scores, *(at + (n - 1)));
}

void ban_words(const TranslateOptions& options, const Said& said, Scores& scores) {
  for (const Said& word : options.bad_words) {
    if (word.empty()) continue;
    // an end token alone is no bad word
    if (word.size() == 1 &&
        std::find(options.end_tokens.begin(), options.end_tokens.end(), word[0]) != options.end_tokens.end())
      continue;
    const std::size_t before = word.size() - 1;
    if (before <= said.size() &&
        std::equal(word.begin(), word.end() - 1, said.end() - static_cast<std::ptrdiff_t>(before)))
      ban(scores, word.back());
  }
}

void force(const Said& tokens, Scores& scores) {
  std::fill(scores.begin(), scores.end(), nothing);
  for (const std::int64_t token : tokens)
    if (token >= 0 && token < std::ssize(scores)) scores[static_cast<std::size_t>(token)] = 0;
}

}  // namespace

void process_scores(const TranslateOptions& options, const Said& said, Scores& scores) {
  const std::int64_t said_tokens = std::ssize(said) - 1;  // without the start token
  penalise_repeated(options.sample.repetition_penalty, said, scores);
  ban_repeated_ngrams(options.no_repeat_ngram, said, scores);
  ban_words(options, said, scores);
  if (said_tokens < options.min_tokens)
    for (const std::int64_t end : options.end_tokens) ban(scores, end);
  if (said_tokens == 0 && options.forced_begin) force({*options.forced_begin}, scores);
  if (said_tokens == options.tokens - 1 && !options.forced_end.empty()) force(options.forced_end, scores);
  for (const std::int64_t token : options.suppressed) ban(scores, token);
  if (said_tokens == (options.forced_begin ? 1 : 0))
    for (const std::int64_t token : options.begin_suppressed) ban(scores, token);
  if (!options.renormalize) return;
  const Tensor rows = tensor<float>(scores);
  const Tensor normal = log_softmax(rows, 0);
  std::copy_n(normal.data<float>(), scores.size(), scores.begin());
}

}  // namespace attn
