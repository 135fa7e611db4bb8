// tests/support/golden.h: returns figures from other sources (PyTorch, the tutorials) as tensors, and checks the error
// rule.
#pragma once
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attn::testing {

/// Returns tests/golden/<name>, parsed once.
const nlohmann::json& golden(std::string_view name);

/// Reads {"dtype", "shape", "values"} with flat or nested values; non-finite values are the strings "nan", "inf",
/// "-inf".
Tensor golden_tensor(const nlohmann::json& entry);
Tensor golden_tensor(const nlohmann::json& values, const Dims& shape, Dtype dtype);

/// Checks shape, dtype and bits; any NaN equals any NaN. The failure names the first element that differs.
::testing::AssertionResult bits_equal(const Tensor& ours, const Tensor& expected);

/// Checks the error rule of docs/numerics.md section 7, with torch's result in place of the exact one: |ours - torch|
/// <= 3 * torch_error + 4 * eps * max|torch| (our error at most twice torch's, plus torch's own), where torch_error is
/// |torch - float64|. Non-finite elements must agree exactly.
::testing::AssertionResult within_error_rule(const Tensor& ours, const Tensor& torch, double torch_error);

/// Checks |ours - expected| <= atol for every element; non-finite elements must agree exactly.
::testing::AssertionResult within(const Tensor& ours, const Tensor& expected, double atol);

}  // namespace attn::testing
