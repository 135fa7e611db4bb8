// src/text/tokenizer/changes.h: declares the steps of a normalizer, which change a text before it is split into pieces.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// Returns the text with every `from` replaced by `to`; `from` must not be empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// A step of one of Hugging Face's normalizers.
struct Change {
  enum class Kind {
    nfc,      // normalizes to Unicode's form C
    prepend,  // puts `to` before a text that is not empty
    replace,  // replaces every `from` by `to`
  };
  Kind kind = Kind::nfc;
  std::string from = {}, to = {};
};

/// Applies the steps to the text, one after another.
std::string changed(const std::vector<Change>& changes, std::string_view text);

}  // namespace attn::text
