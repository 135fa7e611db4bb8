// src/cli/suggest.h: which word was meant.
#pragma once
#include <string>
#include <vector>

namespace attn::cli {

/// Letters to insert, drop, change or swap between the two.
int edits(const std::string& a, const std::string& b);

/// The nearest of `known` when it is near enough to be a slip (a third of its letters), else "".
std::string nearest(const std::string& given, const std::vector<std::string>& known);

}  // namespace attn::cli
