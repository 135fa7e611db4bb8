// src/text/error_text.h: makes error texts that quote the user: one line of limited length.
#pragma once
#include <string>
#include <string_view>

namespace attn::text {

/// Writes characters that could control a terminal or end the line as \x1B or \u202E, and bytes that are not UTF-8 as
/// \xFF. Shortens a text of more than 1000 bytes in its middle. A second call leaves its result unchanged.
std::string error_text(std::string_view text);

/// Returns the first `most` bytes of a text, for an error that quotes it; fewer if a character of UTF-8 would be cut.
std::string_view beginning(std::string_view text, std::size_t most);

}  // namespace attn::text
