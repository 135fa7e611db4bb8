// src/runtime/cpu.h: reports the features of this processor; they are read once.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn::runtime {

/// A flag is set if the processor has the instructions and the system saves the registers that they use.
struct Cpu {
  bool fma = false;
  bool avx2 = false;
  bool avx512 = false;       // F, BW, CD, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool amx_bf16 = false;     // tdpbf16ps; set only if the system lets this process use tile registers
  bool neon = false;
  std::string name;
  int cores = 1;  // cores that this process may use
  // the features that matter to kernels, with the names of /proc/cpuinfo: "avx2", "avx512_bf16", ...
  std::vector<std::string> features;
};
const Cpu& cpu();

/// Returns the targets whose kernels can run here, best first. The last is "scalar", the reference code.
const std::vector<std::string>& targets();
/// Returns the target in use: ATTN_TARGET (upper or lower case) if it is set, else the best target. An unknown or
/// unavailable target is a ValueError that lists the available ones. The environment is read once.
const std::string& target();
/// Returns the instruction set of a target's kernels, except of its bf16 products: "avx512" for "amx", the target
/// itself for all others.
constexpr std::string_view vectors_of(std::string_view target) { return target == "amx" ? "avx512" : target; }
/// Returns the element of `available` that `requested` names in upper or lower case; throws ValueError as `target`
/// does.
const std::string& choose_target(std::string_view requested, const std::vector<std::string>& available);

}  // namespace attn::runtime
