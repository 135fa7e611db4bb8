// src/text/tokenizer/decoder.h: declares the steps of the decoders of encoders' tokenizers, which make a text of
// tokens.
#pragma once
#include "text/tokenizer/pattern.h"

#include <string>
#include <vector>

namespace attn::text {

struct DecoderStep {
  enum class Kind {
    word_piece,     // a space before tokens without `text` in front, which is left out; `flag`: tidied
    metaspace,      // `text` becomes a space, or with `flag` nothing in the first token
    replace,        // `pattern` becomes `text`
    byte_fallback,  // runs of tokens such as <0xE4> become the text of their bytes
    fuse,           // all tokens become one
  };
  Kind kind = Kind::fuse;
  std::string text = {};
  Pattern pattern = {};
  bool flag = false;
};

/// Applies the steps to the tokens and joins the results.
std::string decoded(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens);

}  // namespace attn::text
