// src/runtime/format.h: fmt's formatting, compiled once: its functions cost each file that compiled them two seconds.
#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

namespace attn::runtime {

std::string vformat(fmt::string_view pattern, fmt::format_args values);

/// fmt::format: the pattern is checked when it is compiled.
template <typename... T>
std::string format(fmt::format_string<T...> pattern, T&&... values) {
  return runtime::vformat(pattern, fmt::make_format_args(values...));
}

/// The elements of a range, each as "{}" shows it, with `separator` between them.
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
