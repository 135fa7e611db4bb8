// tests/support/places.h: declares where the build and the source tree keep the files that tests start and read.
#pragma once
#include <string>
#include <string_view>

namespace attn::testing {

/// Returns the path of this build's command attn.
std::string command_path();

/// Returns the path of tests/golden/<name>.
std::string golden_path(std::string_view name);

}  // namespace attn::testing
