// src/explain/numbers.h: numbers as a table shows them.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::explain_detail {

/// Fixed decimals up to 9999, else three digits and an exponent; nothing is shown as -0.
std::string format_number(double value, int decimals);
/// 0 to 1 in few columns: ".18", "1.0"; four decimals keep the leading zero.
std::string format_weight(double value, int decimals);
/// "·" causal, "○" window, "▫" mask, "×" padding.
const char* sign_of(Hidden reason);

}  // namespace attn::explain_detail
