// src/model/added_tokens.h: finds the added tokens of a text, the longest match from left to right.
#pragma once
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace attn {

/// A token that is searched for in the text before the text is split.
struct AddedToken {
  std::string content;  // the token as in the file
  // the text to search for: `content`, normalized if the text that is searched is normalized
  std::string searched = {};
  std::int64_t id = 0;
  bool special = false;
  // Such tokens are searched for after the others, as in Hugging Face's library, even if there is no normalizer.
  bool normalized = false;
  bool in_vocabulary = false;  // also listed in the model's vocabulary
  bool single_word = false;    // only found where no letter, digit or mark is next to it
  bool lstrip = false;         // takes the white space before it
  bool rstrip = false;         // and behind it
};

/// Of one kind: those that are searched for in a text as it is, or in the normalized one.
class AddedTokens {
 public:
  AddedTokens() = default;
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized);

  /// Calls between(part) for the text before, between and after the tokens, and found(id) for each token, in the order
  /// of the text.
  void split(std::string_view text, const std::function<void(std::string_view)>& between,
             const std::function<void(std::int64_t)>& found) const;

 private:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);
  struct Entry {
    AddedToken token;
    std::size_t shorter;  // the longest other token that is a prefix of it
  };
  const AddedToken* first_of(std::string_view rest) const;

  std::vector<Entry> sorted_;  // by the bytes that are searched for
  std::array<bool, 256> begins_{};
};

}  // namespace attn
