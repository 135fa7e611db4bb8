// src/text/tokenizer/pattern.cc: matches texts and the regular expressions of known models.
#include "text/tokenizer/pattern.h"

#include "text/tokenizer/unicode_encoders.h"
#include "text/unicode.h"

namespace attn::text {

bool is_white_space(char32_t c) { return is_space(c) && !(c >= 0x1C && c <= 0x1F); }
bool is_word_character(char32_t c) { return within(word_ranges, c); }
bool is_split_at(char32_t c) { return within(split_ranges, c); }

Pattern Pattern::literal(std::string text) {
  Pattern pattern;
  pattern.literal_ = std::move(text);
  return pattern;
}

std::optional<Pattern> Pattern::regex(std::string_view expression) {
  struct Known {
    std::string_view expression;
    Kind kind;
    std::size_t least;
  };
  // Replaced by Pegasus, XLM-R, BigBird, DeBERTa and others.
  static constexpr Known all[] = {
      {" +", Kind::spaces, 1},
      {" {2,}", Kind::spaces, 2},
      {"\\s", Kind::blanks, 0},
      {"\\s+", Kind::blanks, 1},
      {"\\s{2,}", Kind::blanks, 2},
      {"\\n", Kind::line_ends, 0},
      {"[\\n\\r\\t]", Kind::line_ends, 1},
      {"\\s{2,}|[\\n\\r\\t]", Kind::blanks_or_line_ends, 2},
  };
  Pattern pattern;
  for (const Known& known : all)
    if (known.expression == expression) {
      pattern.kind_ = known.kind;
      pattern.least_ = known.least;
      return pattern;
    }
  if (const std::optional<Cut> cut = cut_of({&expression, 1})) {
    pattern.kind_ = Kind::cut;
    pattern.cut_ = *cut;
    return pattern;
  }
  if (expression.empty() || expression.find_first_of("\\^$.|?*+()[]{}") != std::string_view::npos) return std::nullopt;
  return literal(std::string(expression));
}

/// Returns the end of the match that begins at `at`; `at` itself if none does.
std::size_t Pattern::match_end(std::string_view text, std::size_t at) const {
  const auto run_end = [&](auto&& belongs, std::size_t least) {
    std::size_t end = at, count = 0;
    // least 0: one character alone
    while (end < text.size() && (least > 0 || count == 0)) {
      const CodePoint c = code_point_at(text, end);
      if (!belongs(c.value)) break;
      end += c.bytes;
      ++count;
    }
    return count < least ? at : end;
  };
  const auto is_line_end = [](char32_t c) { return c == '\n' || c == '\r' || c == '\t'; };
  switch (kind_) {
    case Kind::literal: return text.substr(at).starts_with(literal_) ? at + literal_.size() : at;
    case Kind::spaces: return run_end([](char32_t c) { return c == ' '; }, least_);
    case Kind::blanks: return run_end(is_white_space, least_);
    case Kind::line_ends:
      return text[at] == '\n' || (least_ > 0 && is_line_end(static_cast<unsigned char>(text[at]))) ? at + 1 : at;
    case Kind::blanks_or_line_ends: {
      const std::size_t end = run_end(is_white_space, least_);
      return end == at && is_line_end(static_cast<unsigned char>(text[at])) ? at + 1 : end;
    }
    case Kind::cut: return piece_end(cut_, text, at);
  }
  return at;
}

Pattern::Match Pattern::find(std::string_view text, std::size_t at) const {
  if (kind_ == Kind::literal) {
    const std::size_t found = std::min(text.find(literal_, at), text.size());
    return {found, std::min(found + literal_.size(), text.size())};
  }
  while (at < text.size()) {
    const std::size_t end = match_end(text, at);
    if (end > at) return {at, end};
    at += code_point_at(text, at).bytes;
  }
  return {text.size(), text.size()};
}

}  // namespace attn::text
