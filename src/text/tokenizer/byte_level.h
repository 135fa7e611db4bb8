// src/text/tokenizer/byte_level.h: bytes in JSON: each as a character that can be seen (GPT-2), or by its number
// (SentencePiece).
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace attn::text {

/// The characters of the 256 bytes, UTF-8: printable Latin-1 stands for itself, the others are U+0100 and up in turn.
const std::array<std::string, 256>& byte_characters();
/// The bytes in the order of their characters' code points: the first ids of a trained vocabulary.
const std::array<std::uint8_t, 256>& bytes_in_order();

/// Bytes as characters, and back; none when a character stands for no byte.
std::string to_byte_characters(std::string_view bytes);
std::optional<std::string> from_byte_characters(std::string_view characters);

/// "<0xE4>", and back, the digits in either case; -1 for what is no such name.
std::string name_of_byte(char byte);
int byte_of_name(std::string_view name);

}  // namespace attn::text
