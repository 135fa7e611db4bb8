// src/explain/numbers.h: formats numbers for a table.
#pragma once
#include <attn/explain.h>

#include <string>

namespace attn::explain_detail {

/// Formats with fixed decimals below 10000, else with three digits and an exponent; never prints -0.
std::string format_number(double value, int decimals);
/// Formats a weight from 0 to 1 in few columns: ".18", "1.0"; with four decimals it keeps the leading zero.
std::string format_weight(double value, int decimals);
/// Returns whether a weight of exactly 0 is drawn as one: those of softmax are above 0, however small.
bool tells_zeros(const ExplainStep& step);
/// Returns the sign of a reason: "·" causal, "○" window, "▫" mask, "×" padding, "∞" score, "–" not returned.
const char* sign_of(Hidden reason);

}  // namespace attn::explain_detail
