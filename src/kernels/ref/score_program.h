// src/kernels/ref/score_program.h: evaluates a score expression for one pair, step by step: the definition that the
// vector code reproduces.
#pragma once
#include "kernels/attention/mask/mask_program.h"
#include "kernels/ref/element.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {

/// The indices of a pair: task, head, row, key.
struct Pair {
  const Task& task;
  std::int64_t h, i, j;
};

/// Evaluates the expression. Integers are exact in f64, within 2^53; conditions are 1 and 0; floating values are T. A
/// place (register) holds any of them.
template <typename T>
class ScoreMachine {
 public:
  ScoreMachine(const AttentionProblem& problem, const Pair& pair) : ScoreMachine(problem.score_mod, problem, pair) {}
  [[gnu::noinline]] ScoreMachine(const ScoreProgram& program, const AttentionProblem& problem, const Pair& pair)
      : program_(program) {
    int first = 0;
    for (int r = 0; r < score_rates; ++r) {
      first_[r] = first;
      first += program_.places[r];
    }
    values_[0] = 0;  // read for operands that a step does not have
    for (int n = 0; n < program_.constant_count; ++n) values_[n] = program_.constants[n];
    const ScoreSymbols& symbols = program_.symbols;
    set(ScoreRate::once, symbols.batch, problem.item(pair.task));
    set(ScoreRate::row, symbols.head, pair.h);
    for (int bottom_right = 0; bottom_right < 2; ++bottom_right)
      set(ScoreRate::row, symbols.row[bottom_right], row_position(problem, pair.task, pair.i, bottom_right != 0));
    set(ScoreRate::key, symbols.key, key_position(problem, pair.task, pair.j));
    for (int bottom_right = 0; bottom_right < 2; ++bottom_right)
      set(ScoreRate::distance, symbols.distance[bottom_right],
          key_position(problem, pair.task, pair.j) - row_position(problem, pair.task, pair.i, bottom_right != 0));
  }

  T run(T s) {
    at({ScoreRate::pair, 0}) = static_cast<double>(s);
    for (int n = 0; n < program_.begin[score_rates]; ++n) {
      const ScoreStep& step = program_.steps[n];
      at(step.to) = step.op == ScoreStepOp::lookup ? look_up(step) : step.whole ? whole(step) : number(step);
    }
    return static_cast<T>(at({ScoreRate::pair, 0}));
  }
  /// Returns a value that `run` computed.
  T value(ScorePlace place) { return static_cast<T>(at(place)); }
  /// Returns the element that a pair looked up.
  std::int64_t element(const ScoreSlope& lookup) {
    std::int64_t offset = 0;
    for (int n = 0; n < lookup.rank; ++n) offset += static_cast<std::int64_t>(at(lookup.index[n])) * lookup.stride[n];
    return offset;
  }

 private:
  double& at(ScorePlace place) { return values_[first_[static_cast<int>(place.rate)] + place.place]; }
  void set(ScoreRate rate, int place, std::int64_t value) {
    if (place >= 0) at({rate, static_cast<std::uint16_t>(place)}) = static_cast<double>(value);
  }

  double look_up(const ScoreStep& step) {
    const ScoreLookup& lookup = program_.lookups[step.lookup];
    std::int64_t offset = 0;
    for (int d = 0; d < lookup.rank; ++d) offset += static_cast<std::int64_t>(at(step.from[d])) * lookup.stride[d];
    return load<double>(lookup.data, lookup.element, offset);
  }

  static double down(double x) {  // rounds down to an integer, within 2^53
    const double cut = static_cast<double>(static_cast<std::int64_t>(x));
    return cut > x ? cut - 1 : cut;
  }

  /// Computes an integer step. Every result is exact: the rounded quotient of integers within 2^53 never reaches the
  /// next integer, so `down` is right.
  double whole(const ScoreStep& step) {
    const double a = at(step.from[0]), b = at(step.from[1]);
    switch (step.op) {
      case ScoreStepOp::neg: return 0 - a;  // 0 - a, because no integer is -0
      case ScoreStepOp::mul: return fma(a, b, 0.0);
      case ScoreStepOp::floor_div: return down(a / b);
      case ScoreStepOp::mod: return fma(-b, down(a / b), a);
      default: return of<double>(step, a, b, at(step.from[2]));
    }
  }
  double number(const ScoreStep& step) {
    return static_cast<double>(of<T>(step, static_cast<T>(at(step.from[0])), static_cast<T>(at(step.from[1])),
                                     static_cast<T>(at(step.from[2]))));
  }

  template <typename N>
  static N of(const ScoreStep& step, N a, N b, N c) {
    switch (step.op) {
      case ScoreStepOp::neg: return -a;
      case ScoreStepOp::abs: return abs(a);
      case ScoreStepOp::exp: return exp(a);
      case ScoreStepOp::tanh: return tanh(a);
      case ScoreStepOp::op_not: return N(1) - a;
      case ScoreStepOp::add: return a + b;
      case ScoreStepOp::sub: return a - b;
      case ScoreStepOp::mul: return a * b;
      case ScoreStepOp::div: return a / b;
      case ScoreStepOp::min: return b != b ? b : b < a ? b : a;
      case ScoreStepOp::max: return b != b ? b : a < b ? b : a;
      case ScoreStepOp::lt: return N(a < b);
      case ScoreStepOp::le: return N(a <= b);
      case ScoreStepOp::eq: return N(a == b);
      case ScoreStepOp::op_and: return a * b;
      case ScoreStepOp::op_or: return a < b ? b : a;
      case ScoreStepOp::where: return a != 0 ? b : c;
      default: return a;
    }
  }

  const ScoreProgram& program_;
  int first_[score_rates];
  double values_[most_score_places];
};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
