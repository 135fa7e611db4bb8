// src/attention/score/score_lowering.cc: the steps of a score expression: how often each is computed, where its
// operands are and where its result goes.
#include "attention/score/score_lowering.h"

#include "runtime/format.h"

#include "attention/element.h"

#include <algorithm>
#include <cstdlib>

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;
using kernels::ScoreLine;
using kernels::ScorePlace;
using kernels::ScoreRate;
using kernels::ScoreStep;
using kernels::ScoreStepOp;

ScoreStepOp step_op(Op op) {
  switch (op) {
    case Op::neg: return ScoreStepOp::neg;
    case Op::abs: return ScoreStepOp::abs;
    case Op::exp: return ScoreStepOp::exp;
    case Op::tanh: return ScoreStepOp::tanh;
    case Op::op_not:
    case Op::ne: return ScoreStepOp::op_not;  // ne is eq followed by not
    case Op::add: return ScoreStepOp::add;
    case Op::sub: return ScoreStepOp::sub;
    case Op::mul: return ScoreStepOp::mul;
    case Op::div: return ScoreStepOp::div;
    case Op::floor_div: return ScoreStepOp::floor_div;
    case Op::mod: return ScoreStepOp::mod;
    case Op::min: return ScoreStepOp::min;
    case Op::max: return ScoreStepOp::max;
    case Op::lt:
    case Op::gt: return ScoreStepOp::lt;
    case Op::le:
    case Op::ge: return ScoreStepOp::le;
    case Op::eq: return ScoreStepOp::eq;
    case Op::op_and: return ScoreStepOp::op_and;
    case Op::op_or: return ScoreStepOp::op_or;
    case Op::where: return ScoreStepOp::where;
    case Op::lookup: return ScoreStepOp::lookup;
    default: return ScoreStepOp::copy;
  }
}

bool is_symbol(const Node& node) { return node.parts.empty() && node.op != Op::lookup; }

/// Returns whether the node is j - i or i - j.
bool is_distance(const Node& node) {
  if (node.op != Op::sub) return false;
  const Op a = node.parts[0]->op, b = node.parts[1]->op;
  return (a == Op::key && b == Op::row) || (a == Op::row && b == Op::key);
}

/// What a value depends on.
enum Depends : unsigned { on_head = 1, on_row = 2, on_key = 4, on_distance = 8, on_score = 16 };

unsigned depends_of_symbol(Op op) {
  switch (op) {
    case Op::head: return on_head;
    case Op::row: return on_row;
    case Op::key: return on_key;
    case Op::score: return on_score;
    default: return 0;
  }
}

ScoreRate rate_of(unsigned depends) {
  if (depends == 0) return ScoreRate::once;
  if ((depends & ~(on_head | on_row)) == 0) return ScoreRate::row;
  if (depends == on_key) return ScoreRate::key;
  return (depends & ~(on_head | on_distance)) == 0 ? ScoreRate::distance : ScoreRate::pair;
}

}  // namespace

ScoreLowering::ScoreLowering(const std::vector<ScoreExpression>& wanted, const ScoreShape& shape, Dtype computed,
                             const Lengths& lengths, const LoweredProgram* known)
    : shape_(shape), computed_(computed), values_(wanted.front()), known_(known) {
  for (const ScoreExpression& one : wanted) results_.push_back(values_.place(one));
  rates_.resize(values_.values.size());
  last_use_.assign(values_.values.size(), -1);
  places_.resize(values_.values.size());
  check_exactness(score_ranges(values_, shape_, lengths));
}

bool ScoreLowering::has_distance() const {
  return std::any_of(values_.values.begin(), values_.values.end(),
                     [](const ScoreValues::Value& value) { return is_distance(*value.node); });
}

LoweredProgram ScoreLowering::run(bool by_distance) {
  by_distance_ = by_distance;
  in_place_ = known_ == nullptr;
  find_rates();
  if (!in_place_)
    for (const int n : results_) last_use_[static_cast<std::size_t>(n)] = count();
  place_symbols();
  for (const ScoreRate rate : {ScoreRate::once, ScoreRate::row, ScoreRate::key, ScoreRate::distance, ScoreRate::pair}) {
    result_.program.begin[static_cast<int>(rate)] = static_cast<int>(result_.steps.size());
    emit(rate);
  }
  finish();
  return std::move(result_);
}

