// src/kernels/attention/lookup_sums.h: gradients of tensors that score_mod looks up, summed per row, key or
// distance before they are added.
#pragma once
#include "kernels/attention/backward_problem.h"

#include <cstring>

// `static`: this header is compiled for several instruction sets, and the linker must not merge them.
namespace attn::kernels {

/// The sums of a lookup. A line is a row of the step, a key from the first, or a distance, the greatest j - i first; of
/// ScoreLine::pair an element of the tensor itself, of which [low, high) have got something.
template <typename T>
struct LineSums {
  T* sums;
  std::int64_t* places;  // the line's element
  std::int64_t low, high;
};

/// The line of distances that a pair is on; `row` and `key` count from the first of the step and of its keys.
static inline std::int64_t distance_line(const AttentionProblem& p, std::int64_t row, std::int64_t key) {
  return p.k_rows - 1 - key + row;
}

/// What a step waits for before it adds to elements up to `key`: parts of an item may have the same elements at other
/// keys.
static inline std::int64_t order_of_elements(const AttentionProblem& p, std::int64_t key) {
  return p.score_gradient->elements == ElementOrder::by_key && p.sequence == nullptr ? key : every_key;
}

static inline std::int64_t lines_of(const AttentionProblem& p, const ScoreSlope& lookup) {
  switch (lookup.line) {
    case ScoreLine::row: return query_block;
    case ScoreLine::key: return p.k_rows;
    case ScoreLine::distance: return p.k_rows + query_block;
    case ScoreLine::pair: return lookup.elements;
    default: return 0;
  }
}

/// Memory for all lookups: LineSums, then of each its places and its sums.
template <typename T>
static inline std::size_t line_bytes(const AttentionProblem& p, const ScoreSlope& lookup) {
  const std::size_t line = sizeof(T) + (lookup.line == ScoreLine::pair ? 0 : sizeof(std::int64_t));
  return (static_cast<std::size_t>(lines_of(p, lookup)) * line + 7) / 8 * 8;
}
template <typename T>
[[gnu::cold]] static std::size_t line_bytes(const AttentionProblem& p) {
  std::size_t total = 0;
  if (p.score_gradient == nullptr) return total;
  for (int n = 0; n < p.score_gradient->lookup_count; ++n)
    total += sizeof(LineSums<T>) + line_bytes<T>(p, p.score_gradient->lookups[n]);
  return total;
}

/// Lines at 0.
template <typename T>
[[gnu::cold]] static LineSums<T>* begin_lines(const AttentionProblem& p, void* memory) {
  auto* const all = static_cast<LineSums<T>*>(memory);
  const int count = p.score_gradient->lookup_count;
  char* next = reinterpret_cast<char*>(all + count);
  for (int n = 0; n < count; ++n) {
    const ScoreSlope& lookup = p.score_gradient->lookups[n];
    const std::size_t bytes = line_bytes<T>(p, lookup);
    const std::int64_t lines = lines_of(p, lookup);
    std::memset(next, 0, bytes);
    auto* const places = reinterpret_cast<std::int64_t*>(next);
    if (lookup.line == ScoreLine::pair) all[n] = {reinterpret_cast<T*>(next), nullptr, lines, 0};
    else all[n] = {reinterpret_cast<T*>(places + lines), places, 0, lines};
    next += bytes;
  }
  return all;
}

/// Lines ascending, each to its element. One at 0 would change nothing, and may have had no pair: its place is not
/// known, so what it would add 0 to may be another thread's.
template <typename T>
[[gnu::cold]] static void add_lines(const AttentionProblem& p, const LineSums<T>* all) {
  for (int n = 0; n < p.score_gradient->lookup_count; ++n) {
    const LineSums<T>& lines = all[n];
    T* const to = static_cast<T*>(p.score_gradient->lookups[n].gradient);
    for (std::int64_t line = lines.low; line < lines.high; ++line) {
      if (lines.sums[line] == 0) continue;
      T& element = to[lines.places != nullptr ? lines.places[line] : line];
      element = element + lines.sums[line];
    }
  }
}

}  // namespace attn::kernels
