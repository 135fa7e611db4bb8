// src/runtime/cpu.cc: reads CPUID, the registers that the system saves (XGETBV), and the name of the processor.
#include "runtime/cpu.h"

#include <algorithm>
#include <cstdint>
#include <fstream>

#include "runtime/cores.h"
#include "runtime/once.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace attn::runtime {
namespace {

#if defined(__x86_64__)

struct Registers {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

/// Returns the mask of the registers that the system saves (XCR0).
std::uint64_t saved_registers(const Registers& leaf1) {
  constexpr std::uint32_t osxsave = 1u << 27;
  if (!(leaf1.ecx & osxsave)) return 0;
  std::uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

/// Asks Linux to let this process use tile registers. They add 8 KB of state to every thread, so Linux saves them only
/// for processes that request them. It refuses if the signal stack of a thread is too small for them.
bool granted_tiles() {
  // ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA of the kernel's asm/prctl.h
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

void detect(Cpu& cpu) {
  const Registers l1 = cpuid(1, 0), l7 = cpuid(7, 0), l71 = cpuid(7, 1);
  const std::uint64_t saved = saved_registers(l1);
  const bool ymm = (saved & 0x6) == 0x6, zmm = (saved & 0xE6) == 0xE6, tiles = (saved & 0x60000) == 0x60000;
  const struct {
    const char* name;
    bool saved;
    std::uint32_t word;
    int bit;
  } known[] = {
      {"sse4_2", true, l1.ecx, 20},     {"avx", ymm, l1.ecx, 28},         {"f16c", ymm, l1.ecx, 29},
      {"fma", ymm, l1.ecx, 12},         {"avx2", ymm, l7.ebx, 5},         {"avx_vnni", ymm, l71.eax, 4},
      {"avx512f", zmm, l7.ebx, 16},     {"avx512bw", zmm, l7.ebx, 30},    {"avx512cd", zmm, l7.ebx, 28},
      {"avx512dq", zmm, l7.ebx, 17},    {"avx512vl", zmm, l7.ebx, 31},    {"avx512_vnni", zmm, l7.ecx, 11},
      {"avx512_bf16", zmm, l71.eax, 5}, {"avx512_fp16", zmm, l7.edx, 23}, {"amx_tile", tiles, l7.edx, 24},
      {"amx_bf16", tiles, l7.edx, 22},
  };
  for (const auto& feature : known)
    if (feature.saved && (feature.word >> feature.bit & 1)) cpu.features.emplace_back(feature.name);
  const auto has = [&](const char* name) {
    return std::find(cpu.features.begin(), cpu.features.end(), name) != cpu.features.end();
  };
  cpu.fma = has("fma");
  cpu.avx2 = has("avx2");
  cpu.avx512 = has("avx512f") && has("avx512bw") && has("avx512cd") && has("avx512dq") && has("avx512vl");
  cpu.avx512_bf16 = cpu.avx512 && has("avx512_bf16");
  cpu.amx_bf16 = cpu.avx512_bf16 && has("amx_tile") && has("amx_bf16") && granted_tiles();
}

#elif defined(__aarch64__)

void detect(Cpu& cpu) {
  const unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  cpu.neon = first & HWCAP_ASIMD;
  cpu.fma = cpu.neon;
  if (cpu.neon) cpu.features.emplace_back("asimd");
  if (first & HWCAP_ASIMDHP) cpu.features.emplace_back("asimdhp");
  if (first & HWCAP_SVE) cpu.features.emplace_back("sve");
  if (second & HWCAP2_SVE2) cpu.features.emplace_back("sve2");
  if (second & HWCAP2_BF16) cpu.features.emplace_back("bf16");
}

#else

void detect(Cpu&) {}

#endif

/// Returns "model name" of /proc/cpuinfo, without surrounding blanks.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    const auto end = line.find_last_not_of(" \t\r");
    if (begin != std::string::npos) return line.substr(begin, end - begin + 1);
  }
  return "unknown";
}

}  // namespace

const Cpu& cpu() {
  constinit static Once<Cpu> here;
  return here.get([] {
    Cpu result;
    detect(result);
    result.name = processor_name();
    result.cores = usable_cores();
    return result;
  });
}

}  // namespace attn::runtime
