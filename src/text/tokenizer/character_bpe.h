// src/text/tokenizer/character_bpe.h: byte-pair encoding whose symbols are characters, with a token for those that the
// vocabulary does not have (NLLB).
#pragma once
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/text_index.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

class CharacterBpe {
 public:
  struct Options {
    std::optional<std::int64_t> unknown;  // the id of characters without a token; none: they are left out
    bool fuse_unknown = false;            // unknown characters side by side are one token
    bool whole_first = false;             // a piece that is a token is not merged (ignore_merges)
  };
  /// `tokens` by id; an id without a token is empty.
  CharacterBpe(const std::vector<std::string>& tokens, std::vector<Merge> merges, Options options);
  void encode(std::string_view text, std::vector<std::int64_t>& ids) const;
  const Bpe& merges() const { return bpe_; }
  const Options& options() const { return options_; }

 private:
  TextIndex ids_;
  Bpe bpe_;
  Options options_;
};

}  // namespace attn::text
