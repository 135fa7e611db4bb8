// src/text/tokenizer/decoder.cc: makes a text of tokens by the steps of a decoder.
#include "text/tokenizer/decoder.h"

#include <attn/text.h>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/changes.h"

namespace attn::text {
namespace {

/// Removes the spaces that WordPiece puts before punctuation and endings.
std::string tidied(std::string token) {
  constexpr std::pair<const char*, const char*> all[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  bool any = false;  // hardly ever
  for (std::size_t space = token.find(' '); space < token.size() && !any; space = token.find(' ', space + 1))
    any = space + 1 < token.size() && std::string_view(".?!,'nd").find(token[space + 1]) != std::string_view::npos;
  if (!any) return token;
  for (const auto& [from, to] : all) token = replaced(token, from, to);
  return token;
}

std::string by_pattern(const DecoderStep& step, const std::string& token) {
  std::string result;
  for (std::size_t at = 0; at < token.size();) {
    const Pattern::Match match = step.pattern.find(token, at);
    result.append(token, at, match.begin - at);
    if (match.end > match.begin) result += step.text;
    at = match.end;
  }
  return result;
}

std::vector<std::string> with_bytes_joined(const std::vector<std::string>& tokens) {
  std::vector<std::string> result;
  std::string bytes;
  const auto end_run = [&] {
    if (bytes.empty()) return;
    if (!invalid_utf8(bytes)) result.push_back(bytes);
    else result.insert(result.end(), bytes.size(), "\xEF\xBF\xBD");
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const int byte = byte_of_name(token); byte >= 0) {
      bytes += static_cast<char>(byte);
      continue;
    }
    end_run();
    result.push_back(token);
  }
  end_run();
  return result;
}

std::string joined(const std::vector<std::string>& tokens) {
  std::string result;
  for (const std::string& token : tokens) result += token;
  return result;
}

}  // namespace

std::string decoded(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens) {
  using enum DecoderStep::Kind;
  for (const DecoderStep& step : steps) {
    if (step.kind == byte_fallback) tokens = with_bytes_joined(tokens);
    if (step.kind == fuse) tokens = {joined(tokens)};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (step.kind == metaspace) token = replaced(token, step.text, i == 0 && step.flag ? "" : " ");
      if (step.kind == replace) token = by_pattern(step, token);
      if (step.kind != word_piece) continue;
      if (i > 0) token = token.starts_with(step.text) ? token.substr(step.text.size()) : " " + token;
      if (step.flag) token = tidied(token);
    }
  }
  return joined(tokens);
}

}  // namespace attn::text
