// src/attention/call/weights_text.cc: writes Weights as text and parses it: "full", "rows(0, 5)", "top_k(3)".
#include <attn/attention.h>
#include <attn/error.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <vector>

namespace attn {
namespace {

constexpr std::array<const char*, 6> names{"none", "full", "head_average", "column_sums", "rows", "top_k"};

/// Parses a list of numbers such as "0, 5"; `text` is the whole notation, for errors.
std::vector<std::int64_t> numbers_of(std::string_view list, const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (bool more = !list.empty(); more;) {
    std::string_view word = list.substr(0, list.find(','));
    more = word.size() < list.size();  // a number follows each comma
    list.remove_prefix(word.size() + (more ? 1 : 0));
    word.remove_prefix(std::min(word.find_first_not_of(' '), word.size()));
    word.remove_suffix(word.size() - (word.find_last_not_of(' ') + 1));
    std::int64_t value = 0;
    const auto [end, wrong] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (wrong != std::errc() || end != word.data() + word.size())
      throw ValueError(runtime::format("Weights::parse: {}: a number must be a whole number, not \"{}\"", text, word));
    numbers.push_back(value);
  }
  return numbers;
}

}  // namespace

Weights Weights::parse(const std::string& text) {
  const std::size_t open = text.find('(');
  const auto found = std::find(names.begin(), names.end(), text.substr(0, open));
  if (found == names.end())
    throw ValueError(runtime::format("Weights::parse: there is no \"{}\"; there are {}", text.substr(0, open),
                                     runtime::join(names, ", ")));
  const auto kind = static_cast<Kind>(found - names.begin());
  const bool listed = kind == row_subset || kind == largest;
  if (listed != (open != std::string::npos && text.ends_with(')')) || (!listed && open != std::string::npos))
    throw ValueError(
        runtime::format("Weights::parse: \"{}\"; rows take their numbers, rows(0, 5), top_k how many, "
                        "top_k(3), the others nothing",
                        text));
  if (!listed) return kind;
  const std::vector<std::int64_t> numbers =
      numbers_of(std::string_view(text).substr(open + 1, text.size() - open - 2), text);
  if (kind == row_subset) return rows(tensor<std::int64_t>(numbers));
  if (numbers.size() != 1) throw ValueError(runtime::format("Weights::parse: \"{}\"; top_k takes one number", text));
  return top_k(numbers[0]);
}

std::string Weights::to_string() const {
  const char* name = names[static_cast<std::size_t>(kind)];
  if (kind == largest) return runtime::format("{}({})", name, count);
  return kind == row_subset ? runtime::format("{}({})", name, runtime::join(indices.to_int_vector(), ", ")) : name;
}

}  // namespace attn
