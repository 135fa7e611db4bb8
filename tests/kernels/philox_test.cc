// tests/kernels/philox_test.cc: the generator by counter against the known answers of its authors (Random123,
// kat_vectors).
#include "kernels/philox.h"

#include <gtest/gtest.h>

#include <array>

namespace attn::kernels {
namespace {

using Four = std::array<std::uint32_t, 4>;

Four words(const Four& counter, std::uint64_t seed) {
  std::uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};
  Philox(seed).words(c);
  return {c[0], c[1], c[2], c[3]};
}

TEST(Philox, HasTheKnownAnswers) {
  EXPECT_EQ(words({0, 0, 0, 0}, 0), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(words({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffffffffffff),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(words({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0x299f31d0a4093822),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

}  // namespace
}  // namespace attn::kernels
