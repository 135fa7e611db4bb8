// tests/support/places.cc: returns paths in the folders of build and source. No other file of tests/support has such
// paths, so their objects are the same in every clone, and a compiler cache can reuse them.
#include "support/places.h"

namespace attn::testing {

std::string command_path() { return ATTN_COMMAND; }

std::string golden_path(std::string_view name) { return std::string(ATTN_GOLDEN_DIR "/") + std::string(name); }

}  // namespace attn::testing
