// src/text/tokenizer/byte_level.h: spells bytes as tokenizer.json does: each as a visible character (GPT-2), or by its
// number (SentencePiece).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn::text {

/// Returns for each of the 256 bytes a character in UTF-8. Bytes that are visible in Latin-1 (so not the space) stand
/// for themselves; the others become U+0100, U+0101, ... in order.
const std::array<std::string, 256>& byte_characters();
/// Returns the 256 bytes in the order of their characters' code points. In this order they are the first ids of a
/// trained vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

/// Convert bytes to these characters and back. from_byte_characters returns nullopt if a character stands for no byte.
std::string to_byte_characters(std::string_view bytes);
std::optional<std::string> from_byte_characters(std::string_view characters);

/// Convert a byte to its name, such as "<0xE4>", and back; the digits may be in either case. byte_of_name returns -1
/// for any other text.
std::string name_of_byte(char byte);
int byte_of_name(std::string_view name);

}  // namespace attn::text
