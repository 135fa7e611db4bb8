// src/text/split.cc: splits a text into words, into characters, or into both depending on the script.
#include <attn/text.h>

#include "runtime/enum_value.h"
#include "text/unicode.h"

namespace attn::text {
namespace {

bool by_itself(char32_t first, Tokens tokens) {
  return tokens == Tokens::characters || (tokens == Tokens::automatic && is_han_or_kana(first));
}

}  // namespace

std::vector<std::string> split(std::string_view text, Tokens tokens) {
  runtime::check_enum(tokens, Tokens::automatic, "split: tokens");
  check_utf8("split", text);
  std::vector<std::string> result;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) result.push_back(std::move(word));
    word.clear();
  };
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";
  for (std::size_t at = text.starts_with(byte_order_mark) ? byte_order_mark.size() : 0; at < text.size();) {
    const Character c = character_at(text, at);
    const std::string_view bytes = text.substr(at, c.bytes);
    at += c.bytes;
    if (bytes == ",") continue;  // removed, not a separator: "1,000" is one word
    if (is_space(c.first) || is_wide_comma(c.first)) {
      end_word();
    } else if (by_itself(c.first, tokens)) {
      end_word();
      result.emplace_back(bytes);
    } else {
      word += bytes;
    }
  }
  end_word();
  return result;
}

std::string join(const std::vector<std::string>& tokens) {
  std::string result;
  bool space_may_follow = false;
  for (const std::string& token : tokens) {
    if (token.empty()) continue;
    const bool compact = is_han_or_kana(code_point_at(token, 0).value);
    if (space_may_follow && !compact) result += ' ';
    result += token;
    space_may_follow = !compact;
  }
  return result;
}

}  // namespace attn::text
