// src/model/added_tokens.cc: finds the added tokens of a text.
#include "model/added_tokens.h"

#include "text/tokenizer/pattern.h"
#include "text/unicode.h"

#include <algorithm>
#include <iterator>

namespace attn {
namespace {

/// Returns where the character begins that ends at `at`.
std::size_t before(std::string_view text, std::size_t at) {
  const std::size_t end = at--;
  while (at > 0 && end - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text::code_point_at(text, at).bytes == end - at ? at : end - 1;
}

bool is_word_at(std::string_view text, std::size_t at) {
  return at < text.size() && text::is_word_character(text::code_point_at(text, at).value);
}

bool is_one_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin == 0 || !is_word_at(text, before(text, begin))) && !is_word_at(text, end);
}

/// Returns where the white space begins that ends at `at`; it is not looked for before `least`.
std::size_t blanks_begin(std::string_view text, std::size_t least, std::size_t at) {
  while (at > least) {
    const std::size_t previous = before(text, at);
    if (!text::is_white_space(text::code_point_at(text, previous).value)) break;
    at = previous;
  }
  return std::max(at, least);
}

std::size_t blanks_end(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const text::CodePoint c = text::code_point_at(text, at);
    if (!text::is_white_space(c.value)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens)
    if (token.normalized == normalized) sorted_.push_back({token, none});
  std::sort(sorted_.begin(), sorted_.end(),
            [](const Entry& a, const Entry& b) { return a.token.searched < b.token.searched; });
  for (std::size_t i = 0; i < sorted_.size(); ++i) {
    const std::string& searched = sorted_[i].token.searched;
    begins_[static_cast<unsigned char>(searched[0])] = true;
    std::size_t shorter = i == 0 ? none : i - 1;
    while (shorter != none && !searched.starts_with(sorted_[shorter].token.searched))
      shorter = sorted_[shorter].shorter;
    sorted_[i].shorter = shorter;
  }
}

void AddedTokens::split(std::string_view text, const std::function<void(std::string_view)>& between,
                        const std::function<void(std::int64_t)>& found) const {
  std::size_t begin = 0;
  for (std::size_t at = 0; !sorted_.empty() && at < text.size();) {
    const AddedToken* token = first_of(text.substr(at));
    if (token == nullptr) {
      ++at;
      continue;
    }
    const std::size_t end = at + token->searched.size();
    if (!token->single_word || is_one_word(text, at, end)) {
      // White space that a token before this one took is not taken again.
      const std::size_t from = token->lstrip ? blanks_begin(text, std::min(begin, at), at) : at;
      if (begin < from) between(text.substr(begin, from - begin));
      found(token->id);
      begin = token->rstrip ? blanks_end(text, end) : end;
    }
    at = end;
  }
  if (begin < text.size()) between(text.substr(begin));
}

/// Returns the longest token that `rest` begins with; null if there is none. It is the last token that sorts at or
/// before `rest`, or a prefix of that token.
const AddedToken* AddedTokens::first_of(std::string_view rest) const {
  if (!begins_[static_cast<unsigned char>(rest[0])]) return nullptr;
  const auto is_before = [](std::string_view text, const Entry& entry) { return text < entry.token.searched; };
  const auto after = std::upper_bound(sorted_.begin(), sorted_.end(), rest, is_before);
  auto at = static_cast<std::size_t>(after - sorted_.begin()) - 1;  // none, if all sort behind
  while (at != none && !rest.starts_with(sorted_[at].token.searched)) at = sorted_[at].shorter;
  return at == none ? nullptr : &sorted_[at].token;
}

}  // namespace attn
