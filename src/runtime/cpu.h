// src/runtime/cpu.h: what this processor can do, asked once.
#pragma once
#include <string>
#include <vector>

namespace attn::runtime {

struct Cpu {
  bool fma = false;
  bool avx2 = false;
  bool avx512 = false;       // F, BW, CD, DQ, VL
  bool avx512_bf16 = false;  // vdpbf16ps
  bool neon = false;
  std::string name;
  int cores = 1;
};
const Cpu& cpu();

/// Kernels' targets that can run here, best first; the last is "scalar", the reference.
const std::vector<std::string>& targets();
/// The target in use: ATTN_TARGET (any case) when set, else the best. An unknown or unavailable one is a ValueError that
/// lists those there are.
const std::string& target();

}  // namespace attn::runtime
