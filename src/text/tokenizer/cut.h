// src/text/tokenizer/cut.h: finds where a tokenizer splits a text into pieces, before it looks up tokens.
#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace attn::text {

/// The ways to split a text. The first nine are known patterns of tokenizer.json files, implemented as code: no
/// regular expression is run. The last three are not patterns.
enum class Cut {
  characters,  // each code point is a piece
  gpt2,        // words with the space before them, numbers, runs of signs, blanks
  words,       // as gpt2, but each Chinese or Japanese letter is a piece
  // as gpt2, but numbers have at most three digits, contractions match in capitals too, one sign or blank that is no
  // line end may begin a word, signs take the line ends after them, and blanks are split after their last line end
  llama3,
  qwen2,  // as llama3, but each digit is a piece
  // as llama3, but a word is at most upper case and then lower case, with its marks, and the contraction after it; the
  // line ends and slashes after signs belong to them. Letters without case and marks go with either case
  o200k,
  tekken,  // as o200k, but each digit is a piece, and a contraction begins one
  digits,  // first each digit is a piece, then the text between them is split as gpt2
  // first runs of punctuation are pieces; the rest is split as gpt2, numbers without a space, in threes
  punctuation,
  whole,   // the whole text is one piece
  before,  // splits before each separator
  after,   // splits after each separator
};

/// Returns the regular expressions of one of the first nine values: each splits the pieces of those before it.
std::span<const std::string_view> patterns_of(Cut cut);
std::optional<Cut> cut_of(std::span<const std::string_view> patterns);

/// Returns the end of the piece that begins at `at`, which must be inside of the text. Every byte belongs to a piece. A
/// byte that is not UTF-8 counts as a sign, that is, neither letter nor number nor blank. `before` and `after` use
/// `separator`, which must not be empty.
std::size_t piece_end(Cut cut, std::string_view text, std::size_t at, std::string_view separator = {});

}  // namespace attn::text
