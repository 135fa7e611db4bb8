// src/runtime/environment.cc: reads environment variables and checks their values.
#include "runtime/environment.h"

#include <attn/error.h>
#include "runtime/format.h"

#include <charconv>
#include <cstdlib>

namespace attn::runtime {

std::optional<std::string> environment(const char* name) {
  const char* value = std::getenv(name);
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

std::optional<std::int64_t> environment_integer(const char* name, std::int64_t least, std::int64_t most) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  std::int64_t value = 0;
  const char* end = text->data() + text->size();
  const auto [stop, error] = std::from_chars(text->data(), end, value);
  if (error != std::errc() || stop != end || value < least || value > most)
    throw ValueError(
        runtime::format("{} is \"{}\"; it must be a whole number from {} to {}", name, *text, least, most));
  return value;
}

bool environment_flag(const char* name) {
  const auto text = environment(name);
  if (!text || *text == "0") return false;
  if (*text == "1") return true;
  throw ValueError(runtime::format("{} is \"{}\"; it must be 0 or 1", name, *text));
}

}  // namespace attn::runtime
