// src/cli/suggest.h: finds the known word that a misspelt word was meant to be.
#pragma once
#include <string>
#include <vector>

namespace attn::cli {

/// Returns how many letters must be inserted, dropped, changed or swapped to get from one word to the other.
int edits(const std::string& a, const std::string& b);

/// Returns the nearest of `known` if it is near enough for a typing error (a third of its letters), else "".
std::string nearest(const std::string& given, const std::vector<std::string>& known);

}  // namespace attn::cli
