// examples/self_attention.cc: computes the queries, keys and values of a sentence, then self-, multi-head, cross- and
// causal attention.
#include "show.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>
#include <attn/text.h>

#include <cmath>

using attn::Mask;
using attn::Score;
using attn::Tensor;
using attn::Weights;
using show::print, show::same, show::title;
namespace nn = attn::nn;

namespace {

/// Computes attention with one head; the weights are drawn in the order query, key, value.
struct SelfAttention : nn::Module {
  SelfAttention(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v)
      : w_query(register_parameter("w_query", attn::rand({d_in, d_out_kq}))),
        w_key(register_parameter("w_key", attn::rand({d_in, d_out_kq}))),
        w_value(register_parameter("w_value", attn::rand({d_in, d_out_v}))) {}

  Tensor operator()(const Tensor& x) const { return (*this)(x, x); }

  /// Computes cross-attention: queries from x2, keys and values from x1.
  Tensor operator()(const Tensor& x1, const Tensor& x2) const {
    const Tensor queries = x2.matmul(w_query), keys = x1.matmul(w_key), values = x1.matmul(w_value);
    // [words of x2, words of x1]
    const Tensor scores = queries.matmul(keys.t());
    const Tensor weights = attn::softmax(scores / std::sqrt(double(w_query.size(1))), -1);  // each row sums to 1
    return weights.matmul(values);                                                          // [words of x2, d_out_v]
  }

