// src/explain/json_values.h: writes tensors as nested JSON lists; the numbers read back to the same bits.
#pragma once
#include <attn/explain.h>

#include <string>
#include <vector>

namespace attn::explain_detail {

/// Writes integers plainly, f64 and narrower floats in their shortest exact form; nan, inf and -inf as strings. Writes
/// null where `hidden` (one entry for each value, or empty) is not `visible`.
std::string json_values(const Tensor& values, const std::vector<Hidden>& hidden = {});

/// Writes one number of that type in the same way.
std::string json_number(double value, Dtype dtype);

/// Writes the reasons as lists nested like `shape`; null where the pair is visible.
std::string json_reasons(const std::vector<Hidden>& hidden, const Dims& shape);

/// Writes a JSON string; malformed UTF-8 becomes U+FFFD.
std::string json_string(const std::string& text);

/// Writes a list of JSON strings.
std::string json_list(const std::vector<std::string>& texts);

}  // namespace attn::explain_detail
