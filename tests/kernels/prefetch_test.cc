// tests/kernels/prefetch_test.cc: every cache line of a range is prefetched once, whatever the tiles take at a time.
#include "kernels/prefetch/range_prefetch.h"

#include <gtest/gtest.h>

#include <vector>

namespace attn::kernels {
namespace {

constexpr std::int64_t line = PrefetchRanges::line;

/// The memory is never read: any address will do.
const void* at(std::int64_t bytes) { return reinterpret_cast<const void*>(static_cast<Address>(bytes)); }

std::vector<std::int64_t> lines_of(PrefetchRanges ranges, std::int64_t together) {
  std::vector<std::int64_t> lines;
  while (ranges.lines() > 0) {
    const std::int64_t count = std::min(together, ranges.together()), step = ranges.step();
    const auto first = static_cast<std::int64_t>(ranges.take(count));
    for (std::int64_t n = 0; n < count; ++n) lines.push_back(first + n * step);
  }
  return lines;
}

TEST(PrefetchRanges, GivesEveryLineOnce) {
  PrefetchRanges ranges;
  ranges.add({at(4096), 256, 256, 3});   // 12 adjacent lines
  ranges.add({at(8192), 100, 1024, 3});  // two lines of each of three rows
  ranges.add({nullptr, 64, 64, 1});
  ranges.add({at(64), 64, 64, 0});
  ASSERT_EQ(ranges.lines(), 18);
  std::vector<std::int64_t> expected;
  for (std::int64_t n = 0; n < 12; ++n) expected.push_back(4096 + n * line);
  for (std::int64_t n = 0; n < 6; ++n) expected.push_back(8192 + n % 3 * 1024 + n / 3 * line);
  for (const std::int64_t together : {1, 2, 5, 64}) EXPECT_EQ(lines_of(ranges, together), expected) << together;
}

TEST(PrefetchRanges, LeavesOutWhatDoesNotFitIn) {
  PrefetchRanges ranges;
  for (int n = 0; n < PrefetchRanges::most_ranges + 2; ++n) ranges.add({at(4096 * (n + 1)), line, line, 1});
  EXPECT_EQ(ranges.lines(), PrefetchRanges::most_ranges);
  ranges.clear();
  EXPECT_EQ(ranges.lines(), 0);
}

/// The lines that tiles of `steps` steps prefetch until nothing is left, without the line that they read themselves.
std::vector<std::int64_t> spread(TilePrefetch& prefetch, std::int64_t steps, int tiles) {
  constexpr std::int64_t here = 64;
  std::vector<std::int64_t> lines;
  for (int n = 0; n < tiles; ++n) {
    const StepPrefetch tile = prefetch.spread(steps, at(here));
    for (std::int64_t step = 0, last = 0; step < steps; ++step) {
      const std::int64_t next = (static_cast<std::int64_t>(tile.at) + step * tile.step) / line * line;
      if (next != here && next != last) lines.push_back(next);
      last = next;
    }
  }
  return lines;
}

TEST(TilePrefetch, SpreadsAdjacentLinesOverTheTilesOfAllBlocks) {
  TilePrefetch prefetch;
  prefetch.later.add({at(1 << 20), 100 * line, 100 * line, 1});
  prefetch.begin(10, 2);  // six lines a tile: every third tile prefetches 18
  std::vector<std::int64_t> expected;
  for (std::int64_t n = 0; n < 100; ++n) expected.push_back((1 << 20) + n * line);
  EXPECT_EQ(spread(prefetch, 64, 20), expected);
  EXPECT_EQ(prefetch.later.lines(), 0);
}

TEST(TilePrefetch, TakesALineOfEachRowOfPiecesWithGaps) {
  TilePrefetch prefetch;
  prefetch.begin(10, 1);
  prefetch.soon.add({at(1 << 20), 2 * line, 4096, 64});
  prefetch.begin_block();
  std::vector<std::int64_t> expected;
  for (std::int64_t n = 0; n < 128; ++n) expected.push_back((1 << 20) + n % 64 * 4096 + n / 64 * line);
  EXPECT_EQ(spread(prefetch, 64, 2), std::vector<std::int64_t>(expected.begin(), expected.begin() + 64));
  EXPECT_EQ(spread(prefetch, 64, 8), std::vector<std::int64_t>(expected.begin() + 64, expected.end()));
  EXPECT_EQ(prefetch.soon.lines(), 0);
}

TEST(TilePrefetch, WhatTheNextBlockReadsGoesFirst) {
  TilePrefetch prefetch;
  prefetch.later.add({at(1 << 20), 64 * line, 64 * line, 1});
  prefetch.begin(1, 1);
  prefetch.soon.add({at(1 << 16), 64 * line, 64 * line, 1});
  prefetch.begin_block();
  EXPECT_EQ(prefetch.spread(64, at(64)).at, Address{1 << 16});
  EXPECT_EQ(prefetch.spread(64, at(64)).at, Address{1 << 20});
  EXPECT_EQ(prefetch.spread(64, at(64)).at, Address{64});
  EXPECT_FALSE(prefetch.left());
}

/// Short tiles prefetch nothing: their share is left to the next ones.
TEST(TilePrefetch, LeavesTheShareOfShortTilesToTheNext) {
  TilePrefetch prefetch;
  prefetch.later.add({at(1 << 20), 32 * line, 32 * line, 1});
  prefetch.begin(2, 1);
  EXPECT_EQ(prefetch.spread(8, at(64)).at, Address{64});
  EXPECT_EQ(prefetch.later.lines(), 32);
  EXPECT_EQ(spread(prefetch, 64, 1).size(), 32u);
}

}  // namespace
}  // namespace attn::kernels
