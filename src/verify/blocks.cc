// src/verify/blocks.cc: makes random blocks of quantised weights whose scales are finite.
#include "verify/blocks.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "kernels/reference.h"
#include "runtime/format.h"

#include <algorithm>
#include <cstring>
#include <random>

namespace attn::cases {
namespace {

using kernels::BlockFormat;

constexpr const char* names[] = {"none", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K"};

/// Where the scales in f16 of a block are (-1: no second one), and their least value: 2^exponent.
struct Scales {
  std::int64_t first, second = -1;
  int exponent = -4;
};
Scales scales_of(BlockFormat format) {
  switch (format) {
    case BlockFormat::q8_0: return {0, -1, -7};
    case BlockFormat::q4_1:
    case BlockFormat::q5_1: return {0, 2};
    case BlockFormat::q4_k:
    case BlockFormat::q5_k: return {0, 2, -10};
    case BlockFormat::q6_k: return {208, -1, -12};
    default: return {0};
  }
}

}  // namespace

std::span<const char* const> block_format_names() { return names; }

std::shared_ptr<const Blocks> random_blocks(const std::string& format, std::int64_t n, std::int64_t k,
                                            std::uint64_t seed) {
  const auto place = std::find(std::begin(names), std::end(names), format) - std::begin(names);
  const auto kind = static_cast<BlockFormat>(place);
  const kernels::BlockSize size = kernels::block_size(kind);
  if (k % size.elements != 0)
    throw ValueError(
        runtime::format("case: K={} is no multiple of {}, the weights of a block of {}", k, size.elements, format));
  const std::int64_t count = n * (k / size.elements);
  Blocks blocks{kind, std::vector<std::uint8_t>(static_cast<std::size_t>(count * size.bytes)),
                k / size.elements * size.bytes, empty({n, k})};
  std::mt19937_64 random(seed);  // the standard says which numbers it gives
  std::generate(blocks.bytes.begin(), blocks.bytes.end(), [&] { return static_cast<std::uint8_t>(random() >> 56); });
  const Scales scales = scales_of(kind);
  for (std::int64_t i = 0; i < count; ++i)
    for (const std::int64_t at : {scales.first, scales.second}) {
      if (at < 0) continue;
      const auto half = static_cast<std::uint16_t>(((scales.exponent + 15) << 10) | static_cast<int>(random() >> 54));
      std::memcpy(blocks.bytes.data() + i * size.bytes + at, &half, sizeof half);
    }
  kernels::reference().decode_blocks(kind, blocks.bytes.data(), count, blocks.decoded.data<float>());
  return std::make_shared<const Blocks>(std::move(blocks));
}

}  // namespace attn::cases
