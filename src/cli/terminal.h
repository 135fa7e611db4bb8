// src/cli/terminal.h: what the terminal and the environment ask for.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::cli {

/// Width and colours of stdout. `colour` is auto, always or never; auto means: a terminal, NO_COLOR not set, TERM not dumb.
TextOptions terminal_options(const std::string& colour);

/// zh when LC_ALL, LC_MESSAGES or LANG (the first that is set) begins with zh.
Language environment_language();

}  // namespace attn::cli
