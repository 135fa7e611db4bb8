// src/verify/coverage.h: declares which options the cases of `attn verify` use on which path and in which dtype.
#pragma once
#include "verify/case.h"

#include <span>
#include <string>
#include <vector>

namespace attn::cases {

/// The paths of attention: prompt rows (prefill), one row over many keys (decode), packed sequences, keys from a cache
/// (paged), keys from an int8 cache, and the gradients.
enum class Path { prefill, decode, packed, paged, int8, backward };
constexpr const char* path_names[] = {"prefill", "decode", "packed", "paged", "int8", "backward"};

struct CoverageOption {
  const char* name;
  const char* mark;    // the text that a line with this option contains
  const char* fields;  // the fields that add this option to a line
};
std::span<const CoverageOption> coverage_options();
/// Returns the path of an attention case.
Path path_of(const Case& c);
/// Returns why no case has this option on this path, and which test covers it if one does; null if a case can have it.
const char* why_not(const CoverageOption& option, Path path, Dtype dtype);

/// Returns a small case for each possible combination of option, path and dtype.
std::vector<std::string> coverage_lines();

}  // namespace attn::cases
