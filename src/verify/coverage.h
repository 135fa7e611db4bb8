// src/verify/coverage.h: which options the cases of attn verify have on which path and in which dtype.
#pragma once
#include "verify/case.h"

#include <span>
#include <string>
#include <vector>

namespace attn::cases {

/// Where an option takes part: rows that begin a text, one row over many keys, sequences side by side, keys from pages,
/// the same in eight bits, the gradients.
enum class Path { prefill, decode, packed, paged, int8, backward };
constexpr const char* path_names[] = {"prefill", "decode", "packed", "paged", "int8", "backward"};

struct CoverageOption {
  const char* name;
  const char* mark;    // what a line that has it holds
  const char* fields;  // with which a line gets it
};
std::span<const CoverageOption> coverage_options();
/// The path of a case of attention.
Path path_of(const Case& c);
/// Why no case has this option there, and which test has it; null where cases can.
const char* why_not(const CoverageOption& option, Path path, Dtype dtype);

/// A small case for each option, path and dtype that a case can have together.
std::vector<std::string> coverage_lines();

}  // namespace attn::cases
