// src/cli/terminal.cc: finds width, colours and language from the terminal and the environment.
#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

namespace attn::cli {
namespace {

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

int columns() {
  winsize size{};
  if (::isatty(STDOUT_FILENO) && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const int asked = std::atoi(std::string(variable("COLUMNS")).c_str());
  return asked > 0 ? std::clamp(asked, 20, 1000) : 100;
}

}  // namespace

TextOptions terminal_options(const std::string& colour) {
  using Colour = TextOptions::Colour;
  TextOptions options;
  options.width = columns();
  const bool wanted =
      colour == "always" || (colour == "auto" && ::isatty(STDOUT_FILENO) && variable("NO_COLOR").empty() &&
                             !variable("TERM").empty() && variable("TERM") != "dumb");
  const std::string_view depth = variable("COLORTERM");
  if (wanted) options.colour = depth == "truecolor" || depth == "24bit" ? Colour::rgb : Colour::palette;
  return options;
}

bool can_redraw() { return ::isatty(STDERR_FILENO) && variable("TERM") != "dumb"; }

std::optional<Language> language_named(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
  const std::string language = name.substr(0, name.find_first_of("-_.@"));
  if (language == "zh" || language == "cn" || language == "chinese" || name == "中文") return Language::zh;
  if (language == "en" || language == "english") return Language::en;
  return std::nullopt;
}

Language environment_language() {
  for (const char* name : {"LC_ALL", "LC_MESSAGES", "LANG"})
    if (!variable(name).empty()) return variable(name).starts_with("zh") ? Language::zh : Language::en;
  return Language::en;
}

}  // namespace attn::cli
