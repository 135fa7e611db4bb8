// src/cli/option_values.cc: parses option values (one of several words, a number, a mask, an expression) and refuses
// surplus arguments.
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include "runtime/format.h"

#include <algorithm>
#include <cstdlib>

namespace attn::cli {

std::size_t choose(const std::string& option, const std::string& value, const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  const std::string meant = nearest(value, choices);
  throw UsageError{runtime::format("{} has no \"{}\"; {}there are {}", option, value,
                                   meant.empty() ? "" : runtime::format("did you mean {}? ", meant),
                                   runtime::join(choices, ", "))};
}

std::string whole_number(const std::string& value) {
  const std::size_t digits = value.starts_with("-") ? 1 : 0;
  const bool whole = value.size() > digits && value.find_first_not_of("0123456789", digits) == std::string::npos;
  if (whole && value.size() - digits <= 18) return "";
  return runtime::format("must be a whole number{}, not \"{}\"", whole ? " of at most 18 digits" : "", value);
}

std::string number(const std::string& value) {
  char* end = nullptr;
  std::strtod(value.c_str(), &end);
  return value.empty() || *end != '\0' ? runtime::format("must be a number, not \"{}\"", value) : "";
}

std::string file_name(const std::string& value) {
  return value.empty() ? "must name a file, or be - for stdout, not \"\"" : "";
}

void no_more(const std::vector<std::string>& rest) {
  if (!rest.empty()) throw UsageError{runtime::format("\"{}\" is one argument too many", rest.front())};
}

namespace {

/// Returns parse(text); a ValueError becomes a UsageError that names the option.
template <typename F>
auto parsed(const std::string& option, std::string_view parser, const std::string& text, F parse) {
  try {
    return parse(text);
  } catch (const ValueError& error) {
    const std::string_view what = error.what();
    throw UsageError{runtime::format("{} {}", option, what.starts_with(parser) ? what.substr(parser.size()) : what)};
  }
}

}  // namespace

Mask parse_mask(const std::string& option, const std::string& text) {
  return parsed(option, "Mask::parse: ", text, Mask::parse);
}

ScoreExpression parse_score_mod(const std::string& option, const std::string& text,
                                const std::vector<std::pair<std::string, Tensor>>& tables) {
  return parsed(option, "ScoreExpression::parse: ", text,
                [&](const std::string& words) { return ScoreExpression::parse(words, tables); });
}

Dtype parse_dtype(const std::string& option, const std::string& text) {
  return parsed(option + ":", "dtype_from_name: ", text, dtype_from_name);
}

Normalizer parse_normalizer(const std::string& option, const std::string& text) {
  choose(option, text.substr(0, text.find('(')),
         {"softmax", "softmax1", "sigmoid", "sparsemax", "entmax15", "relu_squared"});
  return parsed(option + ":", "Normalizer::parse: ", text, Normalizer::parse);
}

Weights parse_weights(const std::string& option, const std::string& text) {
  choose(option, text.substr(0, text.find('(')), {"none", "full", "head_average", "column_sums", "rows", "top_k"});
  return parsed(option + ":", "Weights::parse: ", text, Weights::parse);
}

}  // namespace attn::cli
