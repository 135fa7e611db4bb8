// src/nn/small_attention.cc: implements the modules that tutorials build; each consists of projections and one
// attention call.
#include <attn/nn/small_attention.h>
#include <attn/random.h>

namespace attn::nn {
namespace {

/// Pools x with a learned query [1, hidden] that attends to every row of x [B, L, hidden]. Returns the scores and
/// weights [B, L] and the context [B, hidden].
ScoresAndContext pool(const char* function, const Tensor& query, const Tensor& x, const Score& score,
                      const Tensor& padding) {
  if (x.dim() != 3 || x.size(2) != query.size(1))
    throw ShapeError(std::string(function) + ": x has shape " + to_string(x.sizes()) + "; it must be [B, L, " +
                     std::to_string(query.size(1)) + "]");
  if (padding.defined() && !(padding.sizes() == Dims{x.size(0), x.size(1)}))
    throw ShapeError(std::string(function) + ": padding has shape " + to_string(padding.sizes()) + "; it must be " +
                     to_string(Dims{x.size(0), x.size(1)}));
  const Tensor rows = query.expand({x.size(0), 1, query.size(1)});
  const AttentionOptions options{
      .score = score, .mask = padding.defined() ? Mask::key_padding(padding) : Mask(), .weights = Weights::full};
  const AttentionResult result = attention(rows, x, x, options);
  return {attention_scores(rows, x, options).squeeze(1), result.weights.reshape({x.size(0), x.size(1)}),
          result.output.squeeze(1)};
}

/// Returns a bool mask that is true where `mask`, of any dtype, is not 0; throws ShapeError unless it has the needed
/// shape.
Tensor keeping(const char* name, const Tensor& mask, const Dims& needed) {
  if (!(mask.sizes() == needed))
    throw ShapeError(std::string("MultiHeadAttention: ") + name + " has shape " + to_string(mask.sizes()) +
                     "; it must be " + to_string(needed));
  return mask.dtype() == Dtype::boolean ? mask : ne(mask, 0);
}

std::int64_t checked_heads(std::int64_t d_model, std::int64_t num_heads) {
  if (num_heads <= 0 || d_model % num_heads != 0)
    throw ValueError("MultiHeadAttention: d_model " + std::to_string(d_model) + " and num_heads " +
                     std::to_string(num_heads) + "; num_heads must divide d_model");
  return num_heads;
}

}  // namespace

SelfAttention::SelfAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v)
    : w_query(register_parameter("w_query", rand({d_in, d_out_kq}))),
      w_key(register_parameter("w_key", rand({d_in, d_out_kq}))),
      w_value(register_parameter("w_value", rand({d_in, d_out_v}))) {}

AttentionResult SelfAttention::attend(const Tensor& x, const AttentionOptions& options) const {
  return attention(matmul(x, w_query), matmul(x, w_key), matmul(x, w_value), options);
}

CausalSelfAttention::CausalSelfAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v)
    : w_query(register_parameter("w_query", rand({d_in, d_out_kq}))),
      w_key(register_parameter("w_key", rand({d_in, d_out_kq}))),
      w_value(register_parameter("w_value", rand({d_in, d_out_v}))) {}

AttentionResult CausalSelfAttention::attend(const Tensor& x, const AttentionOptions& options) const {
  AttentionOptions causal = options;
  causal.mask = Mask::causal() & options.mask;
  return attention(matmul(x, w_query), matmul(x, w_key), matmul(x, w_value), causal);
}

CrossAttention::CrossAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v)
    : w_query(register_parameter("w_query", rand({d_in, d_out_kq}))),
      w_key(register_parameter("w_key", rand({d_in, d_out_kq}))),
      w_value(register_parameter("w_value", rand({d_in, d_out_v}))) {}

AttentionResult CrossAttention::attend(const Tensor& x1, const Tensor& x2, const AttentionOptions& options) const {
  return attention(matmul(x2, w_query), matmul(x1, w_key), matmul(x1, w_value), options);
}

