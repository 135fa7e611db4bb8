// src/runtime/info.cc: collects the facts that `attn info` prints.
#include <attn/runtime.h>

#include "runtime/cpu.h"

namespace attn {
namespace {

std::string compiler() {
#if defined(__clang__)
  return "Clang " __clang_version__;
#elif defined(__GNUC__)
  return "GCC " __VERSION__;
#else
  return "unknown";
#endif
}

}  // namespace

Info info() {
  const runtime::Cpu& cpu = runtime::cpu();
  return {.version = version(),
          .numerics_version = numerics_version,
          .cpu = cpu.name,
          .features = cpu.features,
          .targets = runtime::targets(),
          .target = runtime::target(),
          .cores = cpu.cores,
          .threads = num_threads(),
          .compiler = compiler()};
}

}  // namespace attn
