// tests/support/places.h: where the build and the source tree keep what tests start and read.
#pragma once
#include <string>
#include <string_view>

namespace attn::testing {

/// The command attn of this build.
std::string command_path();

/// tests/golden/<name>.
std::string golden_path(std::string_view name);

}  // namespace attn::testing
