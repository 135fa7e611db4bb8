// src/text/tokenizer/character_bpe.cc: looks up the characters of a piece and merges them.
#include "text/tokenizer/character_bpe.h"

#include "text/unicode.h"

#include <utility>

namespace attn::text {

CharacterBpe::CharacterBpe(const std::vector<std::string>& tokens, std::vector<Merge> merges, Options options)
    : ids_(tokens.size()), bpe_(std::move(merges)), options_(options) {
  for (std::size_t id = 0; id < tokens.size(); ++id)
    if (!tokens[id].empty()) ids_.put(tokens[id], static_cast<std::int64_t>(id));
}

void CharacterBpe::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  if (options_.whole_first)
    if (const auto whole = ids_.find(text)) return ids.push_back(*whole);
  std::vector<std::int32_t> symbols;
  bool unknown = false;  // the unknown token of the characters before `at` is still to be added
  const auto end_unknown = [&] {
    if (std::exchange(unknown, false)) symbols.push_back(static_cast<std::int32_t>(*options_.unknown));
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = code_point_at(text, at).bytes;
    if (const auto known = ids_.find(text.substr(at, bytes))) {
      end_unknown();
      symbols.push_back(static_cast<std::int32_t>(*known));
    } else if (options_.unknown) {
      if (!options_.fuse_unknown) end_unknown();
      unknown = true;
    }
    at += bytes;
  }
  end_unknown();
  bpe_.merge(symbols);
  ids.insert(ids.end(), symbols.begin(), symbols.end());
}

}  // namespace attn::text
