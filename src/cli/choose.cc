// src/cli/choose.cc: what options take: one of several words, a number, a mask, an expression, nothing more.
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

namespace attn::cli {

std::size_t choose(const std::string& option, const std::string& value, const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  const std::string meant = nearest(value, choices);
  throw UsageError{fmt::format("{} has no \"{}\"; {}there are {}", option, value,
                               meant.empty() ? "" : fmt::format("did you mean {}? ", meant), fmt::join(choices, ", "))};
}

std::string whole_number(const std::string& value) {
  const std::size_t digits = value.starts_with("-") ? 1 : 0;
  const bool whole = value.size() > digits && value.find_first_not_of("0123456789", digits) == std::string::npos;
  if (whole && value.size() - digits <= 18) return "";
  return fmt::format("must be a whole number{}, not \"{}\"", whole ? " of at most 18 digits" : "", value);
}

std::string number(const std::string& value) {
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  return value.empty() || *end != '\0' ? fmt::format("must be a number, not \"{}\"", value) : "";
}

void no_more(const std::vector<std::string>& rest) {
  if (!rest.empty()) throw UsageError{fmt::format("\"{}\" is one argument too many", rest.front())};
}

namespace {

/// parse(text), whose mistakes are the option's.
template <typename F>
auto parsed(const char* option, std::string_view parser, const std::string& text, F parse) {
  try {
    return parse(text);
  } catch (const ValueError& error) {
    const std::string_view what = error.what();
    throw UsageError{fmt::format("{} {}", option, what.starts_with(parser) ? what.substr(parser.size()) : what)};
  }
}

}  // namespace

Mask parse_mask(const std::string& text) { return parsed("--mask", "Mask::parse: ", text, Mask::parse); }

ScoreExpression parse_score_mod(const std::string& text) {
  return parsed("--score-mod", "ScoreExpression::parse: ", text, [](const std::string& words) { return ScoreExpression::parse(words); });
}

}  // namespace attn::cli
