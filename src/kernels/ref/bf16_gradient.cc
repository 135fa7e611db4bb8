// src/kernels/ref/bf16_gradient.cc: computes the backward pass of bf16 by the dot product of pairs or by AMX tiles, in
// plain loops (docs/numerics.md section 4.1).
#include <numeric>

#include "kernels/ref/attention_gradient.h"

namespace attn::kernels::ATTN_REF_NAMESPACE {
namespace {

/// The layout of the sums of the query heads that share heads of K or V: [heads of K][keys][D], then [heads of
/// V][keys][Dv].
struct Totals {
  std::int64_t k_heads, v_heads, keys;

  Totals(const AttentionProblem& p, std::int64_t count)
      : k_heads(p.k_heads / std::gcd(p.k_heads, p.v_heads)), v_heads(p.v_heads / std::gcd(p.k_heads, p.v_heads)),
        keys(count) {}
  std::int64_t k(const AttentionProblem& p, std::int64_t head, std::int64_t key) const {
    return (head % k_heads * keys + key) * p.dim;
  }
  std::int64_t v(const AttentionProblem& p, std::int64_t head, std::int64_t key) const {
    return k_heads * keys * p.dim + (head % v_heads * keys + key) * p.value_dim;
  }
  std::int64_t elements(const AttentionProblem& p) const { return keys * (k_heads * p.dim + v_heads * p.value_dim); }
};

/// Returns an element of Q or K as a factor of a derivative. An element that is not finite counts as 0, because it
/// already makes the derivative of its pair NaN (0 where a softcap or a score_mod is flat).
float beside_derivative(float x) { return (to_bits(x) & 0x7f800000u) == 0x7f800000u ? 0.0f : x; }

/// Computes at most 64 rows of one head against all keys. Everything except the bf16 products is inherited from Step.
class Bf16Step : public Step<float> {
 public:
  static std::int64_t elements(const AttentionProblem& p) {
    return Step::elements(p) + 2 * query_block * block_keys + block_keys * p.dim +
           query_block * (2 * p.dim + p.value_dim);
  }

  Bf16Step(const AttentionGradient& g, const Task& rows, float* scratch, Bf16Product product)
      : Step(g, rows, scratch, product), product_(product) {
    weights_ = scratch + Step::elements(p_);
    derivatives_ = weights_ + query_block * block_keys;
    k_rows_ = derivatives_ + query_block * block_keys;
    q_rows_ = k_rows_ + block_keys * p_.dim;
    dout_rows_ = q_rows_ + query_block * p_.dim;
    dq_sums_ = dout_rows_ + query_block * p_.value_dim;
  }

  void all_keys(const StepOrder& step_order) {
    begin_sums();
    clear(q_rows_, query_block * (2 * p_.dim + p_.value_dim));
    const std::int64_t begin = p_.keys_begin(rows_), end = p_.keys_end(rows_);
    for (std::int64_t first = begin; first < end; first += block_keys) {
      const std::int64_t last = first + block_keys < end ? first + block_keys : end;
      if (visibility(first, last) == Visibility::empty) continue;
      dense_.wait(step_order, last);
      Lookups<float>::wait(p_, rows_, step_order, last);
      load_block(first, last);
      dense_.close(first, last);
      lookups_.close(p_);
      add_to_queries(last - first);
      if (step_order.wait != nullptr) step_order.wait(step_order.context, last);
      add_to_keys(first - g_.totals_begin, last - first);
      if (step_order.done != nullptr) step_order.done(step_order.context, last);
    }
    for (std::int64_t r = 0; r < rows_.rows; ++r)
      for (std::int64_t d = 0; d < p_.dim; ++d)
        store(g_.dq, p_.element,
              rows_.batch * g_.dq_stride[0] + rows_.head * g_.dq_stride[1] + (rows_.row + r) * g_.dq_stride[2] + d,
              without_denormal(dq_sums_[r * p_.dim + d] * static_cast<float>(p_.scale)));
    if (g_.parameters != nullptr) write_parameters();
    dense_.finish(step_order);
    finish_lookups(step_order);
  }

 private:
  /// Stores the weights and derivatives of the block, rounded, 0 for masked pairs, and the rows that they are
  /// multiplied by.
  void load_block(std::int64_t first, std::int64_t last) {
    clear(weights_, 2 * query_block * block_keys);
    clear(k_rows_, block_keys * p_.dim);
    each_pair(first, last, [&](std::int64_t r, std::int64_t j) {
      weights_[r * block_keys + j - first] = rounded_to_bf16(pairs_.weight);
      derivatives_[r * block_keys + j - first] = rounded_to_bf16(pairs_.score);
      for (std::int64_t d = 0; d < p_.dim; ++d) k_rows_[(j - first) * p_.dim + d] = beside_derivative(pairs_.key()[d]);
      for (std::int64_t d = 0; d < p_.dim; ++d) q_rows_[r * p_.dim + d] = beside_derivative(pairs_.query()[d]);
      for (std::int64_t d = 0; d < p_.value_dim; ++d) dout_rows_[r * p_.value_dim + d] = pairs_.dout()[d];
      seen_[r * block_keys + j - first] = true;
      add_to_parameters(r, j);
      dense_.add(r, j, first, pairs_.bias);
      add_to_lookups(r, j, first);
    });
  }

