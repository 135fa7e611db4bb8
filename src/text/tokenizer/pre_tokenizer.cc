// src/text/tokenizer/pre_tokenizer.cc: splits a text into pieces by the steps of a pre-tokenizer.
#include "text/tokenizer/pre_tokenizer.h"

#include "text/tokenizer/changes.h"
#include "text/unicode.h"

#include <algorithm>
#include <span>

namespace attn::text {
namespace {

using Kind = PreTokenizerStep::Kind;

/// A part of a text: what the text is split at, or what is between.
struct Run {
  std::size_t begin, end;
  bool matched;
};

/// Adds a run; what is between two matches is one run.
void add(std::vector<Run>& runs, std::size_t begin, std::size_t end, bool matched) {
  if (begin == end) return;
  if (!matched && !runs.empty() && !runs.back().matched) runs.back().end = end;
  else runs.push_back({begin, end, matched});
}

/// Returns the runs of a text that is split at single characters.
template <typename Splits>
std::vector<Run> runs_at(std::string_view text, Splits&& splits) {
  std::vector<Run> runs;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    add(runs, at, at + c.bytes, splits(c.value));
    at += c.bytes;
  }
  return runs;
}

std::vector<Run> runs_of_pattern(const PreTokenizerStep& step, std::string_view text) {
  std::vector<Run> runs;
  for (std::size_t at = 0; at < text.size();) {
    const Pattern::Match match = step.pattern.find(text, at);
    // not add(): inverted, a run between two matches is what is split at
    if (match.begin > at) runs.push_back({at, match.begin, step.invert});
    if (match.end > match.begin) runs.push_back({match.begin, match.end, !step.invert});
    at = match.end;
  }
  return runs;
}

/// Returns words and runs of signs; what is between them is to be removed.
std::vector<Run> words_of(std::string_view text) {
  enum class Of { blank, word, sign };
  std::vector<Run> runs;
  Of last = Of::blank;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    const Of of = is_word_character(c.value) ? Of::word : is_white_space(c.value) ? Of::blank : Of::sign;
    if (!runs.empty() && of == last) runs.back().end = at + c.bytes;
    else runs.push_back({at, at + c.bytes, of == Of::blank});
    last = of;
    at += c.bytes;
  }
  return runs;
}

std::vector<Run> runs_of(const PreTokenizerStep& step, std::string_view text) {
  switch (step.kind) {
    case Kind::white_space: return runs_at(text, is_white_space);
    case Kind::punctuation: return runs_at(text, is_split_at);
    case Kind::words: return words_of(text);
    case Kind::pattern: return runs_of_pattern(step, text);
    case Kind::metaspace: break;
  }
  const Pattern space = Pattern::literal(step.space);
  return runs_of_pattern({.kind = Kind::pattern, .pattern = space}, text);
}

/// Merges runs as the behavior has it: a match goes to a neighbour unless the neighbour is a match.
std::vector<Run> merged(std::vector<Run> runs, Behavior behavior) {
  if (behavior == Behavior::removed) {
    std::erase_if(runs, [](const Run& run) { return run.matched; });
    return runs;
  }
  if (behavior == Behavior::isolated) return runs;
  const bool backwards = behavior == Behavior::merged_with_next;
  if (backwards) std::reverse(runs.begin(), runs.end());
  std::vector<Run> result;
  bool matched = false;
  for (const Run& run : runs) {
    const bool joins = behavior == Behavior::contiguous ? run.matched == matched : run.matched && !matched;
    matched = run.matched;
    if (!joins || result.empty()) {
      result.push_back(run);
      continue;
    }
    result.back().begin = std::min(result.back().begin, run.begin);
    result.back().end = std::max(result.back().end, run.end);
  }
  if (backwards) std::reverse(result.begin(), result.end());
  return result;
}

/// A part of a text between the steps; `first` as in Rewritten.
struct Piece {
  std::string_view text;
  std::size_t first;
};

void split(std::span<const PreTokenizerStep> steps, Piece piece, const std::function<void(std::string_view)>& done) {
  if (steps.empty()) return done(piece.text);
  const PreTokenizerStep& step = steps[0];
  std::string spaced;
  if (step.kind == Kind::metaspace) {
    spaced = replaced(piece.text, " ", step.space);
    piece.first = replaced(piece.text.substr(0, piece.first), " ", step.space).size();
    const bool wanted = step.prefix == Prefix::always || (step.prefix == Prefix::first && piece.first > 0);
    if (wanted && !spaced.starts_with(step.space)) {
      spaced.insert(0, step.space);
      if (piece.first > 0) piece.first += step.space.size();
    }
    piece.text = spaced;
    if (!step.split) return split(steps.subspan(1), piece, done);
  }
  for (const Run& run : merged(runs_of(step, piece.text), step.behavior)) {
    const std::size_t first = piece.first > run.begin ? std::min(piece.first, run.end) - run.begin : 0;
    split(steps.subspan(1), {piece.text.substr(run.begin, run.end - run.begin), first}, done);
  }
}

}  // namespace

void pre_tokenized(const std::vector<PreTokenizerStep>& steps, const Rewritten& text,
                   const std::function<void(std::string_view)>& piece) {
  if (!text.text.empty()) split(steps, {text.text, text.first}, piece);
}

}  // namespace attn::text
