// src/attention/score/score_lowering.h: compiles score expressions to steps that read and write numbered places
// (registers).
#pragma once
#include "attention/lower.h"
#include "attention/score/score_expression.h"
#include "attention/score/score_range.h"

#include <vector>

namespace attn {

/// A lowered expression. The program points into the other members; a move keeps these pointers valid.
struct LoweredProgram {
  kernels::ScoreProgram program;
  std::vector<kernels::ScoreStep> steps;
  std::vector<double> constants;
  std::vector<kernels::ScoreLookup> lookups;
  std::vector<Tensor> looked_up;  // the tensors as given, one per lookup
  std::vector<Tensor> read;       // the contiguous f32 or f64 data that lookups read
  std::vector<Tensor> values;     // the floating tensors as given: they get gradients
};

/// Lowers one score expression, or several at once. It is used for one program.
class ScoreLowering {
 public:
  using Node = ScoreExpression::Node;

  ScoreLowering(const ScoreExpression& expression, const ScoreShape& shape, Dtype computed, const Lengths& lengths)
      : ScoreLowering(std::vector<ScoreExpression>{expression}, shape, computed, lengths, nullptr) {}

  /// Lowers several results at once; result(n) then gives the place of result n. `known`: a program whose tensors are
  /// used again.
  ScoreLowering(const std::vector<ScoreExpression>& wanted, const ScoreShape& shape, Dtype computed,
                const Lengths& lengths, const LoweredProgram* known);

  /// Returns whether the difference of the positions occurs.
  bool has_distance() const;

  /// Compiles the program. `by_distance`: it runs only on rows of one head with adjacent positions, so that values of j
  /// - i may be computed once per distance.
  LoweredProgram run(bool by_distance);

  kernels::ScorePlace result(std::size_t n) { return place(results_[n]); }
  /// Returns which pairs share an element of a lookup whose index expressions are the results [begin, end).
  kernels::ScoreLine line_of(std::size_t begin, std::size_t end) const;

 private:
  int count() const { return static_cast<int>(values_.values.size()); }
  const Node& node(int n) const { return *values_.values[static_cast<std::size_t>(n)].node; }
  const std::vector<int>& parts(int n) const { return values_.values[static_cast<std::size_t>(n)].parts; }
  kernels::ScoreRate& rate(int n) { return rates_[static_cast<std::size_t>(n)]; }
  kernels::ScorePlace& place(int n) { return places_[static_cast<std::size_t>(n)]; }
  int& places_of(kernels::ScoreRate rate) { return result_.program.places[static_cast<int>(rate)]; }

  /// Determines whether f32 holds every integer exactly and every offset in a looked-up tensor fits in 32 bits.
  void check_exactness(const std::vector<ScoreRange>& ranges);
  void check_dtype(const Node& node) const;
  void find_rates();

  /// Returns an unused place.
  kernels::ScorePlace fresh(kernels::ScoreRate rate);
  void place_symbols();
  void emit(kernels::ScoreRate wanted);
  void emit_step(int n);
  void emit_distance(int n);

  /// Allocates the place to which value n is written: a free place of pairs if there is one, that of the score for the
  /// last value.
  kernels::ScorePlace destination(int n);

  /// Frees the places of operands that are last used by value n, so that its step may overwrite them.
  void release(int n);
  std::uint16_t lookup(const Node& node);
  void finish();

  const ScoreShape& shape_;
  Dtype computed_;
  Dtype whole_dtype_ = Dtype::f64;
  ScoreValues values_;
  std::vector<kernels::ScoreRate> rates_;
  std::vector<int> last_use_;
  std::vector<kernels::ScorePlace> places_;
  std::vector<std::uint16_t> free_;
  std::vector<unsigned> depends_;
  std::vector<int> results_;  // indices in `values_`
  const LoweredProgram* known_ = nullptr;
  // in place: there is only one result, and it overwrites the score
  bool by_distance_ = false, in_place_ = true, fits_f32_ = true;
  LoweredProgram result_;
};

}  // namespace attn