  /// Adds a chain to a sum; with tiles the chain starts from the sum.
  template <typename X, typename Y>
  void add(float& sum, std::int64_t count, const X& x, const Y& y) const {
    sum = product_ == Bf16Product::tiles ? dot_items(product_, sum, count, x, y)
                                         : sum + dot_items(product_, 0, count, x, y);
  }

  /// Adds to dq: chains of pairs or units of keys, counted from the first key of the block.
  void add_to_queries(std::int64_t keys) {
    for (std::int64_t r = 0; r < rows_.rows; ++r)
      for (std::int64_t d = 0; d < p_.dim; ++d) {
        const float* derivative = derivatives_ + r * block_keys;
        add(
            dq_sums_[r * p_.dim + d], keys, [&](std::int64_t j) { return derivative[j]; },
            [&](std::int64_t j) { return k_rows_[j * p_.dim + d]; });
      }
  }

  /// Adds to dk and dv: chains of pairs or units of rows, counted from the first row of the step. A row that does not
  /// see the key adds nothing, whatever its dO holds.
  void add_to_keys(std::int64_t first, std::int64_t keys) {
    const Totals totals(p_, g_.totals_end - g_.totals_begin);
    const auto add_rows = [&](float* sums, const float* left, const float* rows, std::int64_t columns) {
      for (std::int64_t j = 0; j < keys; ++j)
        for (std::int64_t d = 0; d < columns; ++d) {
          const auto row = [&](std::int64_t i) { return seen_[i * block_keys + j] ? rows[i * columns + d] : 0.0f; };
          add(sums[j * columns + d], rows_.rows, [&](std::int64_t i) { return left[i * block_keys + j]; }, row);
        }
    };
    if (g_.dv != nullptr)
      add_rows(g_.totals + totals.v(p_, rows_.head / (p_.q_heads / p_.v_heads), first), weights_, dout_rows_,
               p_.value_dim);
    if (g_.dk != nullptr)
      add_rows(g_.totals + totals.k(p_, rows_.head / (p_.q_heads / p_.k_heads), first), derivatives_, q_rows_, p_.dim);
    for (bool& seen : seen_) seen = false;
  }

  Bf16Product product_;
  float* weights_;      // [64][64 keys]
  float* derivatives_;  // [64][64 keys]
  float* k_rows_;       // [64 keys][D]
  float* q_rows_;       // [64][D]
  float* dout_rows_;    // [64][Dv]
  float* dq_sums_;      // [64][D]
  bool seen_[query_block * block_keys] = {};
};

std::size_t scratch_bytes(const AttentionGradient& g) {
  return sizeof(float) * static_cast<std::size_t>(Bf16Step::elements(g.problem));
}

template <Bf16Product PRODUCT>
bool step(const AttentionGradient& g, const Task& rows, const StepOrder& step_order, void* scratch) {
  Bf16Step(g, rows, static_cast<float*>(scratch), PRODUCT).all_keys(step_order);
  return true;
}

std::size_t totals_bytes(const AttentionGradient& g, std::int64_t keys) {
  return sizeof(float) * static_cast<std::size_t>(Totals(g.problem, keys).elements(g.problem));
}

void finish(const AttentionGradient& g, std::int64_t batch, std::int64_t first_head, std::int64_t begin,
            std::int64_t end) {
  const AttentionProblem& p = g.problem;
  const Totals totals(p, g.totals_end - g.totals_begin);
  const auto round = [&](void* to, const std::int64_t(&stride)[3], std::int64_t head, const float* from,
                         std::int64_t columns, float scale) {
    if (to == nullptr) return;
    for (std::int64_t j = begin; j < end; ++j)
      for (std::int64_t d = 0; d < columns; ++d)
        store(to, p.element, batch * stride[0] + head * stride[1] + j * stride[2] + d,
              without_denormal(from[(j - g.totals_begin) * columns + d] * scale));
  };
  const std::int64_t k0 = first_head / (p.q_heads / p.k_heads), v0 = first_head / (p.q_heads / p.v_heads);
  for (std::int64_t h = k0; h < k0 + totals.k_heads; ++h)
    round(g.dk, g.dk_stride, h, g.totals + totals.k(p, h, 0), p.dim, static_cast<float>(p.scale));
  for (std::int64_t h = v0; h < v0 + totals.v_heads; ++h)
    round(g.dv, g.dv_stride, h, g.totals + totals.v(p, h, 0), p.value_dim, 1);
}

}  // namespace

/// Index 0: by pairs; index 1: by tiles.
extern const GradientKernel bf16_gradient_tables[2];
const GradientKernel bf16_gradient_tables[2] = {{scratch_bytes, step<Bf16Product::pairs>, totals_bytes, finish},
                                                {scratch_bytes, step<Bf16Product::tiles>, totals_bytes, finish}};

}  // namespace attn::kernels::ATTN_REF_NAMESPACE
