// src/runtime/targets.cc: lists the instruction sets that this library has kernels for, and chooses the one in use.
#include <attn/error.h>
#include "runtime/format.h"

#include "runtime/cpu.h"
#include "runtime/environment.h"
#include "runtime/once.h"

#include <algorithm>

namespace attn::runtime {
namespace {

struct BuiltTarget {
  const char* name;
  bool (*runs_on)(const Cpu&);
};

/// Best first. A new set of kernels adds its line here. The reference code runs everywhere and comes last.
constexpr BuiltTarget built_targets[] = {
#if defined(__x86_64__)
    {"amx", [](const Cpu& cpu) { return cpu.amx_bf16; }},
    {"avx512", [](const Cpu& cpu) { return cpu.avx512; }},
    {"avx2", [](const Cpu& cpu) { return cpu.avx2 && cpu.fma; }},
#elif defined(__aarch64__)
    {"neon", [](const Cpu& cpu) { return cpu.neon; }},
#endif
    {"scalar", [](const Cpu&) { return true; }},
};

bool same_name(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

const std::vector<std::string>& targets() {
  constinit static Once<std::vector<std::string>> here;
  return here.get([] {
    std::vector<std::string> names;
    for (const BuiltTarget& built : built_targets)
      if (built.runs_on(cpu())) names.emplace_back(built.name);
    return names;
  });
}

const std::string& choose_target(std::string_view requested, const std::vector<std::string>& available) {
  const auto found = std::find_if(available.begin(), available.end(),
                                  [&](const std::string& name) { return same_name(name, requested); });
  if (found == available.end())
    throw ValueError(runtime::format("ATTN_TARGET is \"{}\"; kernels that can run here: {}", requested,
                                     runtime::join(available, ", ")));
  return *found;
}

const std::string& target() {
  constinit static Once<std::string> chosen;
  return chosen.get([] {
    const auto requested = environment("ATTN_TARGET");
    return requested ? choose_target(*requested, targets()) : targets().front();
  });
}

}  // namespace attn::runtime
