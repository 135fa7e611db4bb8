// src/io/alone/write.cc: refuses to write, in builds that only read files (WebAssembly).
#include "io/write.h"

#include <attn/error.h>

#include "runtime/format.h"

namespace attn::io {

void write_whole(const char* function, const std::string& path, const std::vector<std::span<const std::byte>>&) {
  throw IoError(runtime::format("{}: {}: files can be read here, not written", function, path));
}

void remove_leftovers(const std::string&) {}

}  // namespace attn::io
