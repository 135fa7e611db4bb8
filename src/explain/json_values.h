// src/explain/json_values.h: tensors as nested JSON lists whose numbers read back to the same bits.
#pragma once
#include <attn/explain.h>

#include <string>
#include <vector>

namespace attn::explain_detail {

/// Integers plainly, f64 and narrower floats in their shortest form; nan, inf and -inf as strings.
/// Where `hidden` (one a value, or empty) is not visible stands null.
std::string json_values(const Tensor& values, const std::vector<Hidden>& hidden = {});

/// The reasons, nested as `shape`: null where the pair is seen.
std::string json_reasons(const std::vector<Hidden>& hidden, const Dims& shape);

/// A JSON string; malformed UTF-8 becomes U+FFFD.
std::string json_string(const std::string& text);

}  // namespace attn::explain_detail
