// src/explain/tokens.cc: splits texts into tokens, builds one vocabulary for all texts, and pads.
#include "explain/tokens.h"
#include "explain/utf8.h"
#include "explain/words.h"

#include <attn/ops.h>

#include "runtime/enum_value.h"
#include "runtime/format.h"

#include <algorithm>
#include <string_view>

namespace attn::explain_detail {
namespace {

std::vector<std::string> cut_text(const std::string& text, const ExplainOptions& options) {
  std::vector<std::string> tokens = options.tokens == text::Tokens::words && options.cut_words
                                        ? options.cut_words(text)
                                        : text::split(text, options.tokens);
  if (tokens.empty()) throw ValueError("explain: the text has no token; give at least one word");
  if (static_cast<std::int64_t>(tokens.size()) > kMostTokens)
    throw ValueError(
        runtime::format("explain: the text has {} tokens; at most {} can be shown", tokens.size(), kMostTokens));
  return tokens;
}

std::int64_t count_of(std::string_view what, std::string_view text) {
  std::int64_t count = 0;
  for (std::size_t at = text.find(what); at != std::string_view::npos; at = text.find(what, at + what.size())) ++count;
  return count;
}

/// Adds the commas that the text has and its tokens lack: splitting removes them.
void add_commas(const std::string& text, const std::vector<std::string>& tokens, std::vector<std::string>& to) {
  for (const char* comma : {",", "，", "、", "､"}) {
    std::int64_t lost = count_of(comma, text);
    for (const std::string& token : tokens) lost -= count_of(comma, token);
    if (lost > 0 && std::find(to.begin(), to.end(), comma) == to.end()) to.emplace_back(comma);
  }
}

/// Finds the tokens in their text, one behind the other. Commas inside a token are passed over: splitting removes them.
std::vector<std::array<std::int64_t, 2>> places_of(const std::string& text, const std::vector<std::string>& tokens) {
  const auto end_of = [&](const std::string& token, std::size_t at) {
    for (const char c : token) {
      while (at < text.size() && text[at] == ',' && c != ',') ++at;
      if (at == text.size() || text[at++] != c) return std::string::npos;
    }
    return at;
  };
  std::vector<std::array<std::int64_t, 2>> places;
  std::size_t from = 0, counted = 0;  // bytes
  std::int64_t characters = 0;        // of the first `counted` bytes
  const auto character = [&](std::size_t byte) {
    for (; counted < byte; ++counted) characters += (static_cast<unsigned char>(text[counted]) & 0xC0) != 0x80;
    return characters;
  };
  for (const std::string& token : tokens) {
    std::size_t begin = from, end = std::string::npos;
    while (begin < text.size() && (text[begin] != token[0] || (end = end_of(token, begin)) == std::string::npos))
      ++begin;
    if (end == std::string::npos) {
      places.push_back({-1, -1});
      continue;
    }
    const std::int64_t first = character(begin);
    places.push_back({first, character(end)});
    from = end;
  }
  return places;
}

TokenTable padded(std::vector<std::vector<std::string>> texts, const text::Vocabulary& vocabulary) {
  std::size_t width = 0;
  for (const auto& tokens : texts) width = std::max(width, tokens.size());
  TokenTable table;
  std::vector<std::int64_t> ids;
  for (auto& tokens : texts) {
    table.lengths.push_back(static_cast<std::int64_t>(tokens.size()));
    const std::vector<std::int64_t> own = vocabulary.encode(tokens);
    ids.insert(ids.end(), own.begin(), own.end());
    ids.resize(ids.size() + width - tokens.size(), vocabulary.size());
    for (std::string& token : tokens) token = printable(token);
    tokens.resize(width, "PAD");
  }
  table.ids = tensor<std::int64_t>(ids, {static_cast<std::int64_t>(texts.size()), static_cast<std::int64_t>(width)});
  table.tokens = std::move(texts);
  return table;
}

}  // namespace

TokenizedTexts tokenize(const std::vector<std::string>& texts, const ExplainOptions& options) {
  if (texts.empty()) throw ValueError("explain: there is no text");
  runtime::check_enum(options.positions, Positions::rotary, "explain: positions");
  runtime::check_enum(options.bias, ExplainBias::alibi_symmetric, "explain: bias");
  runtime::check_enum(options.tokens, text::Tokens::automatic, "explain: tokens");
  if (options.cache) runtime::check_enum(*options.cache, KvStorage::int8, "explain: cache");
  runtime::check_enum(options.language, Language::zh, "explain: language");
  if (options.to && (options.learned_query || options.query_vector.defined()))
    throw ValueError("explain: learned_query and to do not go together: one learned vector asks, or one text");
  std::vector<std::vector<std::string>> from, to;
  std::vector<std::string> all, commas_from, commas_to;
  std::vector<std::vector<std::array<std::int64_t, 2>>> places_from, places_to;
  for (const std::string& text : texts) {
    from.push_back(cut_text(text, options));
    add_commas(text, from.back(), commas_from);
    places_from.push_back(places_of(text, from.back()));
    all.insert(all.end(), from.back().begin(), from.back().end());
  }
  if (options.to) {
    const std::vector<std::string> seen = cut_text(*options.to, options);
    to.assign(texts.size(), seen);
    add_commas(*options.to, seen, commas_to);
    places_to.assign(texts.size(), places_of(*options.to, seen));
    all.insert(all.end(), seen.begin(), seen.end());
  }
  const text::Vocabulary vocabulary(std::move(all));
  TokenizedTexts result;
  result.vocabulary = vocabulary.size();
  result.from = padded(std::move(from), vocabulary);
  result.from.commas = std::move(commas_from);
  result.from.places = std::move(places_from);
  result.to = result.from;
  if (options.to) {
    result.to = padded(std::move(to), vocabulary);
    result.to.commas = std::move(commas_to);
    result.to.places = std::move(places_to);
  } else if (options.learned_query || options.query_vector.defined()) {
    const std::vector<std::string> row{std::string(say(options.language, Phrase::learned_row))};
    result.from = {std::vector(texts.size(), row), std::vector<std::int64_t>(texts.size(), 1),
                   zeros({static_cast<std::int64_t>(texts.size()), 1}, Dtype::i64)};
  }
  return result;
}

}  // namespace attn::explain_detail
