// src/kernels/peak.h: declares loops that measure a core's peak: they only multiply and add, or only read memory.
#pragma once
#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// A loop of independent multiply-adds in registers. `run(rounds)` performs rounds * flops_per_round floating-point
/// operations.
struct PeakLoop {
  double flops_per_round = 0;  // 0: there is no such loop
  void (*run)(std::int64_t rounds) = nullptr;
};

struct PeakLoops {
  const char* name;
  PeakLoop fma_f32, fma_f64, dot_bf16;
  /// Reads `bytes` bytes, a multiple of 4,096, from the 64-byte aligned `data`.
  void (*read)(const void* data, std::size_t bytes);
};

/// Returns the loops of the target of that name; for any other name the loops in plain C++. `dot_bf16` of "avx512"
/// needs a processor with avx512_bf16.
const PeakLoops& peak_loops(const char* target) noexcept;

}  // namespace attn::kernels
