// tests/support/places.cc: the one file that knows the folders. Objects of all others are the same in every clone: a
// compiler cache has them.
#include "support/places.h"

namespace attn::testing {

std::string command_path() { return ATTN_COMMAND; }

std::string golden_path(std::string_view name) { return std::string(ATTN_GOLDEN_DIR "/") + std::string(name); }

}  // namespace attn::testing
