// fuzz/case.cc: parses lines of `attn verify`: the verification passes for every kernel, target and number of threads,
// or the line is rejected.
#include "fuzz.h"

#include <cctype>

using namespace attn;
using namespace attn::fuzz;

/// Estimates the work of a line: the product of its numbers.
static double work(const std::string& line) {
  double product = 1, number = 0;
  for (const char c : line + " ") {
    if (std::isdigit(static_cast<unsigned char>(c))) number = number * 10 + (c - '0');
    else product *= number > 1 ? number : 1, number = 0;
  }
  return product;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string line = Choices(data, size).rest();
  if (line.empty() || work(line) > 3e6) return -1;  // an empty line would mean the whole table
  VerifyReport report;
  VerifyOptions options;
  options.line = line;
  if (answers([&] { report = verify(options); })) check(report.passed(), report.difference + "; line: " + report.line);
  return 0;
}
