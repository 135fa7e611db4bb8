// src/attention/score/projection.cc: implements the functions that make scores, checks the parameters of a score, and
// projects q and k.
#include "attention/score/projection.h"

#include <attn/ops.h>

#include "runtime/enum_value.h"
#include "runtime/format.h"

#include "tensor/impl.h"

#include <cmath>
#include <string_view>

namespace attn {
namespace {

using Kind = Score::Kind;

void check_parameter(const char* function, const Tensor& q, const Tensor& x, const char* name) {
  if (!x.defined()) throw ValueError(runtime::format("{}: the score's {} is undefined", function, name));
  if (x.dtype() != q.dtype())
    throw DtypeError(runtime::format("{}: the score's {} is {}; it must be {} as q", function, name, name_of(x.dtype()),
                                     name_of(q.dtype())));
}

[[noreturn]] void wrong_shape(const char* function, const char* name, const Tensor& x, const std::string& needed) {
  throw ShapeError(
      runtime::format("{}: the score's {} has shape {}; it must be {}", function, name, to_string(x.sizes()), needed));
}

void check_general(const char* function, const Tensor& q, const Tensor& k, std::int64_t heads, const Tensor& w) {
  check_parameter(function, q, w, "w");
  const bool fits =
      (w.dim() == 2 || (w.dim() == 3 && w.size(0) == heads)) && w.size(-2) == q.size(-1) && w.size(-1) == k.size(-1);
  if (!fits)
    wrong_shape(function, "w", w, runtime::format("[{0}, {1}] or [{2}, {0}, {1}]", q.size(-1), k.size(-1), heads));
}

void check_additive(const char* function, const Tensor& q, const Tensor& k, const Score& score) {
  check_parameter(function, q, score.w_q, "w_q");
  check_parameter(function, q, score.w_k, "w_k");
  check_parameter(function, q, score.w, "w");
  if (score.w_q.dim() != 2 || score.w_q.size(1) != q.size(-1))
    wrong_shape(function, "w_q", score.w_q, runtime::format("[A, {}]", q.size(-1)));
  const std::int64_t channels = score.w_q.size(0);
  if (score.w_k.dim() != 2 || score.w_k.size(0) != channels || score.w_k.size(1) != k.size(-1))
    wrong_shape(function, "w_k", score.w_k, runtime::format("[{}, {}]", channels, k.size(-1)));
  const bool fits = (score.w.dim() == 1 && score.w.size(0) == channels) ||
                    (score.w.dim() == 2 && score.w.size(0) == 1 && score.w.size(1) == channels);
  if (!fits) wrong_shape(function, "w", score.w, runtime::format("[{0}] or [1, {0}]", channels));
}

const char* name_of(Kind kind) { return kind == Kind::dot ? "dot" : kind == Kind::general ? "general" : "additive"; }

}  // namespace

Score Score::scaled_dot() { return {}; }

Score Score::dot() {
  Score score;
  score.kind = Kind::dot;
  return score;
}

Score Score::general(const Tensor& w) {
  Score score;
  score.kind = Kind::general;
  score.w = w;
  return score;
}

Score Score::additive(const Tensor& w_q, const Tensor& w_k, const Tensor& w) {
  Score score;
  score.kind = Kind::additive;
  score.w_q = w_q;
  score.w_k = w_k;
  score.w = w;
  return score;
}

void check_score(const char* function, const Tensor& q, const Tensor& k, std::int64_t heads,
                 const AttentionOptions& options) {
  const Score& score = options.score;
  runtime::check_enum(score.kind, Kind::additive, "{}: the kind of the score", function);
  if (options.scale && score.kind != Kind::scaled_dot)
    throw ValueError(runtime::format("{}: scale is {} beside the score {}; only scaled_dot has a scale", function,
                                     *options.scale, name_of(score.kind)));
  const auto in = [&](double x) { return q.dtype() == Dtype::f64 ? x : static_cast<double>(static_cast<float>(x)); };
  // with a scale that is not finite, torch's function returns NaN, so this one does too
  if (options.scale && !std::isfinite(in(*options.scale)) &&
      std::string_view(function) != "scaled_dot_product_attention")
    throw ValueError(runtime::format("{}: scale is {}; it must be finite", function, *options.scale));
  if (score.kind == Kind::general) return check_general(function, q, k, heads, score.w);
  if (score.kind == Kind::additive) return check_additive(function, q, k, score);
  if (q.impl()->sizes.back() != k.impl()->sizes.back())
    throw ShapeError(runtime::format("{}: k has shape {}; its last dim must be {} to match q {}", function,
                                     to_string(k.sizes()), q.size(-1), to_string(q.sizes())));
}

void project(const Score& score, Tensor& q, Tensor& k) {
  if (score.kind == Kind::general) q = matmul(q, score.w);
  if (score.kind != Kind::additive) return;
  q = linear(q, score.w_q);
  k = linear(k, score.w_k);
}

bool projects_keys(const Score& score) { return score.kind == Kind::additive; }

double score_scale(const AttentionOptions& options, std::int64_t dim) {
  if (options.score.kind != Kind::scaled_dot) return 1;
  if (dim == 0) return 1;  // all scores are then +0, but bf16 kernels still multiply them by the factor
  return options.scale ? *options.scale : 1 / std::sqrt(static_cast<double>(dim));
}

}  // namespace attn
