// src/io/checksum.h: computes a 64-bit checksum of a file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace attn::io {

/// Computes XXH64 of the bytes (Collet, xxHash specification 0.1.1). A random change of the bytes leaves the result
/// unchanged with a probability of about 2^-64.
std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace attn::io
