// tests/kernels/decode_kv_prefetch_test.cc: decode's prefetches keep their distance, and prefetch every cache line of
// the rows once, or four times, in the order in which the rows are read.
#include "kernels/prefetch/decode_kv_prefetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace attn::kernels {
namespace {

constexpr std::int64_t line = 64, row_lines = 4;
constexpr Address otherwise = 64, start = Address{1} << 30;

/// Rows of four lines. Their memory is never read: any address will do.
KvRows rows_of(Element element, std::int64_t stride_lines = row_lines) {
  KvRows rows;
  rows.base = reinterpret_cast<const void*>(start);
  rows.element = element;
  rows.row_stride = stride_lines * line / bytes_of(element);
  return rows;
}

std::int64_t columns_of(Element element) { return row_lines * line / bytes_of(element); }

/// The lines that the code between the products prefetches while rows [first, end) are read `step` at a time, as
/// numbers from row 0 on. Those before them are prefetched by begin().
std::vector<std::int64_t> taken(const KvRows& rows, std::int64_t first, std::int64_t end, std::int64_t together,
                                int uses = 1, std::int64_t step = 64) {
  StreamPrefetcher prefetcher;
  prefetcher.begin(rows, columns_of(rows.element), first, end, /*exceeds_llc=*/false, uses);
  std::vector<std::int64_t> lines;
  const auto take_all = [&] {
    for (Address at; (at = prefetcher.take<1>(together, otherwise).at[0]) != otherwise;)
      for (std::int64_t n = 0; n < together; ++n) lines.push_back(static_cast<std::int64_t>(at - start) / line + n);
  };
  take_all();
  for (std::int64_t row = first; row < end; row += step)
    for (int n = 0; n < uses; ++n) {
      prefetcher.use(std::min(step, end - row));
      take_all();
    }
  return lines;
}

std::vector<std::int64_t> range(std::int64_t first, std::int64_t end) {
  std::vector<std::int64_t> lines;
  for (std::int64_t n = first; n < end; ++n) lines.push_back(n);
  return lines;
}

/// begin() prefetches the first 24 KB, 384 lines; the rest comes line after line, up to the last one and no further.
TEST(StreamPrefetcher, GivesEveryLineOnceAfterItsDistance) {
  for (const std::int64_t together : {1, 4, 8})
    EXPECT_EQ(taken(rows_of(Element::f32), 0, 400, together), range(384, 1600)) << together;
  EXPECT_EQ(taken(rows_of(Element::f32), 100, 400, 4), range(400 + 384, 1600));
  EXPECT_TRUE(taken(rows_of(Element::f32), 0, 96, 4).empty());
}

/// 12 KB ahead in bf16, and 256 lines more, which begin() leaves to the code between the products.
TEST(StreamPrefetcher, LeavesLinesOfBf16ToTheProducts) {
  EXPECT_EQ(taken(rows_of(Element::bf16), 0, 400, 4), range(192, 1600));
  StreamPrefetcher prefetcher;
  prefetcher.begin(rows_of(Element::bf16), columns_of(Element::bf16), 0, 400, false);
  EXPECT_TRUE(prefetcher.late());
  for (int n = 0; n < 48; ++n) prefetcher.take<1>(4, otherwise);
  EXPECT_FALSE(prefetcher.late());
  EXPECT_EQ(prefetcher.take<1>(4, otherwise).at[0], otherwise);
}

/// Pages of 16 rows: the table says where each is.
TEST(StreamPrefetcher, FollowsThePageTable) {
  constexpr std::int64_t pages = 20, page_lines = 16 * row_lines;
  KvRows rows = rows_of(Element::f32);
  std::vector<std::int32_t> table;
  for (std::int64_t n = 0; n < pages; ++n) table.push_back(static_cast<std::int32_t>(n * 7 % pages));
  rows.pages = table.data();
  rows.page_shift = 4;
  rows.page_stride = 16 * rows.row_stride;
  std::vector<std::int64_t> expected;
  for (std::int64_t n = 384; n < pages * page_lines; ++n)
    expected.push_back(table[static_cast<std::size_t>(n / page_lines)] * page_lines + n % page_lines);
  EXPECT_EQ(taken(rows, 0, 16 * pages, 8), expected);
}

/// Six rows at most are looked up together, so that few may be read at a time.
TEST(StreamPrefetcher, LeavesOutTheGapsBetweenRows) {
  std::vector<std::int64_t> expected;
  for (std::int64_t n = 384; n < 1600; ++n) expected.push_back(n / row_lines * 12 + n % row_lines);
  EXPECT_EQ(taken(rows_of(Element::f32, 12), 0, 400, row_lines, /*uses=*/1, /*step=*/4), expected);
}

/// Rows that are keys and values are used twice and prefetched once, 32 rows earlier.
TEST(StreamPrefetcher, GivesLinesOnceOfRowsThatAreUsedTwice) {
  EXPECT_EQ(taken(rows_of(Element::f32), 0, 400, 4, 2), range(384 + 32 * row_lines, 1600));
}

/// Beyond the last-level cache each line comes four times: again after 8, 16 and 24 calls.
TEST(StreamPrefetcher, RepeatsWhatEarlierCallsGave) {
  constexpr int times = StreamPrefetcher::prefetch_repeats, again = 8;
  StreamPrefetcher prefetcher;
  prefetcher.begin(rows_of(Element::bf16), columns_of(Element::bf16), 0, 400, /*exceeds_llc=*/true);
  EXPECT_TRUE(prefetcher.exceeds_llc());
  std::vector<PrefetchAddresses<times>> calls;
  for (int n = 0; n < 48; ++n) calls.push_back(prefetcher.take<times>(4, otherwise));
  for (std::size_t n = 0; n < calls.size(); ++n)
    for (std::size_t earlier = 1; earlier < times; ++earlier) {
      const Address wanted = n >= again * earlier ? calls[n - again * earlier].at[0] : start;
      EXPECT_EQ(calls[n].at[earlier], wanted) << n << " " << earlier;
    }
  for (const Address at : prefetcher.take<times>(4, otherwise).at) EXPECT_EQ(at, otherwise);
}

TEST(StreamPrefetcher, OfRowsWithoutColumnsGivesNothing) {
  StreamPrefetcher prefetcher;
  prefetcher.begin(rows_of(Element::f32), 0, 0, 400, false);
  prefetcher.use(64);
  EXPECT_EQ(prefetcher.take<1>(1, otherwise).at[0], otherwise);
}

}  // namespace
}  // namespace attn::kernels