  const Tensor w_query, w_key, w_value;
};

/// Computes several heads and concatenates their outputs.
struct MultiHeadAttentionWrapper : nn::Module {
  MultiHeadAttentionWrapper(std::int64_t d_in, std::int64_t d_out_kq, std::int64_t d_out_v, int num_heads) {
    for (int i = 0; i < num_heads; ++i) heads.push_back(SelfAttention(d_in, d_out_kq, d_out_v));
  }
  Tensor operator()(const Tensor& x) const {
    std::vector<Tensor> outputs;
    for (const SelfAttention& head : heads) outputs.push_back(head(x));
    return attn::cat(outputs, -1);
  }
  nn::ModuleList<SelfAttention> heads = register_module("heads", nn::ModuleList<SelfAttention>());
};

Tensor embed_the_sentence() {
  title("1. Text becomes vectors");
  const std::string sentence = "Life is short, eat dessert first";
  const auto dictionary = attn::text::Vocabulary::of(sentence);  // the sorted words
  const Tensor indices = attn::tensor<std::int64_t>(dictionary.encode(attn::text::split(sentence)));
  print(indices);

  attn::manual_seed(123);
  const nn::Embedding embedding(50'000, 3);
  const Tensor x = embedding(indices).detach();
  print(x);
  return x;
}

void one_query(const Tensor& x) {
  title("2. Self-attention");
  attn::manual_seed(123);
  const std::int64_t d = x.size(1), d_q = 2, d_k = 2, d_v = 4;
  const Tensor w_q = attn::rand({d, d_q}).requires_grad_();
  const Tensor w_k = attn::rand({d, d_k}).requires_grad_();
  const Tensor w_v = attn::rand({d, d_v}).requires_grad_();
  print(x.matmul(w_q));

  // The third word's query, and all queries, keys and values.
  const Tensor q_2 = x[2].matmul(w_q);
  print(q_2);
  const Tensor queries = x.matmul(w_q), keys = x.matmul(w_k), values = x.matmul(w_v);
  print(queries);
  print(keys);
  print(values);

  // The score of query i and key j is their inner product.
  print(attn::dot(q_2, keys[4]));
  const Tensor omega_2 = q_2.matmul(keys.t());
  print(omega_2);

  // Softmax turns the scores into weights; the weighted sum of the values is the context.
  const Tensor weights_2 = attn::softmax(omega_2 / std::sqrt(double(d_k)), 0);
  print(weights_2);
  const Tensor context_2 = weights_2.matmul(values);
  print(context_2);  // its third number is -0.26265 to five digits: the tutorial's machine rounded it to -0.2627

  same("attention(queries, keys, values), row 2", attn::attention(queries, keys, values).output[2], context_2);
  same("attention(query 2 alone, keys, values)", attn::attention(q_2.unsqueeze(0), keys, values).output[0], context_2);
}

void as_a_module(const Tensor& x) {
  title("The same as a module: row 2 is the context vector from above");
  attn::manual_seed(123);
  const SelfAttention attention(3, 2, 4);
  const Tensor contexts = attention(x);
  print(contexts);
  same("self_attention(x, w_query, w_key, w_value)",
       attn::self_attention(x, attention.w_query, attention.w_key, attention.w_value).context, contexts);
}

void several_heads(const Tensor& x) {
  title("3. Multi-head attention");
  attn::manual_seed(123);
  const SelfAttention one(3, 2, 1);
  print(one(x));  // one head: [words, d_v]

  attn::manual_seed(123);
  const MultiHeadAttentionWrapper four(3, 2, 1, 4);
  print(four(x));  // [words, d_v * heads]; its first column is the head above
}

void two_sequences(const Tensor& x1) {
  title("4. Cross-attention");
  attn::manual_seed(123);
  const SelfAttention cross(3, 2, 4);
  const Tensor x2 = attn::rand({8, 3});
  print(x1);
  print(x2);
  const Tensor contexts = cross(x1, x2);
  print(contexts);
  print(show::shape(contexts));
  same("cross_attention(x2, x1, w_query, w_key, w_value)",
       attn::cross_attention(x2, x1, cross.w_query, cross.w_key, cross.w_value).context, contexts);
}

void causal(const Tensor& x) {
  title("5. Causal attention: weights, zeros above the diagonal, each row divided by its sum");
  attn::manual_seed(123);
  const Tensor w_q = attn::rand({3, 2}).requires_grad_();
  const Tensor w_k = attn::rand({3, 2}).requires_grad_();
  const Tensor w_v = attn::rand({3, 4}).requires_grad_();
  const Tensor q = x.matmul(w_q), k = x.matmul(w_k);
  const Tensor scores = q.matmul(k.t());
  print(scores);
  const Tensor weights = attn::softmax(scores / std::sqrt(2.0), 1);
  print(weights);
  const std::int64_t words = scores.size(0);
  const Tensor lower = attn::tril(attn::ones({words, words}));
  print(lower);
  const Tensor masked = weights * lower;
  print(masked);
  const Tensor renormalised = masked / masked.sum({1}, /*keepdim=*/true);
  print(renormalised);
  const Tensor v = x.matmul(w_v);
  print(v);
  const Tensor contexts = renormalised.matmul(v);
  print(contexts);

  title("6. The same in one step: -inf above the diagonal, then softmax");
  const Tensor upper = attn::triu(attn::ones({words, words}), 1).to(attn::Dtype::boolean);
  print(upper);
  const Tensor masked_scores = scores.masked_fill(upper, -show::infinity);
  print(masked_scores);
  // Erratum: the tutorial forgets to divide by sqrt(d_k) here, so its weights are not those of section 5.
  print(attn::softmax(masked_scores, 1));
  print("without sqrt(d_k), as the tutorial prints it (its text breaks off in row 4); with it:");
  const Tensor scaled = attn::softmax(masked_scores / std::sqrt(2.0), 1);
  print(scaled);

  same("-inf before the softmax, and zeros after it", scaled, renormalised);
  const auto fused = attn::attention(q, k, v, {.mask = Mask::causal(), .weights = Weights::full});
  same("attention(q, k, v, causal), weights", fused.weights, renormalised);
  same("attention(q, k, v, causal), output", fused.output, contexts);
  same("attention(q, k, v, causal, unscaled), weights",
       attn::attention(q, k, v, {.score = Score::dot(), .mask = Mask::causal(), .weights = Weights::full}).weights,
       attn::softmax(masked_scores, 1));
}

}  // namespace

int main() try {
  const Tensor x = embed_the_sentence();
  one_query(x);
  as_a_module(x);
  several_heads(x);
  two_sequences(x);
  causal(x);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
