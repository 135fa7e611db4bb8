// src/text/tokenizer/byte_level.h: writes bytes in JSON, each as a visible character (GPT-2) or by its number
// (SentencePiece).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn::text {

/// Returns the characters of the 256 bytes in UTF-8: printable Latin-1 stands for itself, the other bytes are U+0100,
/// U+0101, ... in order.
const std::array<std::string, 256>& byte_characters();
/// Returns the bytes in the order of their characters' code points. They are the first ids of a trained vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

/// Convert bytes to characters and back; the second returns none if a character stands for no byte.
std::string to_byte_characters(std::string_view bytes);
std::optional<std::string> from_byte_characters(std::string_view characters);

/// Convert a byte to "<0xE4>" and back; the digits may be in either case. The second returns -1 for any other text.
std::string name_of_byte(char byte);
int byte_of_name(std::string_view name);

}  // namespace attn::text
