// tests/support/random_blocks.h: fills memory with random blocks of quantised weights.
#pragma once
#include "kernels/block_format.h"
#include "kernels/half.h"

#include <cstring>
#include <random>

namespace attn::testing {

/// `any`: all bits are random, so that scales may be infinite, NaN or subnormal. Otherwise weights are of magnitude
/// 0.1.
inline void fill_with_blocks(kernels::BlockFormat format, void* memory, std::int64_t count, bool any,
                             std::mt19937& random) {
  using enum kernels::BlockFormat;
  const kernels::BlockSize size = kernels::block_size(format);
  const bool groups = format == q4_k || format == q5_k, least = groups || format == q4_1 || format == q5_1;
  std::uniform_real_distribution<float> value(0.5, 1);
  auto* at = static_cast<std::uint8_t*>(memory);
  for (std::int64_t i = 0; i < count; ++i, at += size.bytes) {
    for (std::int64_t byte = 0; byte < size.bytes; ++byte) at[byte] = static_cast<std::uint8_t>(random());
    if (any) continue;
    const float most = format == q8_0 ? 127 : format == q6_k ? 32 * 127 : groups ? 16 * 63 : 16;
    const std::uint16_t scale = half::to_f16(value(random) * 0.1f / most),
                        off = half::to_f16(value(random) * (groups ? 0.05f / 63 : -0.05f));
    std::memcpy(at + (format == q6_k ? 208 : 0), &scale, 2);
    if (least) std::memcpy(at + 2, &off, 2);
  }
}

}  // namespace attn::testing
