// src/text/tokenizer/nfc.h: Unicode's normalization form C.
#pragma once
#include <string>
#include <string_view>

namespace attn::text {

/// The text with whole characters where there are such ("e" and an acute accent: "é") and its marks in one order, by
/// Unicode 9.0, as Hugging Face's tokenizers have it. Bytes that are no UTF-8 stay as they are.
/// Source   Unicode Standard Annex 15
std::string nfc(std::string_view text);

}  // namespace attn::text
