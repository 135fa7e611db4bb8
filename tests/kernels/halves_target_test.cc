// tests/kernels/halves_target_test.cc: every instruction set widens and narrows bf16 and f16 as the scalar conversions
// do, and touches no byte beside them.
#include "kernels/half.h"
#include "kernels/row_targets.h"
#include "support/guarded.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace attn::kernels {
namespace {

class EveryHalfTarget : public RowTargetTest {};

/// Every f32 that lies on the way between two halves, its neighbours, and bits drawn at random.
std::vector<std::uint32_t> words_to_round(Element half) {
  std::vector<std::uint32_t> words;
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const auto word =
        std::bit_cast<std::uint32_t>(half == Element::bf16 ? half::from_bf16(bits) : half::from_f16(bits));
    for (const std::uint32_t half_way : {0x8000u, 0x1000u})
      for (const std::uint32_t beside : {0u, 1u, ~0u})
        words.insert(words.end(), {word + beside, word + half_way + beside});
  }
  for (std::uint32_t word = 0x33000000u; word < 0x38800010u; word += 97) words.push_back(word);  // denormal f16
  std::mt19937 random(9);
  for (int i = 0; i < 100000; ++i) words.push_back(static_cast<std::uint32_t>(random()));
  return words;
}

TEST_P(EveryHalfTarget, HalvesAreWidenedAndNarrowedAsByHand) {
  std::vector<std::uint16_t> patterns(0x10000);
  std::iota(patterns.begin(), patterns.end(), std::uint16_t{0});
  for (const Element half : {Element::bf16, Element::f16}) {
    std::vector<std::uint32_t> wide(patterns.size());
    target().widen(half, patterns.data(), wide.data(), static_cast<std::int64_t>(patterns.size()));
    for (const std::uint16_t bits : patterns)
      ASSERT_EQ(wide[bits],
                std::bit_cast<std::uint32_t>(half == Element::bf16 ? half::from_bf16(bits) : half::from_f16(bits)))
          << bits;
    const std::vector<std::uint32_t> words = words_to_round(half);
    std::vector<std::uint16_t> narrow(words.size());
    target().narrow(half, words.data(), narrow.data(), static_cast<std::int64_t>(words.size()));
    for (std::size_t i = 0; i < words.size(); ++i) {
      const auto x = std::bit_cast<float>(words[i]);
      ASSERT_EQ(narrow[i], half == Element::bf16 ? half::to_bf16(x) : half::to_f16(x)) << std::hex << words[i];
    }
  }
}

TEST_P(EveryHalfTarget, HalvesAtTheEndOfMemory) {
  for (std::int64_t n = 0; n < 40; ++n) {
    const auto count = static_cast<std::size_t>(n);
    const testing::Guarded halves(2 * count), words(4 * count);
    std::memset(halves.data(), 0x3c, 2 * count);
    for (const Element half : {Element::bf16, Element::f16}) {
      target().widen(half, halves.data(), words.data(), n);
      std::memset(halves.data(), 0, 2 * count);
      target().narrow(half, words.data(), halves.data(), n);
      for (std::size_t i = 0; i < 2 * count; ++i) ASSERT_EQ(static_cast<const char*>(halves.data())[i], 0x3c) << n;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, EveryHalfTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryHalfTarget);

}  // namespace
}  // namespace attn::kernels
