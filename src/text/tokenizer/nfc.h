// src/text/tokenizer/nfc.h: normalizes text to Unicode's form C.
#pragma once
#include <string>
#include <string_view>

namespace attn::text {

/// Returns the text in form C: with composed characters where they exist ("e" and an acute accent become "é"), and with
/// marks in canonical order. It follows Unicode 9.0, as Hugging Face's tokenizers do. Bytes that are not UTF-8 stay
/// unchanged. Source: Unicode Standard Annex 15.
std::string nfc(std::string_view text);

}  // namespace attn::text
