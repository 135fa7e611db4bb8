// src/text/tokenizer/byte_level.cc: maps bytes to characters (GPT-2) and to names such as <0xE4> (SentencePiece), and
// back.
#include "text/tokenizer/byte_level.h"

#include "runtime/once.h"
#include "text/unicode.h"

#include "runtime/format.h"

#include <algorithm>
#include <charconv>

namespace attn::text {
namespace {

bool stands_for_itself(unsigned byte) { return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD); }

/// Encodes a character below U+0800 in UTF-8; all byte characters are below it.
std::string utf8(char32_t c) {
  if (c < 0x80) return std::string(1, static_cast<char>(c));
  return {static_cast<char>(0xC0 | c >> 6), static_cast<char>(0x80 | (c & 0x3F))};
}

struct Table {
  std::array<char32_t, 256> code_points{};
  std::array<std::string, 256> characters;
  std::array<std::uint8_t, 256> in_order{};
  std::array<int, 512> bytes{};  // indexed by code point; -1: none

  Table() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      code_points[byte] = stands_for_itself(byte) ? byte : next++;
      characters[byte] = utf8(code_points[byte]);
      bytes[code_points[byte]] = static_cast<int>(byte);
      in_order[byte] = static_cast<std::uint8_t>(byte);
    }
    std::sort(in_order.begin(), in_order.end(),
              [&](std::uint8_t a, std::uint8_t b) { return code_points[a] < code_points[b]; });
  }
};

const Table& table() {
  constinit static runtime::Once<Table> made;
  return made.get([] { return Table(); });
}

}  // namespace

const std::array<std::string, 256>& byte_characters() { return table().characters; }
const std::array<std::uint8_t, 256>& bytes_in_order() { return table().in_order; }

std::string to_byte_characters(std::string_view bytes) {
  std::string result;
  for (const char c : bytes) result += byte_characters()[static_cast<unsigned char>(c)];
  return result;
}

std::optional<std::string> from_byte_characters(std::string_view characters) {
  std::string result;
  for (std::size_t at = 0; at < characters.size();) {
    const CodePoint c = code_point_at(characters, at);
    if (c.value >= table().bytes.size() || table().bytes[c.value] < 0) return std::nullopt;
    result += static_cast<char>(table().bytes[c.value]);
    at += c.bytes;
  }
  return result;
}

std::string name_of_byte(char byte) { return runtime::format("<0x{:02X}>", static_cast<unsigned char>(byte)); }

int byte_of_name(std::string_view name) {
  if (name.size() != 6 || !name.starts_with("<0x") || name[5] != '>') return -1;
  unsigned byte = 0;  // unsigned: from_chars then accepts no sign
  const char* const end = name.data() + 5;
  return std::from_chars(name.data() + 3, end, byte, 16).ptr == end ? static_cast<int>(byte) : -1;
}

}  // namespace attn::text
