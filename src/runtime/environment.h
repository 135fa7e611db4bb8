// src/runtime/environment.h: the only place that reads environment variables.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace attn::runtime {

/// Its value; an empty one counts as not set.
std::optional<std::string> environment(const char* name);
/// A whole number from `least` to `most`; ValueError names the variable, its value and the range.
std::optional<std::int64_t> environment_integer(const char* name, std::int64_t least, std::int64_t most);
/// "1" is true, "0" and not set are false; ValueError for anything else.
bool environment_flag(const char* name);

}  // namespace attn::runtime
