// src/text/tokenizer/pre_tokenizer.h: declares the steps of the pre-tokenizers of encoders' tokenizers, which split a
// text into the pieces that the model encodes.
#pragma once
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/rewritten.h"

#include <functional>
#include <vector>

namespace attn::text {

/// Where a Metaspace step puts its character in front of a part, unless the part begins with it. `first`: only of the
/// part at the beginning of the text.
enum class Prefix { never, first, always };
inline constexpr const char* prefixes[] = {"never", "first", "always"};  // their names in a file

/// What becomes of the characters that a text is split at.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A step of one of Hugging Face's pre-tokenizers; the two parts of BertPreTokenizer are steps of their own.
struct PreTokenizerStep {
  enum class Kind {
    white_space,  // WhitespaceSplit: splits at white space, which is removed
    words,        // Whitespace: words (\w+) and runs of signs; white space is removed
    punctuation,  // splits at punctuation
    pattern,      // Split: splits at what `pattern` matches, or with `invert` at all else
    metaspace,    // puts `space` in place of spaces and in front, and may split before it
  };
  Kind kind = Kind::white_space;
  Behavior behavior = Behavior::removed;
  Pattern pattern = {};
  bool invert = false;
  std::string space = {};
  Prefix prefix = Prefix::always;
  bool split = true;
};

/// Applies the steps, each to the pieces of those before it, and calls piece(text) for each piece, in order.
void pre_tokenized(const std::vector<PreTokenizerStep>& steps, const Rewritten& text,
                   const std::function<void(std::string_view)>& piece);

}  // namespace attn::text
