// tests/attention/sizes_test.cc: lengths and head dims around the edges of vectors, strips, blocks and spans, on every
// kernel of this machine.
#include "runtime/cpu.h"
#include "verify/compare.h"

#include <gtest/gtest.h>

#include "runtime/format.h"

namespace attn::cases {
namespace {

constexpr int lengths[] = {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 1000, 1023, 1024, 1025, 2049};
constexpr int dims[] = {1, 8, 24, 28, 64, 80, 128, 256};
/// Two lengths that are both long cost as much as all others together: they go with few channels in the short table.
constexpr int long_length = 1000;

/// Masks, layouts and Dv take turns, so that each meets each length and dim.
std::string line_of(const char* dtype, int q_rows, int k_rows, int dim, std::size_t turn) {
  static constexpr const char* others[] = {"", " mask=causal(bottom_right)", " layout=turned",
                                           " mask=window(70,3,bottom_right) layout=turned", " mask=bool"};
  const int value_dim = turn % 3 == 0 ? dims[turn / 3 % std::size(dims)] : dim;
  return runtime::format("attention {} Tq={} Tk={} D={} Dv={}{}", dtype, q_rows, k_rows, dim, value_dim,
                         others[turn % std::size(others)]);
}

/// Every kernel of every instruction set: query tiles, heads together, key splits; against the specification.
void expect_bits(const std::vector<std::string>& lines) {
  std::vector<Way> ways;
  for (const std::string& target : runtime::targets())
    for (Way& way : target_ways(target)) ways.push_back(std::move(way));
  ways.push_back(library_way(3));
  const VerifyReport report = compare(lines, ways);
  EXPECT_TRUE(report.passed()) << report.difference << "\nattn verify '" << report.line << "'";
  EXPECT_EQ(report.cases, static_cast<std::int64_t>(lines.size()));
}

class Sizes : public ::testing::TestWithParam<const char*> {};

/// Each pair of lengths once, the dims in turn.
TEST_P(Sizes, EveryPairOfLengthsHasTheBitsOfTheSpecification) {
  std::vector<std::string> lines;
  for (const int q_rows : lengths)
    for (const int k_rows : lengths) {
      const std::size_t turn = lines.size();
      const bool both_long = q_rows >= long_length && k_rows >= long_length;
      lines.push_back(
          line_of(GetParam(), q_rows, k_rows, both_long ? dims[turn % 2] : dims[turn % std::size(dims)], turn));
      if (both_long) lines.back() = line_of(GetParam(), q_rows, k_rows, dims[turn % 2], 3 * turn + 1);  // Dv = D
    }
  expect_bits(lines);
}
INSTANTIATE_TEST_SUITE_P(Dtypes, Sizes, ::testing::Values("f32", "f64"),
                         [](const auto& info) { return std::string(info.param); });

/// Few rows, which have tiles of their own: groups of every number of heads up to one too many, keys that end within a
/// vector, and no columns at all.
TEST_P(Sizes, FewRowsHaveTheBitsOfTheSpecification) {
  std::vector<std::string> lines;
  for (int heads = 1; heads <= 9; ++heads) {
    for (const int k_rows : {5, 17, 70, 1031})
      lines.push_back(runtime::format("attention_decode {} Hq={} Hk=1 Tq=1 Tk={} D=37 Dv=40{}", GetParam(), heads,
                                      k_rows, heads % 2 == 0 ? " layout=turned" : ""));
    lines.push_back(
        runtime::format("attention {} Hq={} Hk=1 Tq=2 Tk=300 D=24 mask=window(70,0,bottom_right)", GetParam(), heads));
  }
  lines.push_back(runtime::format("attention {} Tq=2 Tk=70 D=0 Dv=32", GetParam()));
  expect_bits(lines);
}

/// The whole table, a test for each dtype and head dim: minutes.
class LongSizes : public ::testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(LongSizes, EveryPairOfLengthsHasTheBitsOfTheSpecification) {
  const auto [dtype, dim] = GetParam();
  std::vector<std::string> lines;
  for (const int q_rows : lengths)
    for (const int k_rows : lengths)
      lines.push_back(line_of(dtype, q_rows, k_rows, dim, lines.size() + static_cast<std::size_t>(dim)));
  expect_bits(lines);
}
INSTANTIATE_TEST_SUITE_P(DtypesAndDims, LongSizes,
                         ::testing::Combine(::testing::Values("f32", "f64"), ::testing::ValuesIn(dims)),
                         [](const auto& info) {
                           return runtime::format("{}_{}", std::get<0>(info.param), std::get<1>(info.param));
                         });

}  // namespace
}  // namespace attn::cases
