// src/text/error_text.h: the text of an error with what a user gave in it, as one line of bounded length.
#pragma once
#include <string>
#include <string_view>

namespace attn::text {

/// What could steer a terminal or end the line as \x1B or \u202E, bytes that are not UTF-8 as \xFF; beyond 1000 bytes
/// without its middle. What it gives stays as it is when it is given again.
std::string error_text(std::string_view text);

}  // namespace attn::text
