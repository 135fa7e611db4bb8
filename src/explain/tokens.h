// src/explain/tokens.h: texts cut into tokens, their ids, and the padding of a batch.
#pragma once
#include <attn/explain.h>

#include <algorithm>
#include <string>
#include <vector>

namespace attn::explain_detail {

inline constexpr std::int64_t kMostTokens = 2048;

/// Texts of one side, padded on the right to the longest.
struct TokenTable {
  std::vector<std::vector<std::string>> tokens;  // "PAD" where nothing is
  std::vector<std::int64_t> lengths;
  Tensor ids;                            // i64 [B, T]
  std::vector<std::string> commas = {};  // that the texts have and no token has, each once
  std::int64_t width() const { return ids.size(1); }
  std::int64_t batch() const { return ids.size(0); }
  bool pads() const {
    return std::any_of(lengths.begin(), lengths.end(), [this](std::int64_t length) { return length < width(); });
  }
};

/// Both sides share one sorted vocabulary, whose size is the id of PAD.
struct TokenizedTexts {
  TokenTable from, to;  // the same without `options.to`
  std::int64_t vocabulary = 0;
};
TokenizedTexts tokenize(const std::vector<std::string>& texts, const ExplainOptions& options);

}  // namespace attn::explain_detail
