// tests/runtime/block_cache_test.cc: freed blocks that wait for the next of their size.
#include "runtime/block_cache.h"
#include "runtime/memory.h"
#include "support/sanitized.h"

#include <attn/memory.h>

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <new>
#include <random>
#include <thread>
#include <vector>

namespace attn::runtime {
namespace {

constexpr std::size_t KiB = 1024, MiB = KiB * KiB;

TEST(BlockCache, SizesHoldWhatIsAskedAndWasteAnEighthAtMost) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const std::size_t bytes = BlockCache::least + random() % (std::size_t{1} << (17 + i % 20)),
                      size = BlockCache::size_for(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_LE(size, bytes + bytes / 8 + 1);
    ASSERT_EQ(BlockCache::size_for(size), size);
  }
  for (const std::size_t huge : {BlockCache::most + 1, SIZE_MAX / 2, SIZE_MAX - 63, SIZE_MAX})
    EXPECT_EQ(BlockCache::size_for(huge), huge);
}

TEST(BlockCache, AFreedBlockIsTheNextOfItsSize) {
  if (testing::sanitized) GTEST_SKIP() << "nothing is kept here";
  block_cache().release();
  void* const first = allocate(3 * MiB - 64);  // 3 MiB with what stands before it
  void* const second = allocate(2 * MiB - 64);
  deallocate(first);
  deallocate(second);
  EXPECT_EQ(block_cache().bytes(), 5 * MiB);
  void* const small = allocate(2 * MiB - 100 * KiB);
  EXPECT_EQ(small, second);
  void* const same = allocate(3 * MiB - 100 * KiB);
  EXPECT_EQ(same, first);
  deallocate(small);
  deallocate(same);
  block_cache().release();
  EXPECT_EQ(block_cache().bytes(), 0u);
}

/// Pages of this process that are in memory.
std::size_t resident_bytes() {
  std::size_t all = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> all >> resident;
  return resident * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

TEST(BlockCache, AreGivenBackWhenAsked) {
  if (testing::sanitized) GTEST_SKIP() << "nothing is kept here";
  release_free_memory();
  std::vector<void*> blocks;
  for (int i = 0; i < 64; ++i) {
    blocks.push_back(allocate(MiB - 64));
    std::memset(blocks.back(), 1, MiB - 64);
  }
  void* const in_use = blocks.back();
  blocks.pop_back();
  for (void* block : blocks) deallocate(block);
  EXPECT_EQ(block_cache().bytes(), 63 * MiB);
  const std::size_t before = resident_bytes();
  EXPECT_EQ(release_free_memory(), 63 * MiB);
  EXPECT_EQ(block_cache().bytes(), 0u);
#if defined(__GLIBC__)
  EXPECT_LE(resident_bytes() + 56 * MiB, before)
      << "of 63 MiB, at least seven eighths: other threads' memory may come meanwhile";
#endif
  EXPECT_EQ(static_cast<char*>(in_use)[MiB - 65], 1);
  EXPECT_EQ(release_free_memory(), 0u);
  deallocate(in_use);
}

TEST(BlockCache, AllBlocksTogetherAreNeverMoreThanWereInUseAtOnce) {
  if (testing::sanitized) GTEST_SKIP() << "nothing is kept here";
  block_cache().release();
  // 96 MiB in use at once; then blocks of ever other sizes, one at a time: what is kept makes room for them.
  std::vector<void*> many;
  for (int i = 0; i < 96; ++i) many.push_back(allocate(MiB - 64));
  for (void* block : many) deallocate(block);
  EXPECT_EQ(block_cache().bytes(), 96 * MiB);
  for (std::size_t size = 5 * MiB; size < 80 * MiB; size += 5 * MiB) {
    void* const block = allocate(size);
    EXPECT_LE(block_cache().bytes() + size, 97 * MiB) << size;
    deallocate(block);
    EXPECT_LE(block_cache().bytes(), 97 * MiB) << size;
  }
  block_cache().release();
}

TEST(BlockCache, WhatCannotBeHadIsAnErrorAndLeavesNoTrace) {
  if (testing::sanitized) GTEST_SKIP() << "the sanitizer ends the program";
  const std::size_t before = allocated_bytes();
  for (const std::size_t huge : {SIZE_MAX, SIZE_MAX - 64, SIZE_MAX - 128, SIZE_MAX / 2, std::size_t{1} << 60})
    EXPECT_THROW(allocate(huge), std::bad_alloc) << huge;
  EXPECT_EQ(allocated_bytes(), before);
}

TEST(BlockCache, WhatCouldNotBeHadWasNeverInUse) {
  if (testing::sanitized) GTEST_SKIP() << "nothing is kept here";
  block_cache().release();
  EXPECT_THROW(allocate(std::size_t{1} << 60), std::bad_alloc);
  for (const std::size_t size : {320 * MiB, 256 * MiB, 224 * MiB, 160 * MiB}) {
    deallocate(allocate(size - 64));
    EXPECT_LE(block_cache().bytes(), 320 * MiB) << size;
  }
  block_cache().release();
}

TEST(BlockCache, ThreadsHaveBlocksOfTheirOwn) {
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::mt19937 random(t);
      std::vector<std::pair<unsigned char*, std::size_t>> mine;
      const auto check = [t](const auto& block) {
        for (std::size_t i = 0; i < block.second; i += 4096) ASSERT_EQ(block.first[i], t);
      };
      for (int round = 0; round < 2000; ++round) {
        const std::size_t bytes = 60 * KiB + random() % (200 * KiB);
        mine.emplace_back(static_cast<unsigned char*>(allocate(bytes)), bytes);
        std::memset(mine.back().first, static_cast<int>(t), bytes);
        if (mine.size() < 8) continue;
        std::swap(mine[random() % mine.size()], mine.back());
        check(mine.back());
        deallocate(mine.back().first);
        mine.pop_back();
      }
      for (const auto& block : mine) {
        check(block);
        deallocate(block.first);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attn::runtime
