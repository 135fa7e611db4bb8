// src/runtime/format.h: declares fmt's formatting, which one file compiles; compiling it in a file takes two seconds.
#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

namespace attn::runtime {

std::string vformat(fmt::string_view pattern, fmt::format_args values);

/// Formats as fmt::format does; the pattern is checked at compile time.
template <typename... T>
std::string format(fmt::format_string<T...> pattern, T&&... values) {
  return runtime::vformat(pattern, fmt::make_format_args(values...));
}

/// Joins the elements of a range, each formatted with "{}", with `separator` between them.
template <typename Range>
std::string join(const Range& range, std::string_view separator) {
  std::string result;
  for (bool first = true; const auto& element : range) {
    if (!first) result += separator;
    first = false;
    result += format("{}", element);
  }
  return result;
}

}  // namespace attn::runtime
