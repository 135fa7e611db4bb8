// src/attention/score/bias.cc: implements the functions that make bias terms, and their addition.
#include <attn/bias.h>
#include <attn/ops.h>

#include "runtime/format.h"

#include "attention/lower.h"
#include "attention/operand_text.h"
#include "kernels/reference.h"
#include "runtime/floating_point.h"

#include <bit>
#include <ostream>

namespace attn {
namespace {

void check_floating(const char* function, const char* what, const Tensor& x) {
  if (!x.defined()) throw ValueError(std::string(function) + ": " + what + " are undefined");
  if (!is_floating(x.dtype()))
    throw DtypeError(std::string(function) + ": " + what + " are " + std::string(name_of(x.dtype())) +
                     "; they must be f32, f64, bf16 or f16");
}

}  // namespace

Bias Bias::dense(const Tensor& values) {
  check_floating("Bias::dense", "values", values);
  if (values.dim() > 4)
    throw ShapeError("Bias::dense: values have shape " + attn::to_string(values.sizes()) +
                     "; at most [B, Hq, Tq, Tk] is possible");
  Bias bias;
  bias.terms_.push_back({.kind = Kind::dense, .values = values});
  return bias;
}

Bias Bias::alibi(const Tensor& slopes, Align align, bool symmetric) {
  check_floating("Bias::alibi", "slopes", slopes);
  if (slopes.dim() != 1)
    throw ShapeError("Bias::alibi: slopes have shape " + attn::to_string(slopes.sizes()) + "; they must be [Hq]");
  Bias bias;
  bias.terms_.push_back({.kind = Kind::alibi, .values = slopes, .align = align, .symmetric = symmetric});
  return bias;
}

Tensor Bias::alibi_slopes(std::int64_t heads) {
  if (heads < 1) throw ValueError("Bias::alibi_slopes: heads is " + std::to_string(heads) + "; it must be at least 1");
  const Tensor slopes = attn::empty({heads}, Dtype::f64);
  const runtime::DefaultFloatingPoint floating_point;
  // As in the paper's code, heads beyond the power of two take every other slope of the next power of two.
  const auto whole = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(heads)));
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::int64_t step = h < whole ? h + 1 : 2 * (h - whole) + 1, of = h < whole ? whole : 2 * whole;
    slopes.data<double>()[h] = -8.0 * static_cast<double>(step) / static_cast<double>(of);
  }
  kernels::reference().unary(kernels::Unary::exp2, kernels::Element::f64, slopes.data(), slopes.data(), heads);
  return slopes.to(Dtype::f32);
}

Bias Bias::relative(const Tensor& table, bool bidirectional, std::int64_t max_distance, Align align) {
  check_floating("Bias::relative", "the table's values", table);
  const std::int64_t least = bidirectional ? 4 : 2;
  if (table.dim() != 2 || table.size(0) < least || (bidirectional && table.size(0) % 2 != 0))
    throw ShapeError("Bias::relative: the table has shape " + attn::to_string(table.sizes()) +
                     "; it must be [buckets, Hq] with " +
                     (bidirectional ? "an even number of at least 4 buckets" : "at least 2 buckets"));
  const std::int64_t exact = table.size(0) / least;
  if (max_distance <= exact || max_distance > 65536)
    throw ValueError("Bias::relative: max_distance is " + std::to_string(max_distance) + "; it must be above " +
                     std::to_string(exact) + ", the distances that have a bucket of their own, and at most 65536");
  Bias bias;
  bias.terms_.push_back({.kind = Kind::relative,
                         .values = table,
                         .bidirectional = bidirectional,
                         .max_distance = max_distance,
                         .align = align});
  return bias;
}

Bias operator+(const Bias& a, const Bias& b) {
  Bias sum = a;
  sum.terms_.insert(sum.terms_.end(), b.terms_.begin(), b.terms_.end());
  return sum;
}

std::string Bias::to_string() const {
  std::string text;
  for (const Term& term : terms_) {
    const char* name = term.kind == Kind::dense     ? "dense"
                       : term.kind == Kind::alibi   ? "alibi"
                       : term.kind == Kind::product ? "relative_product"
                                                    : "relative";
    const std::string align = name_of(term.align);
    text += runtime::format("{}{}({}{}{}", text.empty() ? "" : " + ", name, shape_of(term.values),
                            align.empty() ? "" : ", ", align);
    if (term.kind == Kind::relative)
      text += runtime::format(", max_distance {}{}", term.max_distance, term.bidirectional ? "" : ", one way");
    if (term.symmetric) text += ", symmetric";
    if (term.kind == Kind::product)
      text += runtime::format(", {}{}", term.index.to_string(), term.of_keys ? ", of keys" : "");
    text += ')';
  }
  return text;
}

Bias with_values(const Bias::Term& term, const Tensor& values, const Tensor& operand) {
  switch (term.kind) {
    case Bias::Kind::dense: return Bias::dense(values);
    case Bias::Kind::alibi: return Bias::alibi(values, term.align, term.symmetric);
    case Bias::Kind::product: return Bias::with_tensors(term, values, operand);
    case Bias::Kind::relative: break;
  }
  return Bias::relative(values, term.bidirectional, term.max_distance, term.align);
}

Bias Bias::with_tensors(const Term& term, const Tensor& values, const Tensor& operand) {
  Bias bias;
  bias.terms_.push_back(term);
  bias.terms_.back().values = values;
  bias.terms_.back().operand = operand;
  return bias;
}

Bias in_f32(const Bias& bias) {
  Bias wide;
  for (const Bias::Term& term : bias.terms())
    wide = wide + with_values(term, term.values.to(Dtype::f32),
                              term.operand.defined() ? term.operand.to(Dtype::f32) : Tensor());
  return wide;
}

std::vector<Tensor> tensors_of(const Bias& bias) {
  std::vector<Tensor> tensors;
  for (const Bias::Term& term : bias.terms()) {
    tensors.push_back(term.values);
    if (term.operand.defined()) tensors.push_back(term.operand);
  }
  return tensors;
}

std::ostream& operator<<(std::ostream& out, const Bias& bias) { return out << bias.to_string(); }

}  // namespace attn
