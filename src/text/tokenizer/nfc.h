// src/text/tokenizer/nfc.h: declares Unicode's normalization forms, and the steps that they consist of.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// Returns the text in form C: with composed characters where they exist ("e" and an acute accent become "é"), and with
/// marks in canonical order. It follows Unicode 9.0, as Hugging Face's tokenizers do. Bytes that are not UTF-8 stay
/// unchanged. Source: Unicode Standard Annex 15.
std::string nfc(std::string_view text);

/// A character of a decomposed text.
struct Part {
  char32_t value;
  int order;  // the combining class; 0: not a mark
  // As Rewriter::add has it: 0, the first part of a character; 1, any other; -n, made of n more characters.
  int change;
};

/// Returns all parts of a character whose decomposition in form KD is not that of form D; of any other: nothing.
using FullParts = std::u16string_view(char32_t c);

/// Decomposes a text (form D; with `full` form KD).
std::vector<Part> decomposed(std::string_view text, FullParts* full);
/// Composes the parts of a decomposed text (form C or KC).
void compose(std::vector<Part>& parts);

/// Appends a character in UTF-8.
void append(std::string& text, char32_t c);

}  // namespace attn::text
