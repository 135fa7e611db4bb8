// src/cli/chinese.cc: finds a text in the tables of translations.
#include "cli/chinese.h"

#include "cli/terminal.h"

#include <initializer_list>

namespace attn::cli {
namespace {

/// Returns whether the text is the pattern with some texts in the place of each {}, and those texts.
bool matches(std::string_view pattern, std::string_view text, std::vector<std::string_view>& holes) {
  holes.clear();
  std::size_t hole = pattern.find("{}");
  if (hole == std::string_view::npos) return pattern == text;
  if (!text.starts_with(pattern.substr(0, hole))) return false;
  text.remove_prefix(hole);
  while (hole != std::string_view::npos) {
    pattern.remove_prefix(hole + 2);
    hole = pattern.find("{}");
    const std::string_view next = pattern.substr(0, hole);
    // the last literal text is at the end, the others at their first place
    const std::size_t at = hole != std::string_view::npos ? text.find(next)
                           : text.ends_with(next)         ? text.size() - next.size()
                                                          : std::string_view::npos;
    if (at == std::string_view::npos) return false;
    holes.push_back(text.substr(0, at));
    text.remove_prefix(at + next.size());
  }
  return true;
}

using Table = std::span<const Translation>;

/// Returns the first entry of the tables that a text matches, and what is in its holes; null if there is none.
const Translation* entry_of(std::initializer_list<Table> tables, std::string_view text,
                            std::vector<std::string_view>& holes) {
  for (const Table table : tables)
    for (const Translation& entry : table)
      if (matches(entry.english, text, holes)) return &entry;
  return nullptr;
}

std::string translated(std::initializer_list<Table> tables, std::string_view text) {
  std::vector<std::string_view> holes;
  if (const Translation* const entry = entry_of(tables, text, holes)) {
    const std::string_view chinese = entry->chinese;
    std::string result;
    for (std::size_t at = 0; at < chinese.size(); ++at) {
      if (chinese[at] != '{') {
        result += chinese[at];
        continue;
      }
      const std::string_view given = holes.at(static_cast<std::size_t>(chinese.at(at + 1) - '0'));
      const bool marked = chinese.at(at + 2) == '*';
      result += marked ? translated({chinese_decoder_reasons(), chinese_encoder_reasons(), chinese_reasons(),
                                     chinese_model_reasons(), chinese_decoder_errors(), chinese_encoder_errors(),
                                     chinese_errors(), chinese_model_errors()},
                                    given)
                       : std::string(given);
      at += marked ? 3 : 2;
    }
    return result;
  }
  return std::string(text);
}

}  // namespace

Language command_language(const std::vector<std::string>& arguments) {
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const std::string& word = arguments[n];
    if (word == "--") break;  // what follows is never an option
    std::string name;
    if (word == "--lang" && n + 1 < arguments.size()) name = arguments[n + 1];
    if (word.starts_with("--lang=")) name = word.substr(7);
    if (const auto named = language_named(name)) return *named;
  }
  return environment_language();
}

std::string error_in_chinese(std::string_view english) {
  return translated({chinese_decoder_errors(), chinese_encoder_errors(), chinese_errors(), chinese_model_errors()},
                    english);
}

std::string help_in_chinese(std::string_view english) {
  std::string result;
  while (!english.empty()) {
    const std::size_t end = english.find('\n');
    std::string_view line = english.substr(0, end);
    english.remove_prefix(end == std::string_view::npos ? english.size() : end + 1);
    // "  --name X      what it does": two spaces end the name
    const std::size_t name_end = line.starts_with("  ") ? line.find("  ", 2) : std::string_view::npos;
    const std::size_t words = name_end == std::string_view::npos ? 0 : line.find_first_not_of(' ', name_end);
    if (words != std::string_view::npos) result += line.substr(0, words), line.remove_prefix(words);
    result += translated({chinese_help()}, line) + "\n";
  }
  return result;
}

}  // namespace attn::cli
