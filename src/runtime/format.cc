// src/runtime/format.cc: compiles fmt; no other file does.
#define FMT_HEADER_ONLY  // users then need not link a fmt library
#include <fmt/format.h>

#include "runtime/format.h"

namespace attn::runtime {

std::string vformat(fmt::string_view pattern, fmt::format_args values) { return fmt::vformat(pattern, values); }

}  // namespace attn::runtime
