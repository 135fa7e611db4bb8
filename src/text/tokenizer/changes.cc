// src/text/tokenizer/changes.cc: applies the steps of a normalizer to a text.
#include "text/tokenizer/changes.h"

#include "text/tokenizer/nfc.h"

namespace attn::text {

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  std::size_t at = 0;
  for (std::size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    result.append(text, at, found - at).append(to);
    at = found + from.size();
  }
  return result.append(text, at);
}

std::string changed(const std::vector<Change>& changes, std::string_view text) {
  std::string result(text);
  for (const Change& change : changes) switch (change.kind) {
      case Change::Kind::nfc: result = nfc(result); break;
      case Change::Kind::prepend:
        if (!result.empty()) result.insert(0, change.to);
        break;
      case Change::Kind::replace: result = replaced(result, change.from, change.to); break;
    }
  return result;
}

}  // namespace attn::text
