// src/attention/latent/latent_check.cc: checks a call of latent attention: every error that is not attention's own.
#include "attention/latent/latent_call.h"

#include "runtime/enum_value.h"
#include "runtime/format.h"
#include "tensor/defined.h"

#include <cmath>

namespace attn {
namespace {

/// Checks that x is defined and has these sizes, -1 for any; `letters` names them in the error.
void check_latent_operand(const char* function, const char* name, const Tensor& x, const char* letters,
                          const Dims& sizes) {
  check_defined(function, name, x);
  bool fits = x.dim() == sizes.size();
  for (int d = 0; fits && d < sizes.size(); ++d) fits = sizes[d] < 0 || x.size(d) == sizes[d];
  if (fits) return;
  std::string wanted;
  for (int d = 0; d < sizes.size(); ++d)
    wanted += runtime::format("{}{}", d == 0 ? "" : ", ", sizes[d] < 0 ? std::string("?") : std::to_string(sizes[d]));
  throw ShapeError(runtime::format("{}: {} has shape {}; it must be {}, here [{}]", function, name,
                                   to_string(x.sizes()), letters, wanted));
}
void check_latent_dtype(const char* function, const char* name, const Tensor& x, const Tensor& q_nope) {
  if (x.dtype() != q_nope.dtype())
    throw DtypeError(runtime::format("{}: {} is {}; it must be {} as q_nope", function, name, name_of(x.dtype()),
                                     name_of(q_nope.dtype())));
}

}  // namespace

void check_latent_call(const char* function, const LatentOperands& o, const AttentionOptions& options,
                       LatentForm form) {
  runtime::check_enum(form, LatentForm::absorbed, "{}: form", function);
  check_latent_operand(function, "q_nope", o.q_nope, "[B, H, Tq, Dn]", {-1, -1, -1, -1});
  if (!is_floating(o.q_nope.dtype()))
    throw DtypeError(
        runtime::format("{}: q_nope is {}; it must be f32, f64, bf16 or f16", function, name_of(o.q_nope.dtype())));
  const std::int64_t batch = o.q_nope.size(0), heads = o.q_nope.size(1), rows = o.q_nope.size(2);
  check_latent_operand(function, "q_rope", o.q_rope, "[B, H, Tq, Dr]", {batch, heads, rows, -1});
  check_latent_operand(function, "w_uk", o.w_uk, "[H, Dn, C]", {heads, o.q_nope.size(3), -1});
  check_latent_operand(function, "w_uv", o.w_uv, "[H, Dv, C]", {heads, -1, o.w_uk.size(2)});
  check_latent_dtype(function, "q_rope", o.q_rope, o.q_nope);
  check_latent_dtype(function, "w_uk", o.w_uk, o.q_nope);
  check_latent_dtype(function, "w_uv", o.w_uv, o.q_nope);
  if (options.score.kind != Score::Kind::scaled_dot)
    throw ValueError(
        runtime::format("{}: a score is given; latent attention has the scaled dot product, with a scale", function));
  if (options.out.defined())
    throw ValueError(runtime::format("{}: out is given; the output of latent attention is always new", function));
}

void check_latent_rows(const char* function, const LatentOperands& o) {
  const std::int64_t batch = o.q_nope.size(0);
  check_latent_operand(function, "latent", o.latent, "[B, Tk, C]", {batch, -1, o.w_uk.size(2)});
  check_latent_operand(function, "k_rope", o.k_rope, "[B, Tk, Dr]", {batch, o.latent.size(1), o.q_rope.size(3)});
  check_latent_dtype(function, "latent", o.latent, o.q_nope);
  check_latent_dtype(function, "k_rope", o.k_rope, o.q_nope);
}

void check_latent_cache(const char* function, const LatentOperands& o, const KvCache& cache) {
  if (o.latent.defined() || o.k_rope.defined())
    throw ValueError(
        runtime::format("{}: {} is given; the cache holds it", function, o.latent.defined() ? "latent" : "k_rope"));
  const KvCacheOptions& options = cache.options();
  const std::int64_t latent = o.w_uk.size(2), rope = o.q_rope.size(3);
  if (!options.values_in_keys || options.key_heads != 1)
    throw ValueError(runtime::format(
        "{}: the cache was made without values_in_keys; it must hold one row of {} + {} elements a token", function,
        latent, rope));
  if (options.value_dim != latent || options.head_dim != latent + rope)
    throw ShapeError(
        runtime::format("{}: the cache holds rows of {} + {} elements; they must be {} + {} as w_uk and "
                        "q_rope",
                        function, options.value_dim, options.head_dim - options.value_dim, latent, rope));
  if (o.q_nope.dtype() != options.dtype)
    throw DtypeError(runtime::format("{}: q_nope is {}; it must be {} as the cache", function,
                                     name_of(o.q_nope.dtype()), name_of(options.dtype)));
}

void check_latent_append(const KvCache& cache, const Tensor& latent, const Tensor& k_rope) {
  constexpr const char* function = "append_latent";
  const KvCacheOptions& options = cache.options();
  if (!options.values_in_keys || options.key_heads != 1)
    throw ValueError(
        "append_latent: the cache was made without values_in_keys; it must hold one row of latent and k_rope a token");
  check_latent_operand(function, "latent", latent, "[B, T, C]", {-1, -1, options.value_dim});
  check_latent_operand(function, "k_rope", k_rope, "[B, T, Dr]",
                       {latent.size(0), latent.size(1), options.head_dim - options.value_dim});
  check_latent_dtype(function, "k_rope", k_rope, latent);
}

AttentionOptions latent_options(const LatentOperands& o, AttentionOptions options) {
  const std::int64_t dim = o.q_nope.size(3) + o.q_rope.size(3);
  if (!options.scale) options.scale = dim > 0 ? 1 / std::sqrt(static_cast<double>(dim)) : 1;
  return options;
}

}  // namespace attn
