// src/explain/formula_words.h: says the words in a formula in the language of the explanation.
#pragma once
#include <attn/explain.h>

#include <string>
#include <string_view>

namespace attn::explain_detail {

/// Replaces the names of steps and the words in a formula, a column's title or a source: "scores / √2" is "打分 / √2".
/// Symbols, functions and the notation of masks stay.
std::string in_words(Language language, std::string_view formula);

}  // namespace attn::explain_detail
