// src/kernels/attention/gradient_strip.h: the scratch of one step of the backward pass; lanes are query rows.
#pragma once
#include "kernels/attention/gradient.h"

#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// Memory of a step. R = 64 rows side by side; `wide`: columns in whole vectors of 64 bytes.
template <typename T>
struct GradientStrip {
  static constexpr int R = query_block;

  Strip<T, R> scores;      // s [64][R]: scores, then weights; extra [64][R]: a dense bias, turned
  T* q = nullptr;          // [D][R]     q * scale
  T* dout = nullptr;       // [Dv][R]
  T* q_rows = nullptr;     // [R][wide D]
  T* dout_rows = nullptr;  // [R][wide Dv]
  T* d = nullptr;          // [64][R]    dP, then the derivative by the score
  T* capped = nullptr;     // [64][R]    tanh(s / c)
  T* dq = nullptr;         // [D][R]     sums of the blocks before
  T* m = nullptr;          // [R]        maximum; 0 for a row that sees nothing
  T* inverse = nullptr;    // [R]        1 / l; 0 for a row that sees nothing
  T* delta = nullptr;      // [R]
  T* sums = nullptr;       // [parameters][R], or the sums of a bias that is broadcast over keys: [2][R]

  static std::int64_t wide(std::int64_t columns) {
    constexpr std::int64_t line = 64 / sizeof(T);
    return (columns + line - 1) / line * line;
  }
  static std::int64_t sum_rows(const AttentionProblem& p) { return parameter_count(p) > 2 ? parameter_count(p) : 2; }
  static std::size_t bytes(const AttentionProblem& p) {
    return sizeof(T) * static_cast<std::size_t>(R) *
           static_cast<std::size_t>(2 * p.dim + p.value_dim + wide(p.dim) + wide(p.value_dim) + 4 * key_block + 3 + sum_rows(p));
  }
  GradientStrip(void* scratch, const AttentionProblem& p) {
    T* next = static_cast<T*>(scratch);
    const auto take = [&next](std::int64_t count) {
      T* taken = next;
      next += count * R;
      return taken;
    };
    scores.s = take(key_block);
    d = take(key_block);
    q = take(p.dim);
    dout = take(p.value_dim);
    q_rows = take(wide(p.dim));
    dout_rows = take(wide(p.value_dim));
    dq = take(p.dim);
    m = take(1);
    inverse = take(1);
    delta = take(1);
    scores.extra = take(key_block);
    capped = take(key_block);
    sums = take(sum_rows(p));
  }
};

}  // namespace attn::kernels
