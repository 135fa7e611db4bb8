// src/kernels/ref/lookups.h: sums the gradients that the pairs of a step give to the tensors of a score expression
// (docs/numerics.md section 4).
#pragma once
#include "kernels/attention/lookup_sums.h"
#include "kernels/ref/element.h"

#include <algorithm>

namespace attn::kernels::ATTN_REF_NAMESPACE {

inline constexpr std::int64_t block_keys = 64;  // fixed: part of the order of operations

/// The sums of a step for each line (LineSums). For lookups of ScoreLine::pair the contributions of a block of keys are
/// stored too, because they are computed row by row but summed key by key.
template <typename T>
struct Lookups {
  LineSums<T>* lines = nullptr;
  std::int64_t* places = nullptr;  // [lookups][64 keys][64]
  T* given = nullptr;

  static std::int64_t pairs(const AttentionProblem& p) {
    return p.score_gradient != nullptr ? p.score_gradient->lookup_count * block_keys * query_block : 0;
  }
  static std::int64_t elements(const AttentionProblem& p) {
    const auto size = static_cast<std::int64_t>(sizeof(T));
    return (static_cast<std::int64_t>(line_bytes<T>(p)) + pairs(p) * (8 + size)) / size + 8 / size;
  }
  Lookups() = default;
  Lookups(const AttentionProblem& p, T* scratch) {
    if (p.score_gradient == nullptr) return;
    auto* const memory = reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(scratch) + 7) / 8 * 8);
    lines = reinterpret_cast<LineSums<T>*>(memory);
    places = reinterpret_cast<std::int64_t*>(memory + line_bytes<T>(p));
    given = reinterpret_cast<T*>(places + pairs(p));
  }

  void begin(const AttentionProblem& p) {
    if (p.score_gradient == nullptr) return;
    begin_lines<T>(p, lines);
    for (std::int64_t n = 0; n < pairs(p); ++n) given[n] = 0;
  }
  /// What a pair gives to a lookup: its value, for an element. Rows count from the first row of the step, keys from the
  /// first key of the sequence and from that of the block.
  struct Given {
    T value;
    std::int64_t element, row, key, block_key;
  };
  /// Adds it to lookup n; `adds`: whether steps add to the tensors themselves.
  void add(const AttentionProblem& p, int n, const Given& x, bool adds) {
    const ScoreSlope& lookup = p.score_gradient->lookups[n];
    if (lookup.line == ScoreLine::pair) {
      const std::int64_t at = (n * block_keys + x.block_key) * query_block + x.row;
      given[at] = x.value;
      places[at] = x.element;
    } else if (lookup.line == ScoreLine::element) {
      if (T* to = static_cast<T*>(lookup.gradient) + x.element; adds) *to = *to + x.value;
    } else {
      const std::int64_t line = lookup.line == ScoreLine::row   ? x.row
                                : lookup.line == ScoreLine::key ? x.key
                                                                : distance_line(p, x.row, x.key);
      lines[n].sums[line] = lines[n].sums[line] + x.value;
      lines[n].places[line] = x.element;
    }
  }
  /// Waits before the step adds to the elements of the keys below `key`.
  static void wait(const AttentionProblem& p, const Task& task, const StepOrder& order, std::int64_t key) {
    if (p.score_gradient != nullptr && p.score_gradient->elements != ElementOrder::none && order.wait_dense != nullptr)
      order.wait_dense(order.context, order_of_elements(p, task, key));
  }
  /// Adds the lines to the tensors.
  void finish(const AttentionProblem& p, const StepOrder& order, bool adds) const {
    if (p.score_gradient == nullptr || !adds || !p.score_gradient->has_lines()) return;
    if (order.wait_dense != nullptr) order.wait_dense(order.context, every_key);
    add_lines<T>(p, lines);
  }
  void close(const AttentionProblem& p) {
    for (std::int64_t at = 0; at < pairs(p); ++at) {
      if (given[at] == 0) continue;  // adding it would change nothing
      LineSums<T>& to = lines[at / (block_keys * query_block)];
      to.sums[places[at]] = to.sums[places[at]] + given[at];
      to.low = std::min(to.low, places[at]);
      to.high = std::max(to.high, places[at] + 1);
      given[at] = 0;
    }
  }
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
