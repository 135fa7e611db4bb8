// src/runtime/cpu.h: what this processor can do, asked once.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn::runtime {

/// A flag is set when the processor has the instructions and the system saves their registers.
struct Cpu {
  bool fma = false;
  bool avx2 = false;
  bool avx512 = false;       // F, BW, CD, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool amx_bf16 = false;     // tdpbf16ps; the system has let this process use tile registers
  bool neon = false;
  std::string name;
  int cores = 1;                      // those this process may use
  std::vector<std::string> features;  // /proc/cpuinfo's names of what matters to kernels: "avx2", "avx512_bf16", ...
};
const Cpu& cpu();

/// Kernels' targets that can run here, best first; the last is "scalar", the reference.
const std::vector<std::string>& targets();
/// The target in use: ATTN_TARGET (any case) when set, else the best. An unknown or unavailable one is a ValueError
/// that lists those there are. Asked of the environment once.
const std::string& target();
/// The instruction set of a target's kernels but for its products of bf16: "amx" has avx512's, every other its own.
constexpr std::string_view vectors_of(std::string_view target) { return target == "amx" ? "avx512" : target; }
/// The one of `available` that `requested` names in any case; ValueError as above.
const std::string& choose_target(std::string_view requested, const std::vector<std::string>& available);

}  // namespace attn::runtime
