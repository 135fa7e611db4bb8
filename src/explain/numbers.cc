// src/explain/numbers.cc: formats numbers, and the signs that replace hidden ones.
#include "explain/numbers.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace attn::explain_detail {

std::string format_number(double value, int decimals) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  if (std::abs(value) >= 1e4) return runtime::format("{:.2e}", value);
  std::string text = runtime::format("{:.{}f}", value, decimals);
  if (text[0] == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

std::string format_weight(double value, int decimals) {
  std::string text = format_number(value, decimals);
  if (decimals < 4 && text.starts_with("0.")) return text.substr(1);
  return decimals < 4 && text == "1.00" ? "1.0" : text;
}

bool tells_zeros(const ExplainStep& step) {
  constexpr std::string_view operations[] = {"sparsemax", "entmax15", "relu_squared", "weight_mod"};
  return std::find(std::begin(operations), std::end(operations), step.operation.name) != std::end(operations);
}

const char* sign_of(Hidden reason) {
  switch (reason) {
    case Hidden::causal: return "·";
    case Hidden::window: return "○";
    case Hidden::mask: return "▫";
    case Hidden::padding: return "×";
    case Hidden::score: return "∞";
    case Hidden::not_returned: return "–";
    case Hidden::visible: break;
  }
  return " ";
}

}  // namespace attn::explain_detail
