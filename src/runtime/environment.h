// src/runtime/environment.h: declares the only functions that read environment variables.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace attn::runtime {

/// Returns the value of the variable; an empty value counts as not set.
std::optional<std::string> environment(const char* name);
/// Reads a whole number from `least` to `most`; returns nothing if the variable is not set. If the value is not
/// one, throws a ValueError that names the variable, its value and the range.
std::optional<std::int64_t> environment_integer(const char* name, std::int64_t least, std::int64_t most);
/// Returns true for "1", and false for "0" or if the variable is not set; throws ValueError for any other value.
bool environment_flag(const char* name);

}  // namespace attn::runtime
