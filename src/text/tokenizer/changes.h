// src/text/tokenizer/changes.h: what is done to a text before it is cut into pieces.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// Every `from` in its place as `to`; `from` is not empty.
std::string replaced(std::string_view text, std::string_view from, std::string_view to);

/// A step of Hugging Face's normalizers.
struct Change {
  enum class Kind {
    nfc,      // Unicode's form C
    prepend,  // `to` before a text that is not empty
    replace,  // every `from` becomes `to`
  };
  Kind kind = Kind::nfc;
  std::string from = {}, to = {};
};

/// The text after one step after the other.
std::string changed(const std::vector<Change>& changes, std::string_view text);

}  // namespace attn::text
