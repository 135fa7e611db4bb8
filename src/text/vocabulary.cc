// src/text/vocabulary.cc: sorts distinct tokens; the index of a token is its id.
#include <attn/error.h>
#include <attn/text.h>
#include "runtime/format.h"

#include "text/unicode.h"

#include <algorithm>

namespace attn::text {

// Sorting bytes sorts by code points: std::string compares bytes as unsigned, and UTF-8 keeps the order of code points.
Vocabulary::Vocabulary(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  for (const std::string& token : tokens_) check_utf8("Vocabulary", token);
  std::sort(tokens_.begin(), tokens_.end());
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
}

std::optional<std::int64_t> Vocabulary::find(std::string_view token) const {
  const auto place = std::lower_bound(tokens_.begin(), tokens_.end(), token);
  if (place == tokens_.end() || *place != token) return std::nullopt;
  return place - tokens_.begin();
}

std::vector<std::int64_t> Vocabulary::encode(const std::vector<std::string>& tokens) const {
  std::vector<std::int64_t> ids;
  ids.reserve(tokens.size());
  for (const std::string& token : tokens) {
    const auto id = find(token);
    if (!id)
      throw ValueError(runtime::format("encode: \"{}\" is not in the vocabulary of {} word{}", token, size(),
                                       size() == 1 ? "" : "s"));
    ids.push_back(*id);
  }
  return ids;
}

const std::string& Vocabulary::token(std::int64_t id) const {
  if (id < 0 || id >= size())
    throw ValueError(
        runtime::format("decode: id {} is not in the vocabulary of {} word{}", id, size(), size() == 1 ? "" : "s"));
  return tokens_[static_cast<std::size_t>(id)];
}

std::vector<std::string> Vocabulary::decode(const std::vector<std::int64_t>& ids) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (std::int64_t id : ids) tokens.push_back(token(id));
  return tokens;
}

}  // namespace attn::text
