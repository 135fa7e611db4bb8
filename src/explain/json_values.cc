// src/explain/json_values.cc: writes numbers, strings and nested lists.
#include "explain/json_values.h"

#include "text/unicode.h"

#include "runtime/format.h"

#include <cmath>

namespace attn::explain_detail {
namespace {

/// Writes nested lists; write(i) returns element i, in row-major order.
template <typename Write>
std::string nested(const Dims& shape, int dim, std::size_t& next, const Write& write) {
  if (dim == shape.size()) return write(next++);
  std::string result = "[";
  for (std::int64_t i = 0; i < shape[dim]; ++i) {
    if (i > 0) result += ", ";
    result += nested(shape, dim + 1, next, write);
  }
  return result + "]";
}

}  // namespace

std::string json_number(double value, Dtype dtype) {
  if (dtype == Dtype::boolean) return value != 0 ? "true" : "false";
  if (std::isnan(value)) return "\"nan\"";
  if (std::isinf(value)) return value < 0 ? "\"-inf\"" : "\"inf\"";
  return dtype == Dtype::f64 ? runtime::format("{}", value) : runtime::format("{}", static_cast<float>(value));
}

std::string json_values(const Tensor& values, const std::vector<Hidden>& hidden) {
  std::size_t next = 0;
  const Dtype dtype = values.dtype();
  const auto masked = [&](std::size_t i) { return !hidden.empty() && hidden[i] != Hidden::visible; };
  if (is_integral(dtype)) {
    const std::vector<std::int64_t> numbers = values.to_int_vector();
    return nested(values.sizes(), 0, next,
                  [&](std::size_t i) { return masked(i) ? "null" : std::to_string(numbers[i]); });
  }
  const std::vector<double> numbers = values.to_vector();
  return nested(values.sizes(), 0, next,
                [&](std::size_t i) { return masked(i) ? "null" : json_number(numbers[i], dtype); });
}

std::string json_reasons(const std::vector<Hidden>& hidden, const Dims& shape) {
  constexpr const char* names[] = {"null",        "\"causal\"", "\"window\"",      "\"mask\"",
                                   "\"padding\"", "\"score\"",  "\"not_returned\""};
  std::size_t next = 0;
  return nested(shape, 0, next, [&](std::size_t i) { return std::string(names[static_cast<std::size_t>(hidden[i])]); });
}

std::string json_string(const std::string& words) {
  std::string result = "\"";
  for (std::size_t at = 0; at < words.size();) {
    const text::CodePoint point = text::code_point_at(words, at);
    if (point.value == text::not_a_character) result += "\xEF\xBF\xBD";
    else if (point.value < 0x20) result += runtime::format("\\u{:04x}", static_cast<unsigned>(point.value));
    else if (point.value == '"' || point.value == '\\') result.append("\\").append(words, at, point.bytes);
    else result.append(words, at, point.bytes);
    at += point.bytes;
  }
  return result + "\"";
}

std::string json_list(const std::vector<std::string>& texts) {
  std::string result = "[";
  for (const std::string& text : texts) result += (result.size() > 1 ? ", " : "") + json_string(text);
  return result + "]";
}

}  // namespace attn::explain_detail
