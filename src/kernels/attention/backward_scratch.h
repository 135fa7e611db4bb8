// src/kernels/attention/backward_scratch.h: lays out the scratch memory of one step of the backward pass; lanes are
// query rows.
#pragma once
#include "kernels/attention/arena.h"
#include "kernels/attention/lookup_sums.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace attn::kernels {

/// The part of the scratch that every element type needs: scores and derivatives in T, R = 64 adjacent rows.
template <typename T>
struct BackwardScratch {
  static constexpr int R = query_block;

  QueryTileScratch<T, R> scores;  // s [64][R]: scores, then weights; extra [64][R]: a dense bias, transposed
  T* d = nullptr;                 // [64][R]    dP, then the derivative by the score
  T* capped = nullptr;            // [64][R]    tanh(s / c)
  T* m = nullptr;                 // [R]        maximum; 0 for a row that sees no key
  T* inverse = nullptr;           // [R]        1 / l; 0 for a row that sees no key
  T* delta = nullptr;             // [R]
  // [parameters + biases][R]: the sums of the parameters, then those of each dense bias that is broadcast over keys
  T* sums = nullptr;
  // only with a score expression:
  T* before = nullptr;                // [64][R]    scores before the expression
  T* given = nullptr;                 // [16][R]    contributions of pairs to a lookup
  T* places[2] = {nullptr, nullptr};  // values of the places of the expression, and of its derivatives
  void* lines = nullptr;              // LineSums of its lookups

  static std::int64_t sum_rows(const AttentionProblem& p) { return parameter_count(p) + p.bias_count; }
  static const ScoreProgram& expression(const AttentionProblem& p) {
    return p.score_mod_one_head.empty() ? p.score_mod : p.score_mod_one_head;
  }
  BackwardScratch(Arena& arena, const AttentionProblem& p) {
    const auto take = [&arena](std::int64_t count) { return arena.take<T>(count * R); };
    scores.s = take(kv_block);
    d = take(kv_block);
    m = take(1);
    inverse = take(1);
    delta = take(1);
    scores.extra = take(kv_block);
    capped = take(kv_block);
    sums = take(sum_rows(p));
    if (p.score_gradient != nullptr) take_expression(arena, p);
  }

  static std::int64_t places_of(const ScoreProgram& program) {
    return static_cast<std::int64_t>(score_place_elements(program, R, 64 / sizeof(T)));
  }
  [[gnu::cold, gnu::noinline]] void take_expression(Arena& arena, const AttentionProblem& p) {
    before = arena.take<T>(kv_block * R);
    given = arena.take<T>(score_chunk * R);
    places[0] = arena.take<T>(places_of(expression(p)));
    places[1] = arena.take<T>(places_of(p.score_gradient->program));
    lines = arena.take<char>(static_cast<std::int64_t>(line_bytes<T>(p)));
  }
};

/// Operands and sums of the products in f32 and f64. `wide`: columns rounded up to whole vectors of 64 bytes.
template <typename T>
struct GradientOperands {
  static constexpr int R = query_block;

  T* q = nullptr;          // [D][R]     q * scale
  T* dout = nullptr;       // [Dv][R]
  T* q_rows = nullptr;     // [R][wide D]
  T* dout_rows = nullptr;  // [R][wide Dv]
  T* dq = nullptr;         // [D][R]     sums of the earlier blocks

  static std::int64_t wide(std::int64_t columns) {
    constexpr std::int64_t line = 64 / sizeof(T);
    return (columns + line - 1) / line * line;
  }
  GradientOperands(Arena& arena, const AttentionProblem& p) {
    const auto take = [&arena](std::int64_t count) { return arena.take<T>(count * R); };
    q = take(p.dim);
    dout = take(p.value_dim);
    q_rows = take(wide(p.dim));
    dout_rows = take(wide(p.value_dim));
    dq = take(p.dim);
  }
};

/// Operands and sums of an additive score's gradient. A row has an odd number of cache lines, so that the elements of a
/// column map to different cache sets.
template <typename T>
struct AdditiveOperands {
  static constexpr int R = query_block;

  /// e^2x of rows of Q or of keys: (high + low) 2^exponent; f64: only x itself.
  struct Side {
    T *high = nullptr, *low = nullptr, *exponent = nullptr;  // [R][stride]
  };
  std::int64_t stride;
  Side q, k;
  T* dq = nullptr;      // [R][stride]   sums of the earlier blocks
  T* dw = nullptr;      // [R][stride]
  T* dk = nullptr;      // [64][stride]  chains of the block
  T* w = nullptr;       // [stride]
  T* unused = nullptr;  // [R]           the largest scores, which are not used

  static std::int64_t padded(std::int64_t dim) {
    return GradientOperands<T>::wide(dim) | (64 / static_cast<std::int64_t>(sizeof(T)));
  }
  AdditiveOperands(Arena& arena, const AttentionProblem& p) : stride(padded(p.dim)) {
    const auto take = [&arena](std::int64_t count) { return arena.take<T>(count); };
    for (Side* side : {&q, &k}) {
      side->high = take(R * stride);
      if (sizeof(T) == 8) continue;
      side->low = take(R * stride);
      side->exponent = take(R * stride);
    }
    dq = take(R * stride);
    dw = take(R * stride);
    dk = take(R * stride);
    w = take(stride);
    unused = take(R);
  }
};

/// Operands of the bf16 products. A word holds two elements that are adjacent along the sum.
struct Bf16GradientOperands {
  static constexpr int R = query_block, pairs = query_block / 2;  // pairs of rows, or of keys, in a block

  std::uint32_t* q = nullptr;           // [wide D / 2][R]    pairs of columns
  std::uint32_t* dout = nullptr;        // [wide Dv / 2][R]
  std::uint32_t* q_rows = nullptr;      // [32][wide D]       pairs of rows; values that are not finite are 0
  std::uint32_t* dout_rows = nullptr;   // [32][wide Dv]
  std::uint32_t* k_rows = nullptr;      // [32][wide D]       pairs of keys
  std::uint32_t* weights = nullptr;     // [64 keys][32]      pairs of rows
  std::uint32_t* derivative = nullptr;  // [64 keys][32]      derivative by the score, pairs of rows
  std::uint32_t* transposed = nullptr;  // [32][R]            derivative by the score, pairs of keys
  float* dq = nullptr;                  // [R][wide D]
  // [R][wide]: rows that are being converted to another layout; also K, if its last pair or unit is incomplete
  std::uint16_t* rows = nullptr;
  std::uint16_t* values = nullptr;  // [64][wide Dv]      V, if its last pair or unit is incomplete

  static std::int64_t wide(std::int64_t columns) { return (columns + 31) / 32 * 32; }
  Bf16GradientOperands(Arena& arena, const AttentionProblem& p) {
    const auto take = [&arena](std::int64_t count) { return arena.take<std::uint32_t>(count); };
    q = take(R / 2 * wide(p.dim));
    dout = take(R / 2 * wide(p.value_dim));
    q_rows = take(pairs * wide(p.dim));
    dout_rows = take(pairs * wide(p.value_dim));
    k_rows = take(pairs * wide(p.dim));
    weights = take(kv_block * pairs);
    derivative = take(kv_block * pairs);
    transposed = take(pairs * R);
    dq = arena.take<float>(R * wide(p.dim));
    rows = arena.take<std::uint16_t>(R * wide(std::max(p.dim, p.value_dim)));
    values = arena.take<std::uint16_t>(R * wide(p.value_dim));
  }
};

}  // namespace attn::kernels
