// src/runtime/version.cc: the one place the version comes from (the file VERSION).
#include <attn/runtime.h>

namespace attn {

std::string version() { return ATTN_VERSION; }

}  // namespace attn
