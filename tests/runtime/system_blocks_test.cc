// tests/runtime/system_blocks_test.cc: large blocks are mappings on large pages that take no more memory than was asked
// for, and give it back.
#include "runtime/block_cache.h"
#include "runtime/memory.h"
#include "runtime/regions.h"
#include "runtime/system_blocks.h"
#include "support/resident.h"
#include "support/sanitized.h"

#include <attn/memory.h>

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace attn::runtime {
namespace {

using attn::testing::Resident;
using attn::testing::sanitized;

constexpr std::size_t KiB = 1024, MiB = KiB * KiB, header = alignment;

#if defined(__linux__)

/// Whether the system was told to have large pages at this address.
bool is_advised(const void* where) {
  const auto address = reinterpret_cast<std::uintptr_t>(where);
  std::ifstream maps("/proc/self/smaps");
  bool here = false;
  for (std::string line; std::getline(maps, line);) {
    std::uintptr_t first = 0, end = 0;
    char dash = 0;
    if (std::istringstream(line) >> std::hex >> first >> dash >> end && dash == '-')
      here = first <= address && address < end;
    if (here && line.starts_with("VmFlags:")) return line.find(" hg") != std::string::npos;
  }
  return false;
}

TEST(SystemBlocks, LargeOnesBeginWithALargePageAndEndInSmallOnes) {
  if (sanitized) GTEST_SKIP() << "the sanitizer has blocks of its own";
  std::string allowed;
  const bool has_large_pages =
      static_cast<bool>(std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled") >> allowed);
  block_cache().release();
  for (const std::size_t bytes : {2 * MiB, 3 * MiB, 4 * MiB + 1, 9 * MiB + 100, 100 * MiB + 4097}) {
    char* const data = static_cast<char*>(allocate(bytes - header));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data - header) % large_page, 0u) << bytes;
    if (has_large_pages) {
      EXPECT_TRUE(is_advised(data)) << bytes;
      EXPECT_TRUE(is_advised(data - header + bytes / large_page * large_page - 1)) << bytes;
      EXPECT_TRUE(bytes % large_page == 0 || !is_advised(data - header + bytes - 1)) << bytes;
    }
    deallocate(data);
  }
  block_cache().release();
}

TEST(SystemBlocks, TakeNoMoreMemoryThanWasAskedForAndGiveItBack) {
  if (sanitized) GTEST_SKIP() << "the sanitizer has blocks of its own";
  constexpr std::size_t bytes = 9 * MiB + 100 * KiB, count = 16, more = 2 * MiB;  // of 10 MiB each
  release_free_memory();
  const std::size_t before = Resident::now();
  std::vector<char*> blocks;
  for (std::size_t i = 0; i < count; ++i) {
    blocks.push_back(static_cast<char*>(allocate(bytes)));
    std::memset(blocks.back(), static_cast<int>(i), bytes);
  }
  const std::size_t full = Resident::now();
  EXPECT_LE(full, before + count * bytes + more);
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t at = 0; at < bytes; at += 1000) ASSERT_EQ(blocks[i][at], static_cast<char>(i)) << at;
    deallocate(blocks[i]);
  }
  EXPECT_GE(release_free_memory(), count * bytes);
  EXPECT_LE(Resident::now() + count * bytes, full + more);
}

TEST(SystemBlocks, WhatIsNotTouchedIsNotTaken) {
  if (sanitized) GTEST_SKIP() << "the sanitizer has blocks of its own";
  release_free_memory();
  const std::size_t before = Resident::now();
  void* const data = allocate(std::size_t{2} << 30);  // more than is ever kept
  EXPECT_LE(Resident::now(), before + 4 * MiB);
  deallocate(data);
  EXPECT_LE(Resident::now(), before + 2 * MiB);
}

TEST(SystemBlocks, AForkedChildHasItsOwn) {
  constexpr std::size_t bytes = 5 * MiB;
  char* const data = static_cast<char*>(allocate(bytes));
  std::memset(data, 1, bytes);
  EXPECT_EQ(attn::testing::in_fork([&] {
              if (data[bytes - 1] != 1) return 1;
              std::memset(data, 2, bytes);
              deallocate(data);
              char* const other = static_cast<char*>(allocate(bytes));
              std::memset(other, 3, bytes);
              return other[0] == 3 ? 7 : 2;
            }),
            7);
  for (std::size_t at = 0; at < bytes; at += 512) ASSERT_EQ(data[at], 1);
  deallocate(data);
}

#endif

TEST(SystemBlocks, ThreadsMapAndUnmapAtOnce) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (std::size_t round = 0; round < 60; ++round) {
        const std::size_t size = BlockCache::size_for((1 + round % 5) * MiB);
        char* const block = static_cast<char*>(new_block(size, size - 1));
        block[0] = block[size / 2] = block[size - 1] = static_cast<char>(t);
        ASSERT_EQ(block[0] + block[size / 2] + block[size - 1], 3 * t);
        delete_block(block, size);
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace attn::runtime
