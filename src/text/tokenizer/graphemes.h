// src/text/tokenizer/graphemes.h: finds where grapheme clusters end: what a reader sees as one character.
#pragma once
#include <cstddef>
#include <string_view>

namespace attn::text {

/// Returns the end of the extended grapheme cluster that begins at `at`, which must be inside of the text, in UTF-8.
/// Source: Unicode Standard Annex 29, Unicode 17.
std::size_t grapheme_end(std::string_view text, std::size_t at);

}  // namespace attn::text
