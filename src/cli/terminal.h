// src/cli/terminal.h: what the terminal and the environment ask for.
#pragma once
#include <attn/explain.h>

#include <optional>
#include <string>

namespace attn::cli {

/// Width and colours of stdout. `colour` is auto, always or never; auto means: a terminal, NO_COLOR not set, TERM not
/// dumb.
TextOptions terminal_options(const std::string& colour);

/// "zh" by the names it is given: cn, zh-CN, zh_CN.UTF-8, Chinese, 中文; and English; nothing for others.
std::optional<Language> language_named(std::string name);

/// zh when LC_ALL, LC_MESSAGES or LANG (the first that is set) begins with zh.
Language environment_language();

}  // namespace attn::cli
