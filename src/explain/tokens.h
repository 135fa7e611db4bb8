// src/explain/tokens.h: splits texts into tokens and ids, and pads a batch.
#pragma once
#include <attn/explain.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace attn::explain_detail {

inline constexpr std::int64_t kMostTokens = 2048;

/// Holds the texts of one side, padded on the right to the longest.
struct TokenTable {
  std::vector<std::vector<std::string>> tokens;  // "PAD" at padded places
  std::vector<std::int64_t> lengths;
  Tensor ids;                                                         // i64 [B, T]
  std::vector<std::string> commas = {};                               // each kind of comma that splitting removed
  std::vector<std::vector<std::array<std::int64_t, 2>>> places = {};  // as in ExplainStep, one list a text
  std::int64_t width() const { return ids.size(1); }
  std::int64_t batch() const { return ids.size(0); }
  bool pads() const {
    return std::any_of(lengths.begin(), lengths.end(), [this](std::int64_t length) { return length < width(); });
  }
};

/// Holds both sides; they share one sorted vocabulary, whose size is the id of PAD.
struct TokenizedTexts {
  TokenTable from, to;  // equal without `options.to`; `from` is the one row of a learned query, if there is one
  std::int64_t vocabulary = 0;
  bool pads() const { return from.pads() || to.pads(); }
  std::int64_t ids() const { return vocabulary + pads(); }
};
TokenizedTexts tokenize(const std::vector<std::string>& texts, const ExplainOptions& options);

}  // namespace attn::explain_detail
