// src/kernels/attention/lookup_sums.h: sums gradients of tensors that score_mod looks up, per row, key or distance,
// before they are added to the tensors.
#pragma once
#include "kernels/attention/backward_problem.h"
#include "kernels/attention/mask/masked_values.h"

#include <cstring>
#include <limits>

// The functions are `static`: this header is compiled for several instruction sets, and the linker must not merge them.
namespace attn::kernels {

/// The sums of one lookup's gradient in a step. Pairs with the same index share a sum, called a line: a line is a row
/// of the step, a key (counted from the first), or a distance (the greatest j - i first). For ScoreLine::pair a line is
/// an element of the tensor itself; elements [low, high) have been added to.
template <typename T>
struct LineSums {
  T* sums;
  std::int64_t* places;  // for each line, its element in the tensor
  std::int64_t low, high;
};

/// Returns the line of the distance of a pair; `row` counts from the first row of the step, `key` from the first key.
static inline std::int64_t distance_line(const AttentionProblem& p, std::int64_t row, std::int64_t key) {
  return p.k_rows - 1 - key + row;
}

/// Steps add in order. Before this step adds to the elements of keys up to `key`, the previous step must be done with
/// all keys up to the one returned here. It is every_key if the elements are not ordered by key, or sequences of an
/// item may use the same elements at other keys.
static inline std::int64_t order_of_elements(const AttentionProblem& p, const Task& task, std::int64_t key) {
  return p.score_gradient->elements == ElementOrder::by_key && task.sequence == nullptr ? key : every_key;
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

/// Return the bytes for the element indices and sums of one lookup, and for those of all lookups with their LineSums.
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

/// Lays out the lines of all lookups in `memory` and sets them to 0.
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

/// Adds each line to its element, lines ascending. A line of 0 is skipped: adding it would change nothing, and if it
/// had no pair, its element index is not set, and the element may belong to another thread.
template <typename T>
[[gnu::cold]] static void add_lines(const AttentionProblem& p, const LineSums<T>* all) {
  for (int n = 0; n < p.score_gradient->lookup_count; ++n) {
    const LineSums<T>& lines = all[n];
    T* const to = static_cast<T*>(p.score_gradient->lookups[n].gradient);
    for (std::int64_t line = lines.low; line < lines.high; ++line) {
      if (lines.sums[line] == 0) continue;
      T& element = to[lines.places != nullptr ? lines.places[line] : line];
      element = canonical(element + lines.sums[line]);
    }
  }
}

}  // namespace attn::kernels
