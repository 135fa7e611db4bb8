// src/text/tokenizer/charsmap.cc: reads SentencePiece's precompiled_charsmap and applies its replacements.
#include "text/tokenizer/charsmap.h"

#include <attn/text.h>

#include "runtime/format.h"
#include "text/tokenizer/graphemes.h"

namespace attn::text {
namespace {

// A unit of the double array (Darts-clone) is a node or a value. A node has its label, whether a value belongs to it,
// and where its children begin. A value has the highest bit set.
bool is_value(std::uint32_t unit) { return unit >> 31 != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFF; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FF; }
bool has_value(std::uint32_t unit) { return (unit >> 8 & 1) != 0; }
std::size_t offset_of(std::uint32_t unit) { return static_cast<std::size_t>(unit >> 10) << (unit >> 6 & 8); }

std::uint32_t u32_at(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::size_t characters_of(std::string_view text) {
  std::size_t count = 0;
  for (std::size_t at = 0; at < text.size(); at += code_point_at(text, at).bytes) ++count;
  return count;
}

constexpr std::size_t longest_cluster = 5;  // bytes; longer ones are replaced character by character

}  // namespace

std::string Charsmap::read(std::string_view bytes) {
  if (bytes.size() < 4) return runtime::format("it has {} bytes; its head alone has 4", bytes.size());
  const std::size_t size = u32_at(bytes, 0) / 4;
  bytes.remove_prefix(4);
  if (size == 0 || size > bytes.size() / 4)
    return runtime::format("its trie should have {} units of 4 bytes; {} bytes follow", size, bytes.size());
  for (std::size_t i = 0; i < size; ++i) units_.push_back(u32_at(bytes, 4 * i));
  replacements_ = bytes.substr(4 * size);
  if (invalid_utf8(replacements_)) return "its replacements are not UTF-8";
  if (is_value(units_[0])) return "its trie begins with a value";
  for (std::size_t i = 0; i < size; ++i) {
    const std::uint32_t unit = units_[i];
    if (is_value(unit)) continue;
    const std::size_t children = i ^ offset_of(unit);
    if ((children | 0xFF) >= size) return runtime::format("unit {} of its trie points behind the end", i);
    if (!has_value(unit)) continue;
    const std::uint32_t at = value_of(units_[children]);
    const bool inside = at < replacements_.size() && (static_cast<unsigned char>(replacements_[at]) & 0xC0) != 0x80;
    if (!inside) return runtime::format("unit {} of its trie names the replacement at {}, which is none", i, at);
  }
  return "";
}

template <typename Found>
void Charsmap::beginnings(std::string_view text, const Found& found) const {
  std::size_t at = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto label = static_cast<unsigned char>(text[i]);
    if (label == 0) return;
    at ^= label;
    const std::uint32_t unit = units_[at];
    if (label_of(unit) != label) return;
    at ^= offset_of(unit);
    if (!has_value(unit)) continue;
    const std::string_view rest = std::string_view(replacements_).substr(value_of(units_[at]));
    if (!found(rest.substr(0, rest.find('\0')), i + 1)) return;
  }
}

/// Returns the replacement of the shortest beginning of `part` that is in the table.
std::optional<std::string_view> Charsmap::replacement(std::string_view part) const {
  std::optional<std::string_view> shortest;
  beginnings(part, [&](std::string_view by, std::size_t) {
    shortest = by;
    return false;
  });
  return shortest;
}

std::optional<std::pair<std::string_view, std::size_t>> Charsmap::longest(std::string_view text) const {
  std::optional<std::pair<std::string_view, std::size_t>> result;
  beginnings(text, [&](std::string_view by, std::size_t bytes) {
    result = {by, bytes};
    return true;
  });
  return result;
}

Rewritten Charsmap::applied(const Rewritten& from) const {
  Rewriter rewriter(from);
  const auto replace = [&](std::string_view old, std::string_view by) {
    const std::size_t old_characters = characters_of(old);
    const auto had = static_cast<std::ptrdiff_t>(old_characters), has = static_cast<std::ptrdiff_t>(characters_of(by));
    if (by.empty()) return rewriter.leave_out(old_characters);
    std::ptrdiff_t index = 0;
    for (std::size_t at = 0; at < by.size(); ++index) {
      const CodePoint c = code_point_at(by, at);
      at += c.bytes;
      // If the replacement is longer, its further characters are inserted; if it is shorter, its last one also replaces
      // the rest.
      const std::ptrdiff_t change = index >= had ? 1 : index + 1 == has && has < had ? has - had : 0;
      rewriter.add(c.value, static_cast<int>(change));
    }
  };
  const std::string_view text = from.text;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = grapheme_end(text, at);
    if (end - at <= longest_cluster)
      if (const auto by = replacement(text.substr(at, end - at))) {
        replace(text.substr(at, end - at), *by);
        at = end;
        continue;
      }
    while (at < end) {
      const CodePoint c = code_point_at(text, at);
      if (const auto by = replacement(text.substr(at, c.bytes))) replace(text.substr(at, c.bytes), *by);
      else rewriter.add(c.value, 0);
      at += c.bytes;
    }
  }
  return rewriter.finish();
}

}  // namespace attn::text
