// src/verify/tile_call.h: runs a kernel on rows of a call whose relative products are made for it.
#pragma once
#include "attention/call/call.h"
#include "attention/relative/relative_terms.h"
#include "runtime/alignment.h"
#include "runtime/thread_scratch.h"

namespace attn::cases {

/// The relative products of a call, and the scratch that they need in addition to the kernel's `bytes`.
struct TileCall {
  const RelativeTerms* products;
  std::size_t bytes;
  RelativeTerms::TileMemory sizes = {};

  TileCall(const Call& call, std::size_t kernel_bytes)
      : products(call.bias.products.get()), bytes(runtime::aligned(kernel_bytes)) {
    if (products != nullptr) sizes = products->tile_memory(call.problem, kernels::query_block);
  }
  char* scratch() const { return static_cast<char*>(runtime::thread_scratch(bytes + sizes.bytes)); }
  /// Runs kernel(problem, tile) on the rows of a tile, with products as dense terms.
  template <typename F>
  void rows(const kernels::AttentionProblem& p, const kernels::Task& tile, char* scratch, F&& kernel) const {
    if (products == nullptr) kernel(p, tile);
    else products->rows(kernel, kernels::query_block, p, tile, sizes, scratch + bytes);
  }
};

}  // namespace attn::cases
