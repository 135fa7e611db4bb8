// tests/verify/coverage_test.cc: every option has a case on every path in every dtype, or a reason that leads to its
// test.
#include "verify/coverage.h"

#include "support/places.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <set>

namespace attn::cases {
namespace {

constexpr Dtype dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16};

TEST(Coverage, EveryCellHasACaseThatRunsOrAReason) {
  const std::vector<std::string> lines = coverage_lines();
  std::size_t cells = 0;
  for (const CoverageOption& option : coverage_options())
    for (int path = 0; path < 6; ++path)
      for (const Dtype dtype : dtypes) {
        if (why_not(option, static_cast<Path>(path), dtype) != nullptr) continue;
        ASSERT_LT(cells, lines.size());
        const std::string& line = lines[cells++];
        SCOPED_TRACE(line);
        const Case c = parse_case(line);
        EXPECT_NE(to_line(c).find(option.mark), std::string::npos) << "the case does not have " << option.name;
        EXPECT_EQ(path_of(c), static_cast<Path>(path));
        EXPECT_EQ(c.dtype, dtype);
        EXPECT_NO_THROW(make_inputs(c));
      }
  EXPECT_EQ(cells, lines.size());
}

/// A reason that is none would leave a cell empty without being seen.
TEST(Coverage, ACellWithAReasonCannotHaveACase) {
  for (const CoverageOption& option : coverage_options()) {
    if (option.fields == nullptr || option.name == std::string("transposed layout")) continue;
    for (const auto& [path, line] :
         {std::pair{Path::packed, "Tq=40 Tk=70 lengths=packed"}, {Path::paged, "Tq=3 Tk=70 cache=pages16"}}) {
      const char* reason = why_not(option, path, Dtype::f32);
      if (reason == nullptr) continue;
      const Case plain = parse_case(std::string("attention f32 B=2 Hq=4 D=8 ") + line + " " + option.fields);
      const bool kept = path_of(plain) == path;  // `lengths` of the option may have taken the place of the path's
      if (!kept) continue;
      EXPECT_THROW(make_inputs(plain), ValueError) << option.name << ": " << reason;
    }
  }
}

TEST(Coverage, ReasonsNameTestsThatAreThere) {
  std::set<std::string> named;
  const std::regex file("tests/[a-z_/]+\\.cc");
  for (const CoverageOption& option : coverage_options())
    for (int path = 0; path < 6; ++path)
      for (const Dtype dtype : dtypes)
        if (const char* reason = why_not(option, static_cast<Path>(path), dtype); reason != nullptr)
          if (std::cmatch match; std::regex_search(reason, match, file)) named.insert(match[0]);
  EXPECT_GE(named.size(), 4u);
  for (const std::string& name : named)
    EXPECT_TRUE(std::filesystem::exists(attn::testing::golden_path("../../" + name))) << name;
}

}  // namespace
}  // namespace attn::cases
