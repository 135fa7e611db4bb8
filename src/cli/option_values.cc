// src/cli/option_values.cc: parses option values (one of several words, a number, a mask, an expression) and refuses
// surplus arguments.
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>
#include <charconv>
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

std::pair<std::int64_t, std::int64_t> parse_block_sizes(const std::string& option, const std::string& text) {
  std::vector<std::int64_t> sizes;
  std::string numbers;
  for (const char c : text)
    if (c != '[' && c != ']' && c != ' ') numbers += c;
  const char *at = numbers.data(), *const end = at + numbers.size();
  for (std::int64_t size = 0; at < end; at += at < end) {
    const auto [stop, error] = std::from_chars(at, end, size);
    if (error != std::errc() || size < 1 || (stop < end && (*stop != ',' || stop + 1 == end))) break;
    sizes.push_back(size);
    at = stop;
  }
  if (at != end || sizes.empty() || sizes.size() > 2)
    throw UsageError{
        runtime::format("{}: \"{}\" is not understood; one whole number is needed, or two: rows,keys", option, text)};
  return {sizes.front(), sizes.back()};
}

Mask parse_blocks(const std::string& option, const std::string& text, std::pair<std::int64_t, std::int64_t> sizes) {
  std::vector<std::vector<std::int64_t>> lists(1);
  const char *at = text.data(), *const end = at + text.size();
  for (std::int64_t block = 0; at < end;) {
    if (*at == ' ' || *at == ',') {
      ++at;
    } else if (*at == ';') {
      lists.emplace_back(), ++at;
    } else {
      const auto [stop, error] = std::from_chars(at, end, block);
      if (error != std::errc() || block < 0)
        throw UsageError{runtime::format(
            "{}: \"{}\" is not understood; whole numbers are needed, with ; between blocks of rows: 0; 0 1; 0 2",
            option, text)};
      lists.back().push_back(block);
      at = stop;
    }
  }
  std::size_t most = 0;
  for (const std::vector<std::int64_t>& list : lists) most = std::max(most, list.size());
  std::vector<std::int64_t> indices;
  for (std::vector<std::int64_t>& list : lists) {
    list.resize(most, -1);
    indices.insert(indices.end(), list.begin(), list.end());
  }
  const auto rows = static_cast<std::int64_t>(lists.size()), width = static_cast<std::int64_t>(most);
  return Mask::blocks(tensor<std::int64_t>(indices, {1, 1, rows, width}), sizes.first, sizes.second);
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

std::vector<ExplainRelative> parse_relative(const std::string& option, const std::string& text) {
  return parsed(option + ":", "ExplainRelative::parse: ", text, ExplainRelative::parse);
}

Weights parse_weights(const std::string& option, const std::string& text) {
  choose(option, text.substr(0, text.find('(')), {"none", "full", "head_average", "column_sums", "rows", "top_k"});
  return parsed(option + ":", "Weights::parse: ", text, Weights::parse);
}

}  // namespace attn::cli
