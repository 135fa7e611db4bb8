// src/io/checksum.cc: implements XXH64 as its specification says: four lanes of 8 bytes, the merge of the lanes, the
// remaining bytes, the final mixing of bits (avalanche).
#include "io/checksum.h"

#include <bit>
#include <cstring>

namespace attn::io {
namespace {

constexpr std::uint64_t p1 = 0x9E3779B185EBCA87, p2 = 0xC2B2AE3D27D4EB4F, p3 = 0x165667B19E3779F9,
                        p4 = 0x85EBCA77C2B2AE63, p5 = 0x27D4EB2F165667C5;

template <typename T>
std::uint64_t take(const std::byte*& at) {
  T word;
  std::memcpy(&word, at, sizeof word);
  at += sizeof word;
  return word;
}

std::uint64_t mixed(std::uint64_t lane, std::uint64_t word) { return std::rotl(lane + word * p2, 31) * p1; }

}  // namespace

std::uint64_t xxh64(std::span<const std::byte> bytes, std::uint64_t seed) {
  const std::byte* at = bytes.data();
  std::size_t left = bytes.size();
  std::uint64_t hash = seed + p5;
  if (left >= 32) {
    std::uint64_t a = seed + p1 + p2, b = seed + p2, c = seed, d = seed - p1;
    for (; left >= 32; left -= 32) {
      a = mixed(a, take<std::uint64_t>(at));
      b = mixed(b, take<std::uint64_t>(at));
      c = mixed(c, take<std::uint64_t>(at));
      d = mixed(d, take<std::uint64_t>(at));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const std::uint64_t lane : {a, b, c, d}) hash = (hash ^ mixed(0, lane)) * p1 + p4;
  }
  hash += bytes.size();
  for (; left >= 8; left -= 8) hash = std::rotl(hash ^ mixed(0, take<std::uint64_t>(at)), 27) * p1 + p4;
  for (; left >= 4; left -= 4) hash = std::rotl(hash ^ take<std::uint32_t>(at) * p1, 23) * p2 + p3;
  for (; left > 0; --left) hash = std::rotl(hash ^ take<std::uint8_t>(at) * p5, 11) * p1;
  hash = (hash ^ hash >> 33) * p2;
  hash = (hash ^ hash >> 29) * p3;
  return hash ^ hash >> 32;
}

}  // namespace attn::io
