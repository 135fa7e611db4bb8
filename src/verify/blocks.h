// src/verify/blocks.h: declares blocks of quantised weights for cases of products: the same bytes on every machine.
#pragma once
#include <attn/tensor.h>

#include "kernels/block_format.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace attn::cases {

/// The names of the formats in case lines, in the order of kernels::BlockFormat; the first is not a format.
std::span<const char* const> block_format_names();

/// The rows of a matrix [N, K] in blocks.
struct Blocks {
  kernels::BlockFormat format;
  std::vector<std::uint8_t> bytes;
  std::int64_t row_bytes;
  Tensor decoded;  // [N, K], f32
};
/// Makes N rows of K random weights up to about 2 (Q4_1 and the like: 3) in a format. ValueError if K is no multiple of
/// a block.
std::shared_ptr<const Blocks> random_blocks(const std::string& format, std::int64_t n, std::int64_t k,
                                            std::uint64_t seed);

}  // namespace attn::cases