ScoreLine ScoreLowering::line_of(std::size_t begin, std::size_t end) const {
  unsigned on = 0;
  int rows = 0, keys = 0;
  bool plain = true;
  for (std::size_t n = begin; n < end; ++n) {
    const Op op = node(results_[n]).op;
    on |= depends_[static_cast<std::size_t>(results_[n])];
    rows += op == Op::row ? 1 : 0;
    keys += op == Op::key ? 1 : 0;
    plain = plain && (op == Op::row || op == Op::key || op == Op::head || op == Op::batch || op == Op::whole);
  }
  on &= ~unsigned{on_head};
  if (on == 0) return ScoreLine::step;
  if (on == on_row) return ScoreLine::row;
  if (on == on_key) return ScoreLine::key;
  if (on == on_distance) return ScoreLine::distance;
  return plain && rows == 1 && keys == 1 ? ScoreLine::element : ScoreLine::pair;
}

void ScoreLowering::check_exactness(const std::vector<ScoreRange>& ranges) {
  constexpr std::int64_t exact = std::int64_t{1} << 24, farthest = std::int64_t{1} << 31;
  for (const ScoreRange& range : ranges) fits_f32_ = fits_f32_ && range.low >= -exact && range.high <= exact;
  for (const ScoreValues::Value& value : values_.values) {
    if (value.node->op != Op::lookup) continue;
    check_dtype(*value.node);
    const Tensor& x = value.node->tensor;
    std::int64_t reach = 0;
    for (int d = 0; d < x.dim(); ++d) reach += (x.size(d) - 1) * std::abs(x.stride(d));
    fits_f32_ = fits_f32_ && reach < farthest;
  }
  if (fits_f32_) whole_dtype_ = computed_;
}

void ScoreLowering::check_dtype(const Node& node) const {
  if (node.tensor.dtype() == Dtype::f64 && computed_ != Dtype::f64)
    throw DtypeError(
        runtime::format("{}: {} looks up {}, which is f64; scores are computed in f32, so it must be f32, bf16 or f16",
                        shape_.function, shape_.expression, node.name));
}

void ScoreLowering::find_rates() {
  std::vector<unsigned>& depends = depends_;
  for (int n = 0; n < count(); ++n) {
    unsigned on = depends_of_symbol(node(n).op);
    for (const int part : parts(n)) {
      on |= depends[static_cast<std::size_t>(part)];
      last_use_[static_cast<std::size_t>(part)] = n;
    }
    if (by_distance_ && is_distance(node(n))) on = on_distance;
    depends.push_back(on);
    rate(n) = rate_of(on);
  }
}

ScorePlace ScoreLowering::fresh(ScoreRate rate) {
  int total = 1;  // starts at 1, because `ne` may need one more
  for (int r = 0; r < kernels::score_rates; ++r) total += result_.program.places[r];
  if (total >= kernels::most_score_places)
    throw ValueError(runtime::format("{}: {} needs more than {} values at once", shape_.function, shape_.expression,
                                     kernels::most_score_places));
  return {rate, static_cast<std::uint16_t>(places_of(rate)++)};
}

void ScoreLowering::place_symbols() {
  kernels::ScoreSymbols& symbols = result_.program.symbols;
  for (int n = 0; n < count(); ++n)
    if (node(n).op == Op::number || node(n).op == Op::whole) {
      place(n) = fresh(ScoreRate::once);
      result_.constants.push_back(node(n).op == Op::number ? node(n).number : static_cast<double>(node(n).whole));
    }
  fresh(ScoreRate::pair);  // reserves place 0 of the pairs for the score
  for (int n = 0; n < count(); ++n) {
    const Op op = node(n).op;
    if (op == Op::batch || op == Op::head || op == Op::key || op == Op::row) {
      int& symbol = op == Op::batch  ? symbols.batch
                    : op == Op::head ? symbols.head
                    : op == Op::key  ? symbols.key
                                     : symbols.row[node(n).align == Align::bottom_right ? 1 : 0];
      if (symbol < 0) symbol = fresh(rate(n)).place;  // i and i(top_left) share a place
      place(n) = {rate(n), static_cast<std::uint16_t>(symbol)};
    }
  }
  for (int n = 0; n < count(); ++n)
    if (node(n).op == Op::score) place(n) = {ScoreRate::pair, 0};
}

void ScoreLowering::emit(ScoreRate wanted) {
  for (int n = 0; n < count(); ++n)
    if (rate(n) == wanted && !is_symbol(node(n))) emit_step(n);
}

