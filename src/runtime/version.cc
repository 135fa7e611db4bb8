// src/runtime/version.cc: returns the version, which comes from the file VERSION and is set nowhere else.
#include <attn/runtime.h>

namespace attn {

std::string version() { return ATTN_VERSION; }

}  // namespace attn
