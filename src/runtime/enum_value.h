// src/runtime/enum_value.h: refuses a number that is no value of its enumeration.
#pragma once
#include <attn/error.h>

#include "runtime/format.h"

#include <utility>

namespace attn::runtime {

/// Throws ValueError if `value` is not one of the enumeration's, which go from 0 to `last`: a wrong cast, or memory
/// that was never set. The pattern and its values name the argument and its function.
template <typename Enum, typename... T>
void check_enum(Enum value, Enum last, fmt::format_string<T...> what, T&&... values) {
  if (value < Enum{} || value > last)
    throw ValueError(runtime::format("{} is {}; the enumeration has no such value",
                                     runtime::format(what, std::forward<T>(values)...), static_cast<int>(value)));
}

}  // namespace attn::runtime
