// src/text/tokenizer/cut.h: where a tokenizer cuts a text into pieces before it looks anything up.
#pragma once
#include <cstddef>
#include <optional>
#include <string_view>

namespace attn::text {

/// The patterns of tokenizer.json files that are known here, each as code: no regular expression is run. Below them
/// cuts that have none.
enum class Cut {
  characters,  // one code point each
  gpt2,        // words with the space before them, numbers, runs of signs, blanks
  words,       // the same, but each letter of Chinese and Japanese by itself
  llama3,      // as gpt2 with numbers of at most three digits, contractions in capitals too, line ends apart
  qwen2,       // as llama3, each digit alone
  whole,       // nowhere
  before,      // before each separator
  after,       // after each separator
};

/// The regular expression that means this cut, of the first five.
std::string_view pattern_of(Cut cut);
std::optional<Cut> cut_of(std::string_view pattern);

/// The end of the piece that begins at `at` (which must be inside). Every byte belongs to a piece; a byte that is not
/// UTF-8 counts as a sign: neither letter nor number nor blank. `separator`, which is not empty, goes with the last
/// two.
std::size_t piece_end(Cut cut, std::string_view text, std::size_t at, std::string_view separator = {});

}  // namespace attn::text