namespace {

ModuleList<SelfAttention> make_heads(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v,
                                     std::int64_t num_heads) {
  if (num_heads <= 0)
    throw ValueError("MultiHeadAttentionWrapper: num_heads is " + std::to_string(num_heads) +
                     "; it must be greater than 0");
  ModuleList<SelfAttention> heads;
  for (std::int64_t h = 0; h < num_heads; ++h) heads.push_back(SelfAttention(d_in, d_out_kq, d_out_v));
  return heads;
}

}  // namespace

MultiHeadAttentionWrapper::MultiHeadAttentionWrapper(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v,
                                                     std::int64_t num_heads)
    : heads(register_module("heads", make_heads(d_in, d_out_kq, d_out_v, num_heads))) {}

Tensor MultiHeadAttentionWrapper::forward(const Tensor& x) const {
  std::vector<Tensor> outputs;
  for (const SelfAttention& head : heads) outputs.push_back(head(x));
  return cat(outputs, -1);
}

AdditiveAttention::AdditiveAttention(std::int64_t hidden_size)
    : W_q(register_module("W_q", Linear(hidden_size, hidden_size, {.bias = false}))),
      W_k(register_module("W_k", Linear(hidden_size, hidden_size, {.bias = false}))),
      w(register_module("w", Linear(hidden_size, 1, {.bias = false}))),
      q(register_parameter("q", randn({1, hidden_size}))) {}

ScoresAndContext AdditiveAttention::forward(const Tensor& x, const Tensor& padding) const {
  return pool("AdditiveAttention", q, x, Score::additive(W_q.weight, W_k.weight, w.weight), padding);
}

DotProductAttention::DotProductAttention(std::int64_t hidden_size)
    : q(register_parameter("q", randn({hidden_size, 1}))) {}

ScoresAndContext DotProductAttention::forward(const Tensor& x, const Tensor& padding) const {
  return pool("DotProductAttention", q.t(), x, Score::dot(), padding);
}

SelfAttentionScore::SelfAttentionScore(std::int64_t hidden_size)
    : W_q(register_module("W_q", Linear(hidden_size, hidden_size, {.bias = false}))),
      W_k(register_module("W_k", Linear(hidden_size, hidden_size, {.bias = false}))) {}

Tensor SelfAttentionScore::forward(const Tensor& x) const {
  return attention_scores(W_q(x), W_k(x), {.score = Score::dot()});
}

MultiHeadAttention::MultiHeadAttention(std::int64_t d_model, std::int64_t num_heads)
    : d_model(d_model), num_heads(checked_heads(d_model, num_heads)),
      W_Q(register_module("W_Q", Linear(d_model, d_model))), W_K(register_module("W_K", Linear(d_model, d_model))),
      W_V(register_module("W_V", Linear(d_model, d_model))), W_O(register_module("W_O", Linear(d_model, d_model))) {}

Tensor MultiHeadAttention::forward(const Tensor& x_q, const Tensor& x_k, const Tensor& x_v, const Tensor& padding_mask,
                                   const Tensor& attention_mask) const {
  for (const Tensor& x : {x_q, x_k, x_v})
    if (x.dim() != 3 || x.size(2) != d_model)
      throw ShapeError("MultiHeadAttention: an input has shape " + to_string(x.sizes()) + "; all must be [N, L, " +
                       std::to_string(d_model) + "]");
  const std::int64_t n = x_q.size(0), q_rows = x_q.size(1), k_rows = x_k.size(1);
  const auto split = [&](const Tensor& x) {
    return x.reshape({x.size(0), x.size(1), num_heads, d_model / num_heads}).transpose(1, 2);
  };
  Mask mask;
  if (attention_mask.defined()) mask = Mask::attend(keeping("attention_mask", attention_mask, {q_rows, k_rows}));
  if (padding_mask.defined())
    mask = mask & Mask::attend(keeping("padding_mask", padding_mask, {n, k_rows}).reshape({n, 1, 1, k_rows}));
  const Tensor heads = attention(split(W_Q(x_q)), split(W_K(x_k)), split(W_V(x_v)), {.mask = mask}).output;
  return W_O(heads.transpose(1, 2).reshape({n, q_rows, d_model}));
}

}  // namespace attn::nn
