// src/text/error_text.cc: prepares what users give (paths, names, notations, bytes of files) to be quoted in errors.
#include "text/error_text.h"

#include <attn/error.h>

#include "runtime/format.h"

#include "text/unicode.h"

namespace attn {
namespace text {
namespace {

// Lengths in bytes: of the longest text, and of the parts that a longer text keeps at its start (which shows what was
// given) and at its end (which shows what is needed).
constexpr std::size_t most = 1000, head = 640, tail = 340;

/// Returns whether this byte is the first of a character.
bool begins(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }

std::string shortened(std::string_view text) {
  std::size_t last = text.size() - tail;
  while (last < text.size() - tail + 4 && !begins(text[last])) ++last;
  return runtime::format("{} ... {}", beginning(text, head), text.substr(last));
}

}  // namespace

std::string_view beginning(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  std::size_t end = most;
  while (end > 0 && end + 4 > most && !begins(text[end])) --end;
  return text.substr(0, end);
}

std::string error_text(std::string_view text) {
  std::string shown;
  // cut first, so that only text that may be shown is read
  if (text.size() > 8 * most) shown = shortened(text), text = shown;
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    if (point.value == not_a_character) result += runtime::format("\\x{:02X}", static_cast<unsigned char>(text[at]));
    else if (steers(point.value))
      result += runtime::format(fmt::runtime(point.value < 0x100 ? "\\x{:02X}" : "\\u{:04X}"),
                                static_cast<std::uint32_t>(point.value));
    else result += text.substr(at, point.bytes);
    at += point.bytes;
  }
  return result.size() > most ? shortened(result) : result;
}

}  // namespace text

Error::Error(const std::string& text) : std::runtime_error(text::error_text(text)) {}
Error::Error(const std::string& text, const std::string& picture)
    : std::runtime_error(text::error_text(text) + picture) {}

}  // namespace attn