void ScoreLowering::emit_step(int n) {
  const Node& node = this->node(n);
  ScoreStep step{.op = step_op(node.op), .whole = true};
  if (rate(n) == ScoreRate::distance && is_distance(node)) return emit_distance(n);
  const bool swapped = node.op == Op::gt || node.op == Op::ge;
  for (std::size_t d = 0; d < parts(n).size(); ++d) {
    const int part = parts(n)[d];
    step.from[swapped ? 1 - d : d] = place(part);
    step.whole = step.whole && this->node(part).kind != Node::Kind::number;
  }
  if (node.kind == Node::Kind::number) step.whole = false;
  if (node.op == Op::lookup) step.lookup = lookup(node);
  if (rate(n) == ScoreRate::pair) release(n);
  place(n) = step.to = destination(n);
  if (node.op == Op::ne) {
    step.op = ScoreStepOp::eq;
    result_.steps.push_back(step);
    step = {.op = ScoreStepOp::op_not, .whole = true, .to = step.to, .from = {step.to}};
  }
  result_.steps.push_back(step);
}

void ScoreLowering::emit_distance(int n) {
  const bool negated = node(n).parts[0]->op == Op::row;  // i - j
  int& symbol = result_.program.symbols.distance[node(n).parts[negated ? 0 : 1]->align == Align::bottom_right ? 1 : 0];
  if (symbol < 0) symbol = fresh(ScoreRate::distance).place;
  place(n) = {ScoreRate::distance, static_cast<std::uint16_t>(symbol)};
  if (!negated) return;
  const ScorePlace to = fresh(ScoreRate::distance);
  result_.steps.push_back({.op = ScoreStepOp::neg, .whole = true, .to = to, .from = {place(n)}});
  place(n) = to;
}

ScorePlace ScoreLowering::destination(int n) {
  if (rate(n) != ScoreRate::pair) return fresh(rate(n));
  if (in_place_ && n == count() - 1) return {ScoreRate::pair, 0};
  if (free_.empty()) return fresh(ScoreRate::pair);
  const ScorePlace place{ScoreRate::pair, free_.back()};
  free_.pop_back();
  return place;
}

void ScoreLowering::release(int n) {
  std::vector<int> done;
  for (const int part : parts(n))
    if (rate(part) == ScoreRate::pair && last_use_[static_cast<std::size_t>(part)] == n &&
        std::find(done.begin(), done.end(), part) == done.end())
      done.push_back(part);
  for (const int part : done) free_.push_back(place(part).place);
}

std::uint16_t ScoreLowering::lookup(const Node& node) {
  const Dtype stored = node.kind == Node::Kind::number ? computed_ : whole_dtype_;
  const auto place_in = [&](const std::vector<Tensor>& all) {
    return static_cast<std::size_t>(
        std::find_if(all.begin(), all.end(), [&](const Tensor& x) { return x.impl() == node.tensor.impl(); }) -
        all.begin());
  };
  if (const std::size_t n = place_in(result_.looked_up); n < result_.looked_up.size())
    return static_cast<std::uint16_t>(n);
  const std::size_t before = known_ != nullptr ? place_in(known_->looked_up) : 0;
  const bool again = known_ != nullptr && before < known_->read.size() && known_->read[before].dtype() == stored;
  const Tensor read = again ? known_->read[before] : node.tensor.detach().to(stored);
  kernels::ScoreLookup to{.data = read.data(), .element = element_of(stored), .rank = read.dim()};
  for (int d = 0; d < read.dim(); ++d) to.stride[d] = read.stride(d);
  result_.lookups.push_back(to);
  result_.read.push_back(read);
  result_.looked_up.push_back(node.tensor);
  if (node.kind == Node::Kind::number) result_.values.push_back(node.tensor);
  return static_cast<std::uint16_t>(result_.lookups.size() - 1);
}

void ScoreLowering::finish() {
  kernels::ScoreProgram& program = result_.program;
  const int last = count() - 1;
  if (in_place_ && rate(last) != ScoreRate::pair)
    result_.steps.push_back({.op = ScoreStepOp::copy, .to = {ScoreRate::pair, 0}, .from = {place(last)}});
  program.begin[kernels::score_rates] = static_cast<int>(result_.steps.size());
  program.steps = result_.steps.data();
  program.constants = result_.constants.data();
  program.constant_count = static_cast<int>(result_.constants.size());
  program.lookups = result_.lookups.data();
  program.fits_f32 = fits_f32_;
}

}  // namespace attn
