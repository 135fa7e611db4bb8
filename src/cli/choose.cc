// src/cli/choose.cc: one of several words, with help when it is none of them.
#include "cli/output.h"
#include "cli/suggest.h"
#include "cli/verbs.h"

#include <fmt/format.h>

#include <algorithm>

namespace attn::cli {

std::size_t choose(const std::string& option, const std::string& value, const std::vector<std::string>& choices) {
  const auto found = std::find(choices.begin(), choices.end(), value);
  if (found != choices.end()) return static_cast<std::size_t>(found - choices.begin());
  const std::string meant = nearest(value, choices);
  throw UsageError{fmt::format("{} has no \"{}\"; {}there are {}", option, value, meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                               fmt::join(choices, ", "))};
}

}  // namespace attn::cli
