// src/attention/score/score_range.cc: computes for each integer in a score expression the interval of values that it
// can have in a call.
#include "attention/score/score_range.h"

#include "runtime/format.h"

#include "attention/sequences.h"

#include <algorithm>
#include <cstdlib>

namespace attn {
namespace {

using Node = ScoreExpression::Node;
using Op = Node::Op;
__extension__ typedef __int128 Wide;  // holds products of two integers within 2^53

constexpr std::int64_t most = std::int64_t{1} << 53;

std::string text_of(const Node& node) { return short_text(ScoreExpression(Node::Part(Node::Part(), &node))); }

class Ranges {
 public:
  Ranges(const ScoreValues& values, const ScoreShape& shape, const Lengths& lengths)
      : values_(values), shape_(shape), lengths_(lengths) {
    describe_scores(shape, lengths, problem_);
    if (shape.packed) sequences_ = packed_sequences(*shape.packed, lengths.query_start);
  }

  std::vector<ScoreRange> run() {
    for (const ScoreValues::Value& value : values_.values) {
      if (value.node->op == Op::lookup) check_lookup(value);
      ranges_.push_back(is_whole(*value.node) ? range_of(value) : ScoreRange{});
    }
    return std::move(ranges_);
  }

 private:
  ScoreRange of(const ScoreValues::Value& value, std::size_t part) const {
    return ranges_[static_cast<std::size_t>(value.parts[part])];
  }

  ScoreRange range_of(const ScoreValues::Value& value) const {
    const Node& node = *value.node;
    switch (node.op) {
      case Op::whole: return bounded(node, node.whole, node.whole);
      case Op::batch: return {0, shape_.items() - 1};
      case Op::head: return {0, shape_.heads - 1};
      case Op::key: return keys();
      case Op::row: return rows(is_bottom_right(node.align, std::string(shape_.expression) + "'s i", shape_, lengths_));
      case Op::lookup: return held(node);
      default: return arithmetic(value);
    }
  }

  ScoreRange arithmetic(const ScoreValues::Value& value) const {
    const Node& node = *value.node;
    const ScoreRange a = of(value, 0), b = value.parts.size() > 1 ? of(value, 1) : ScoreRange{},
                     c = value.parts.size() > 2 ? of(value, 2) : ScoreRange{};
    switch (node.op) {
      case Op::neg: return {-a.high, -a.low};
      case Op::abs: return {a.low > 0 ? a.low : a.high < 0 ? -a.high : 0, std::max(std::abs(a.low), std::abs(a.high))};
      case Op::add: return bounded(node, Wide{a.low} + b.low, Wide{a.high} + b.high);
      case Op::sub: return bounded(node, Wide{a.low} - b.high, Wide{a.high} - b.low);
      case Op::min: return {std::min(a.low, b.low), std::min(a.high, b.high)};
      case Op::max: return {std::max(a.low, b.low), std::max(a.high, b.high)};
      case Op::where: return {std::min(b.low, c.low), std::max(b.high, c.high)};
      case Op::mul: return corners(node, a, b, [](std::int64_t x, std::int64_t y) { return Wide{x} * y; });
      case Op::floor_div:
        check_divisor(value, b);
        return corners(node, a, b, [](std::int64_t x, std::int64_t y) {
          return Wide{x / y - (x % y != 0 && (x < 0) != (y < 0) ? 1 : 0)};
        });
      default:  // mod
        check_divisor(value, b);
        if (a.low >= 0 && b.low > a.high) return a;
        return b.low > 0 ? ScoreRange{0, b.high - 1} : ScoreRange{b.low + 1, 0};
    }
  }

  template <typename F>
  ScoreRange corners(const Node& node, const ScoreRange& a, const ScoreRange& b, F&& f) const {
    const Wide all[] = {f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)};
    return bounded(node, *std::min_element(all, all + 4), *std::max_element(all, all + 4));
  }

