// tests/support/golden.h: figures from elsewhere (PyTorch, the tutorials) as tensors, and the error rule.
#pragma once
#include <attn/ops.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace attn::testing {

/// tests/golden/<name>, parsed once.
const nlohmann::json& golden(std::string_view name);

/// {"dtype", "shape", "values"} with flat or nested values; non-finite ones are the strings "nan", "inf", "-inf".
Tensor golden_tensor(const nlohmann::json& entry);
Tensor golden_tensor(const nlohmann::json& values, const Dims& shape, Dtype dtype);

/// Same shape, dtype and bits; any NaN equals any NaN. The failure names the first element that differs.
::testing::AssertionResult bits_equal(const Tensor& ours, const Tensor& expected);

/// The error rule of docs/numerics.md section 7 with torch's result standing for the truth that is not at hand:
/// |ours - torch| <= 3 * torch_error + 4 * eps * max|torch| (our error at most twice torch's, plus torch's own), where
/// torch_error is |torch - float64|. Non-finite elements must agree exactly.
::testing::AssertionResult within_error_rule(const Tensor& ours, const Tensor& torch, double torch_error);

/// |ours - expected| <= atol everywhere; non-finite elements must agree exactly.
::testing::AssertionResult within(const Tensor& ours, const Tensor& expected, double atol);

}  // namespace attn::testing
