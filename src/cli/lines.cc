// src/cli/lines.cc: reads the lines of a file or of stdin one by one.
#include "cli/lines.h"

#include "cli/output.h"

#include <attn/error.h>

#include "runtime/format.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

namespace attn::cli {

Lines::Lines(const std::string& path) : name_(path == standard_stream ? "stdin" : path), from_(&std::cin) {
  if (path == standard_stream) {
    std::ios::sync_with_stdio(false);  // line by line it would be slow
    return;
  }
  const auto fail = [&](const std::string& why) { throw IoError(runtime::format("{}: {}", path, why)); };
  if (std::error_code unknown; std::filesystem::is_directory(path, unknown)) fail("Is a directory");
  file_.open(path, std::ios::binary);
  if (!file_) fail(std::strerror(errno));
  from_ = &file_;
}

bool Lines::next(std::string& line) {
  if (!std::getline(*from_, line)) {
    if (from_->bad()) throw IoError(runtime::format("{}: {}", name_, std::strerror(errno)));
    return false;
  }
  if (line.ends_with('\r')) line.pop_back();
  if (++count_ == 1) line = without_mark(std::move(line));
  return true;
}

}  // namespace attn::cli