  ScoreRange bounded(const Node& node, Wide low, Wide high) const {
    if (low < -most || high > most)
      throw ValueError(runtime::format("{}: {}: \"{}\" can reach {:.3g}; whole numbers must stay within 2^53",
                                       shape_.function, shape_.expression, text_of(node),
                                       static_cast<double>(high > most ? high : low)));
    return {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)};
  }

  void check_divisor(const ScoreValues::Value& value, const ScoreRange& divisor) const {
    if (divisor.low <= 0 && divisor.high >= 0)
      throw ValueError(runtime::format("{}: {}: the divisor of \"{}\" goes from {} to {}; it must not be 0",
                                       shape_.function, shape_.expression, text_of(*value.node), divisor.low,
                                       divisor.high));
  }

  /// Calls visit(task) for every batch item or packed sequence, with its first row.
  template <typename F>
  void for_each_item(F&& visit) const {
    for (std::int64_t n = 0; n < shape_.items(); ++n) {
      const kernels::Sequence* const packed = shape_.packed ? &sequences_[static_cast<std::size_t>(n)] : nullptr;
      visit(packed ? kernels::Task{.batch = packed->batch, .row = packed->rows_begin, .sequence = packed}
                   : kernels::Task{.batch = n});
    }
  }

  ScoreRange keys() const {
    ScoreRange range;
    for_each_item([&](const kernels::Task& item) {
      range.high = std::max(range.high, problem_.keys_end(item) - problem_.keys_begin(item) - 1);
    });
    return range;
  }
  ScoreRange rows(bool bottom_right) const {
    ScoreRange range;
    bool any = false;
    for_each_item([&](const kernels::Task& item) {
      const std::int64_t begin = item.row, end = problem_.rows_end(item),
                         offset = problem_.row_offset(item, bottom_right);
      if (begin >= end) return;
      range.low = any ? std::min(range.low, begin + offset) : begin + offset;
      range.high = any ? std::max(range.high, end - 1 + offset) : end - 1 + offset;
      any = true;
    });
    return range;
  }

  /// Returns the least and the greatest number of an integer tensor.
  ScoreRange held(const Node& node) const {
    const std::vector<std::int64_t> numbers = node.tensor.to_int_vector();
    const auto [low, high] = std::minmax_element(numbers.begin(), numbers.end());
    return bounded(node, *low, *high);
  }

  void check_lookup(const ScoreValues::Value& value) const {
    const Node& node = *value.node;
    const std::string shape = to_string(node.tensor.sizes());
    for (std::size_t d = 0; d < value.parts.size(); ++d) {
      const std::int64_t size = node.tensor.size(static_cast<int>(d));
      const Op op = values_.values[static_cast<std::size_t>(value.parts[d])].node->op;
      if ((op == Op::head && size != shape_.heads) || (op == Op::batch && size != shape_.items()))
        throw ShapeError(runtime::format("{}: {} looks up {} {} by {} in dim {}; that dim must be {}, one for each {}",
                                         shape_.function, shape_.expression, node.name, shape,
                                         op == Op::head ? "h" : "b", d, op == Op::head ? shape_.heads : shape_.items(),
                                         op == Op::head ? "query head" : shape_.item()));
      const ScoreRange index = of(value, d);
      if (index.low < 0 || index.high >= size)
        throw ValueError(
            runtime::format("{}: {}: the index \"{}\" of {} {} goes from {} to {}; it must stay from 0 to {} (min "
                            "and max hold it there)",
                            shape_.function, shape_.expression, text_of(*node.parts[d]), node.name, shape, index.low,
                            index.high, size - 1));
    }
  }

  const ScoreValues& values_;
  const ScoreShape& shape_;
  const Lengths& lengths_;
  kernels::AttentionProblem problem_;
  std::vector<kernels::Sequence> sequences_;  // the packed sequences
  std::vector<ScoreRange> ranges_;
};

}  // namespace

std::vector<ScoreRange> score_ranges(const ScoreValues& values, const ScoreShape& shape, const Lengths& lowered) {
  return Ranges(values, shape, lowered).run();
}

}  // namespace attn
