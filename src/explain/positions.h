// src/explain/positions.h: computes token positions in two ways: sinusoidal and rotary.
#pragma once
#include <attn/tensor.h>

namespace attn::explain_detail {

/// Returns [rows, dim] with sin(row / 10000^(2i/dim)) at 2i and cos of the same at 2i + 1. Source: Vaswani 2017
/// (1706.03762).
Tensor sines(std::int64_t rows, std::int64_t dim, Dtype dtype);

/// Returns x [B, H, T, D] with each pair (2i, 2i + 1) of row t rotated by t / 10000^(2i/D). Source: Su 2021
/// (2104.09864).
Tensor rotated(const Tensor& x);

}  // namespace attn::explain_detail
