// src/explain/formula_words.h: says the words in a formula in the language of the explanation.
#pragma once
#include <attn/explain.h>

#include <string>
#include <string_view>

namespace attn::explain_detail {

/// In Chinese, replaces the names of steps and the words in a formula, a column's title or a source: "scores / √2"
/// becomes "打分 / √2". Symbols and functions such as softmax and tanh stay; English text is returned unchanged.
std::string in_words(Language language, std::string_view formula);

}  // namespace attn::explain_detail
