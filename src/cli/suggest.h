// src/cli/suggest.h: finds the known word that is most similar to a misspelt one.
#pragma once
#include <string>
#include <vector>

namespace attn::cli {

/// Returns the edit distance: how many letters must be inserted, dropped, changed or swapped with a neighbour to turn a
/// into b.
int edits(const std::string& a, const std::string& b);

/// Returns the word of `known` with the smallest edit distance to `given`, or "" if that distance is above a third of
/// the word's letters (one edit is always allowed).
std::string nearest(const std::string& given, const std::vector<std::string>& known);

}  // namespace attn::cli
