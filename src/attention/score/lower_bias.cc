// src/attention/score/lower_bias.cc: checks bias terms and lowers them to the form that kernels read; computes T5's
// buckets.
#include "runtime/format.h"

#include "attention/element.h"
#include "attention/lower.h"
#include "attention/relative/relative_terms.h"
#include "kernels/reference.h"

#include <algorithm>

namespace attn {
namespace {

using kernels::BiasOp;
using kernels::BiasTerm;

/// Returns the bucket of each distance. Distances 0 ... exact - 1 (exact: half the buckets) have one bucket each;
/// larger ones share the rest evenly in log(distance) up to max_distance. Computed in f32, as T5 does.
std::vector<std::int32_t> buckets_of(std::int64_t buckets, std::int64_t max_distance) {
  const std::int64_t exact = buckets / 2;
  const auto log = [](float x) {
    float y = 0;
    kernels::reference().unary(kernels::Unary::log, kernels::Element::f32, &x, &y, 1);
    return y;
  };
  const float whole = log(static_cast<float>(max_distance) / static_cast<float>(exact));
  std::vector<std::int32_t> result;
  for (std::int64_t distance = 0; distance <= max_distance; ++distance) {
    std::int64_t bucket = distance;
    if (distance >= exact) {
      const float part =
          log(static_cast<float>(distance) / static_cast<float>(exact)) / whole * static_cast<float>(buckets - exact);
      bucket = std::min(exact + static_cast<std::int64_t>(part), buckets - 1);
    }
    result.push_back(static_cast<std::int32_t>(bucket));
  }
  return result;
}

void check_heads(const ScoreShape& shape, const char* what, const Tensor& values, std::int64_t heads) {
  if (heads != shape.heads)
    throw ShapeError(runtime::format("{}: the bias {} has shape {}; it needs one value for each of {} query heads",
                                     shape.function, what, to_string(values.sizes()), shape.heads));
}

}  // namespace

LoweredBias lower_bias(const Bias& bias, const ScoreShape& shape, const Lengths& lowered, Dtype dtype) {
  LoweredBias result;
  result.buckets.reserve(bias.terms().size());  // reserved, because the terms point to its elements
  for (const Bias::Term& term : bias.terms()) {
    const Tensor& values = term.values;
    BiasTerm to{.element = element_of(values.dtype())};
    const bool halves = size_of(values.dtype()) == 2 && size_of(dtype) == 2;
    if (values.dtype() != dtype && values.dtype() != Dtype::f32 && !halves)
      throw DtypeError(runtime::format("{}: a bias is {}; it must be {}", shape.function, name_of(values.dtype()),
                                       dtype == Dtype::f32   ? "f32 as q"
                                       : dtype == Dtype::f64 ? "f32 or f64 as q"
                                                             : "f32, bf16 or f16"));
    switch (term.kind) {
      case Bias::Kind::dense: to.dense = broadcast_to_scores(shape, "a dense bias", values); break;
      case Bias::Kind::alibi:
        check_heads(shape, "alibi", values, values.size(0));
        to.op = BiasOp::slope;
        to.values = values.data();
        to.value_stride = values.stride(0);
        to.symmetric = term.symmetric;
        to.bottom_right = is_bottom_right(term.align, "alibi", shape, lowered);
        break;
      case Bias::Kind::relative:
        check_heads(shape, "relative", values, values.size(1));
        result.buckets.push_back(
            buckets_of(term.bidirectional ? values.size(0) / 2 : values.size(0), term.max_distance));
        to.op = BiasOp::table;
        to.values = values.data();
        to.value_stride = values.stride(1);
        to.bucket_stride = values.stride(0);
        to.buckets = values.size(0);
        to.max_distance = term.max_distance;
        to.bidirectional = term.bidirectional;
        to.bucket_of = result.buckets.back().data();
        to.bottom_right = is_bottom_right(term.align, "relative", shape, lowered);
        break;
      case Bias::Kind::product:
        if (result.products == nullptr) result.products = term.products();
        result.products->add(term, static_cast<int>(result.terms.size()), shape, lowered, dtype);
        to.element = element_of(dtype == Dtype::f64 ? dtype : Dtype::f32);
        break;
    }
    result.terms.push_back(to);
    result.places.push_back(result.values.size());
    result.values.push_back(values);
    if (term.operand.defined()) result.values.push_back(term.operand);
  }
  return result;
}

}  // namespace attn
