// src/model/tokenizer_template.h: declares how a post-processor lays out one text or two with special tokens.
#pragma once
#include "model/tokenizer_fields.h"

#include <cstdint>
#include <functional>
#include <vector>

namespace attn {

/// A text or special tokens, with the segment of their ids.
struct TemplatePiece {
  enum class Of { first, second, special };
  Of of = Of::first;
  std::int64_t type_id = 0;
  std::vector<std::int64_t> ids = {};  // of special tokens
};

struct Templates {
  /// A file without a post-processor adds nothing.
  std::vector<TemplatePiece> single{{TemplatePiece::Of::first}};
  std::vector<TemplatePiece> pair{{TemplatePiece::Of::first}, {TemplatePiece::Of::second, 1}};  // empty: none is given
};

/// Reads the post-processor; `known` tells whether an id has a token. Only one step may add tokens: if two do, Hugging
/// Face's library treats the tokens of the first one as separate texts.
Templates read_templates(const TokenizerFields& file, const std::function<bool(std::uint64_t)>& known);

}  // namespace attn
