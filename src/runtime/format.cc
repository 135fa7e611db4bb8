// src/runtime/format.cc: the one file that compiles fmt.
#define FMT_HEADER_ONLY  // no library that users would have to link
#include <fmt/format.h>

#include "runtime/format.h"

namespace attn::runtime {

std::string vformat(fmt::string_view pattern, fmt::format_args values) { return fmt::vformat(pattern, values); }

}  // namespace attn::runtime
