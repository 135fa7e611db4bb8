// tests/support/resident.h: reads how many bytes of the process are in memory now, and the maximum since a moment.
#pragma once

#include <cstddef>
#include <fstream>
#include <string>

namespace attn::testing {

struct Resident {
  static void reset() { std::ofstream("/proc/self/clear_refs") << 5; }
  static std::size_t now() { return field("VmRSS"); }
  static std::size_t most() { return field("VmHWM"); }

 private:
  static std::size_t field(const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(name + ":")) return 1024 * std::stoul(line.substr(name.size() + 1));
    return 0;
  }
};

}  // namespace attn::testing
