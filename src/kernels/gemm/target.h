// src/kernels/gemm/target.h: the matrix product of one instruction set.
#pragma once
#include "kernels/reference.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// A product is cut into parts by its shape; each needs `scratch_bytes` of its thread's own scratch, 64-byte aligned.
struct GemmTarget {
  const char* name;
  std::int64_t (*parts)(const GemmProblem& problem) noexcept;
  std::size_t (*scratch_bytes)(const GemmProblem& problem) noexcept;
  void (*run)(const GemmProblem& problem, std::int64_t part, void* scratch) noexcept;
};

/// By name, or null when the target is not built in.
const GemmTarget* gemm_target(const char* name) noexcept;

}  // namespace attn::kernels
