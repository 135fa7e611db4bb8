// src/io/checksum.h: 64 bits that change when any bit of a file does.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace attn::io {

/// XXH64 of the bytes (Collet, xxHash specification 0.1.1): 5 GB/s and more, and whatever changes within 8 bytes side
/// by side changes it.
std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace attn::io
