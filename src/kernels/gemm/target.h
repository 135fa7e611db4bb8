// src/kernels/gemm/target.h: the matrix product of one instruction set.
#pragma once
#include "kernels/reference.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// A product (m and n above 0, columns of y neighbours) is cut into parts (tiles.h); each needs `scratch_bytes` of its
/// thread's own scratch, 64-byte aligned. B may have been packed before, piece by piece, into `packed_bytes` of aligned
/// memory.
struct GemmTarget {
  const char* name;
  bool has_pairs;  // takes bf16, on processors with vdpbf16ps; "amx": with tiles
  std::int64_t (*parts)(const GemmProblem& problem, bool packed) noexcept;
  std::size_t (*scratch_bytes)(const GemmProblem& problem, bool packed) noexcept;
  void (*run)(const GemmProblem& problem, std::int64_t part, void* scratch, const void* packed) noexcept;
  /// Whether A has to be packed as well, and B is best packed once before: then no part packs what another one does.
  bool (*packs_both)(const GemmProblem& problem) noexcept;
  std::int64_t (*pieces)(const GemmProblem& problem) noexcept;
  std::size_t (*packed_bytes)(const GemmProblem& problem) noexcept;
  void (*pack)(const GemmProblem& problem, std::int64_t piece, void* packed) noexcept;
};

/// By name, or null when the target is not built in.
const GemmTarget* gemm_target(const char* name) noexcept;

}  // namespace attn::kernels
