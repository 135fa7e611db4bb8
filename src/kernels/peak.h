// src/kernels/peak.h: what a core can do at most: loops that only multiply and add, or only read.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// A loop of independent multiply-adds in registers. `run(rounds)` performs rounds * flops_per_round of them.
struct PeakLoop {
  double flops_per_round = 0;  // 0: this processor has none
  void (*run)(std::int64_t rounds) = nullptr;
};

struct PeakLoops {
  const char* name;
  PeakLoop fma_f32, fma_f64, dot_bf16;
  /// Reads all of it, a multiple of 4,096 bytes, 64-byte aligned.
  void (*read)(const void* data, std::size_t bytes);
};

/// Of a target by name; of plain C++ where the name is that of no vector target.
const PeakLoops& peak_loops(const char* target) noexcept;

}  // namespace attn::kernels
