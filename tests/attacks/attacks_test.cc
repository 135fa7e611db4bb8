// tests/attacks/attacks_test.cc: what the fuzzers once found, and the inputs they begin with, replayed one by one.
#include "support/places.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#define FUZZER(name) extern "C" int fuzz_##name(const std::uint8_t*, std::size_t);
#include "fuzzers.inc"
#undef FUZZER

namespace attn::testing {
namespace {

struct Fuzzer {
  const char* name;
  int (*run)(const std::uint8_t*, std::size_t);
};

constexpr Fuzzer fuzzers[] = {
#define FUZZER(name) {#name, fuzz_##name},
#include "fuzzers.inc"
#undef FUZZER
};

class Attacks : public ::testing::TestWithParam<Fuzzer> {};

/// The files of a fuzzer below a folder that holds one folder a fuzzer.
std::vector<std::filesystem::path> files_of(const std::filesystem::path& folder, const char* fuzzer) {
  std::vector<std::filesystem::path> files;
  if (!std::filesystem::is_directory(folder / fuzzer)) return files;
  for (const auto& entry : std::filesystem::directory_iterator(folder / fuzzer)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<std::uint8_t> bytes_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST_P(Attacks, AreAnswered) {
  std::vector<std::filesystem::path> files = files_of(ATTN_FUZZ_CORPUS, GetParam().name);
  EXPECT_FALSE(files.empty()) << "a fuzzer without an input to begin with";
  for (const std::filesystem::path& found : files_of(golden_path("../attacks"), GetParam().name))
    files.push_back(found);
  for (const std::filesystem::path& file : files) {
    SCOPED_TRACE(file.string());
    RecordProperty("last", file.string());  // of a crash this is all that is left
    const std::vector<std::uint8_t> input = bytes_of(file);
    EXPECT_NO_THROW(GetParam().run(input.data(), input.size()));
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Attacks, ::testing::ValuesIn(fuzzers),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attn::testing
