// tests/cli/command.h: running the command as a user does, and reading what it said.
#pragma once
#include "support/folder.h"
#include "support/places.h"

#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace attn::testing {

struct Said {
  int code;
  std::string out, err;
};

/// The command, quoted for the shell.
inline const std::string attn_command = "'" + command_path() + "'";

/// Runs a line in the shell, in an English environment without colours.
inline Said shell(const std::string& line) {
  const Folder folder;
  const std::string err = folder.file("err");
  const std::string whole =
      "unset LC_ALL LC_MESSAGES NO_COLOR COLUMNS COLORTERM; export LANG=C; { " + line + "\n} 2>'" + err + "'";
  Said said{};
  FILE* pipe = ::popen(whole.c_str(), "r");
  char buffer[4096];
  for (std::size_t got; (got = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) said.out.append(buffer, got);
  const int status = ::pclose(pipe);
  said.code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  said.err = content_of(err);
  return said;
}

/// Runs `attn <arguments>`; `variables` are set for it alone ("LANG=zh_CN.UTF-8").
inline Said attn_says(const std::string& arguments, const std::string& variables = "") {
  return shell(variables + " " + attn_command + " " + arguments);
}

}  // namespace attn::testing
