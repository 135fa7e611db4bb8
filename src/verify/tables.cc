// src/verify/tables.cc: reads the case tables of tests/cases/, one for each operation.
#include "verify/case.h"

#include <span>

namespace attn::cases {
namespace {

struct Entry {
  unsigned uses;
  const char* line;
};

constexpr Entry attention_cases[] = {
#include "cases/attention.inc"
};
constexpr Entry backward_cases[] = {
#include "cases/backward.inc"
};
constexpr Entry linear_attention_cases[] = {
#include "cases/linear_attention.inc"
};
constexpr Entry jvp_cases[] = {
#include "cases/jvp_bench.inc"
};
constexpr Entry matmul_cases[] = {
#include "cases/matmul.inc"
};
constexpr Entry row_cases[] = {
#include "cases/rows.inc"
};

}  // namespace

std::vector<std::string> case_lines(unsigned uses) {
  std::vector<std::string> lines;
  for (const std::span<const Entry> table :
       {std::span<const Entry>(attention_cases), std::span<const Entry>(backward_cases),
        std::span<const Entry>(jvp_cases), std::span<const Entry>(linear_attention_cases),
        std::span<const Entry>(matmul_cases), std::span<const Entry>(row_cases)})
    for (const Entry& entry : table)
      if (entry.uses & uses) lines.emplace_back(entry.line);
  return lines;
}

}  // namespace attn::cases
