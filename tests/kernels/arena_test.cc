// tests/kernels/arena_test.cc: scratch memory has the size that its layout uses, and its parts do not overlap.
#include "kernels/attention/backward_scratch.h"

#include <gtest/gtest.h>

#include <vector>

namespace attn::kernels {
namespace {

constexpr auto line = static_cast<std::int64_t>(Arena::alignment);

TEST(Arena, TakesWholeCacheLinesOneAfterAnother) {
  alignas(64) char memory[512];
  Arena arena(memory);
  EXPECT_EQ(static_cast<void*>(arena.take<char>(1)), memory);
  EXPECT_EQ(static_cast<void*>(arena.take<double>(8)), memory + line);
  EXPECT_EQ(static_cast<void*>(arena.take<float>(17)), memory + 2 * line);
  EXPECT_EQ(static_cast<void*>(arena.take<float>(0)), memory + 4 * line);
  EXPECT_EQ(arena.bytes(), 4u * line);
  Arena counting;
  counting.take<char>(1), counting.take<double>(8), counting.take<float>(17), counting.take<float>(0);
  EXPECT_EQ(counting.bytes(), arena.bytes());
}

struct Numbers {
  float* first;
  Numbers(Arena& arena, std::int64_t count) : first(arena.take<float>(count)) {}
};
struct Bytes {
  char* first;
  Bytes(Arena& arena, std::int64_t count) : first(arena.take<char>(count)) {}
};

TEST(Arena, ScratchBytesAreThoseOfAllParts) {
  EXPECT_EQ((scratch_bytes<Numbers, Bytes>(std::int64_t{33})), 3u * line + line);
  EXPECT_EQ(scratch_bytes<>(), 0u);
}

/// The parts of a scratch on memory of the size that is said to be enough.
template <class... Parts>
void expect_used(const AttentionProblem& p) {
  const std::size_t bytes = scratch_bytes<Parts...>(p);
  std::vector<char> memory(bytes + 64);
  const auto skip = (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  Arena arena(memory.data() + skip);
  (static_cast<void>(Parts(arena, p)), ...);
  EXPECT_EQ(arena.bytes(), bytes);
}

template <typename T>
struct TileOf : QueryTileScratch<T> {
  TileOf(Arena& arena, const AttentionProblem& p) : QueryTileScratch<T>(arena, p.dim, p.value_dim) {}
};

TEST(Arena, AScratchHasTheSizeThatItUses) {
  ScoreGradient gradient;
  gradient.program.places[4] = 3;
  for (const std::int64_t dim : {1, 15, 64, 80})
    for (const std::int64_t value_dim : {1, 33, 64})
      for (const ScoreGradient* derivatives : {static_cast<const ScoreGradient*>(nullptr), &std::as_const(gradient)}) {
        AttentionProblem p;
        p.dim = dim, p.value_dim = value_dim, p.k_rows = 100;
        p.sinks = &p;
        p.score_gradient = derivatives;
        expect_used<TileOf<float>>(p);
        expect_used<TileOf<double>>(p);
        expect_used<BackwardScratch<float>, GradientOperands<float>, AdditiveOperands<float>>(p);
        expect_used<BackwardScratch<double>, GradientOperands<double>, AdditiveOperands<double>>(p);
        expect_used<BackwardScratch<float>, Bf16GradientOperands>(p);
      }
}

/// One array ends where the next one begins, or before.
TEST(Arena, PartsDoNotOverlap) {
  AttentionProblem p;
  p.dim = 33, p.value_dim = 17;
  alignas(64) static char memory[1 << 20];
  ASSERT_LE(scratch_bytes<Bf16GradientOperands>(p), sizeof memory);
  Arena arena(memory);
  const Bf16GradientOperands at(arena, p);
  constexpr std::int64_t R = query_block, pairs = R / 2, wide = 64, value_wide = 32;
  const std::pair<const void*, std::int64_t> parts[] = {{at.q, 4 * pairs * wide},
                                                        {at.dout, 4 * R / 2 * value_wide},
                                                        {at.q_rows, 4 * pairs * wide},
                                                        {at.dout_rows, 4 * pairs * value_wide},
                                                        {at.k_rows, 4 * pairs * wide},
                                                        {at.weights, 4 * kv_block * pairs},
                                                        {at.derivative, 4 * kv_block * pairs},
                                                        {at.transposed, 4 * pairs * R},
                                                        {at.dq, 4 * R * wide},
                                                        {at.rows, 2 * R * wide},
                                                        {at.values, 2 * kv_block * value_wide}};
  const char* end = memory;
  for (const auto& [first, bytes] : parts) {
    EXPECT_GE(static_cast<const char*>(first), end);
    end = static_cast<const char*>(first) + bytes;
  }
  EXPECT_LE(end, memory + arena.bytes());
}

}  // namespace
}  // namespace attn::kernels
