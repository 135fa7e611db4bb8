// src/cli/terminal.h: chooses width, colours and language from the terminal and the environment.
#pragma once
#include <attn/explain.h>

#include <optional>
#include <string>

namespace attn::cli {

/// Returns width and colours for stdout. `colour` is auto, always or never; auto gives colours if stdout is a terminal,
/// NO_COLOR is not set and TERM is not dumb.
TextOptions terminal_options(const std::string& colour);

/// Returns whether stderr is a terminal that can redraw a line.
bool can_redraw();

/// Returns zh for cn, zh-CN, zh_CN.UTF-8, Chinese or 中文, en for the names of English, and nullopt for others.
std::optional<Language> language_named(std::string name);

/// Returns zh if LC_ALL, LC_MESSAGES or LANG (the first of them that is set) begins with zh, else en.
Language environment_language();

}  // namespace attn::cli
