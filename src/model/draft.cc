// src/model/draft.cc: guesses the next tokens of texts: what followed the same tokens before, or the tokens of a
// smaller model.
#include "model/draft.h"

#include <algorithm>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;

/// Finds the last earlier occurrence of the last n tokens, for the largest n up to `longest` that has one, and returns
/// at most `most` tokens that followed it.
Ids after_the_same(const Ids& ids, std::int64_t longest, std::int64_t most) {
  for (std::int64_t n = std::min<std::int64_t>(longest, std::ssize(ids) - 1); n > 0; --n) {
    const auto last = ids.end() - n;
    const auto found = std::find_end(ids.begin(), ids.end() - 1, last, ids.end());
    if (found == ids.end() - 1) continue;
    const auto begin = found + n;
    return Ids(begin, begin + std::min<std::int64_t>(most, ids.end() - begin));
  }
  return {};
}

}  // namespace

Guesser::Guesser(const Draft& draft, std::size_t texts, const SampleOptions& sample, const Ids& end)
    : draft_(draft), sample_(sample), end_(end), next_(texts, draft.tokens) {
  if (draft.model == nullptr || texts == 0) return;
  cache_.emplace(*draft.model,
                 ModelCacheOptions{.sequences = static_cast<std::int64_t>(texts), .dtype = draft.model->dtype()});
  reader_.emplace(*draft.model, &*cache_);
}

std::vector<Ids> Guesser::guess(const std::vector<Wanted>& texts) {
  std::vector<Ids> guesses(texts.size());
  std::vector<Wanted> capped = texts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    capped[i].most = std::min(texts[i].most, next_[texts[i].text]);
    if (draft_.ngram > 0 && capped[i].most > 0)
      guesses[i] = after_the_same(*texts[i].ids, draft_.ngram, capped[i].most);
  }
  if (reader_) by_model(capped, guesses);
  return guesses;
}

void Guesser::by_model(const std::vector<Wanted>& texts, std::vector<Ids>& guesses) const {
  struct Open {
    std::size_t i;
    std::int64_t most;
    Ids ids;
    Generator generator;
  };
  std::vector<Open> open;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Wanted& text = texts[i];
    const bool known = std::all_of(text.ids->begin(), text.ids->end(),
                                   [&](std::int64_t id) { return id < draft_.model->config.vocab_size; });
    if (guesses[i].empty() && text.most > 0 && known) open.push_back({i, text.most, *text.ids, *text.generator});
  }
  while (!open.empty()) {
    std::vector<Reader::Wanted> wanted;
    for (const Open& one : open)
      wanted.push_back({.sequence = static_cast<std::int64_t>(texts[one.i].text), .ids = &one.ids});
    const std::vector<Tensor> logits = reader_->logits(wanted);
    std::vector<Open> left;
    for (std::size_t n = 0; n < open.size(); ++n) {
      Open& one = open[n];
      const std::int64_t token = sample(logits[n][0], one.ids, sample_, one.generator);
      guesses[one.i].push_back(token);
      one.ids.push_back(token);
      const bool ends = std::find(end_.begin(), end_.end(), token) != end_.end();
      if (!ends && std::ssize(guesses[one.i]) < one.most) left.push_back(std::move(one));
    }
    open = std::move(left);
  }
}

void Guesser::learn(std::size_t text, std::size_t guessed, std::size_t right) {
  if (guessed == 0) return;
  const auto had = static_cast<std::int64_t>(right);
  next_[text] =
      right == guessed ? std::min(draft_.tokens, std::max(next_[text], had + 2)) : std::max<std::int64_t>(had, 1);
}

}  // namespace attn
