// src/kernels/gemm/target.h: declares the matrix-product functions of one instruction set.
#pragma once
#include "kernels/reference.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// A product (m and n above 0, columns of y adjacent) is split into parts (tiles.h). Each part needs `scratch_bytes` of
/// its thread's own scratch, 64-byte aligned. B may be packed before, piece by piece, into `packed_bytes` of aligned
/// memory.
struct GemmTarget {
  const char* name;
  bool has_pairs;  // accepts bf16, on processors with vdpbf16ps; "amx": with AMX tiles
  std::int64_t (*parts)(const GemmProblem& problem, bool packed) noexcept;
  std::size_t (*scratch_bytes)(const GemmProblem& problem, bool packed) noexcept;
  void (*run)(const GemmProblem& problem, std::int64_t part, void* scratch, const void* packed) noexcept;
  /// Returns whether all threads should pack B once before the product, because otherwise several parts would pack the
  /// same data of B. Without AMX this is so only if A must be packed too.
  bool (*packs_both)(const GemmProblem& problem) noexcept;
  std::int64_t (*pieces)(const GemmProblem& problem) noexcept;
  std::size_t (*packed_bytes)(const GemmProblem& problem) noexcept;
  void (*pack)(const GemmProblem& problem, std::int64_t piece, void* packed) noexcept;
};

/// Returns the target of that name; null if it is not built in.
const GemmTarget* gemm_target(const char* name) noexcept;

}  // namespace attn::kernels
