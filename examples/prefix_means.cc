// examples/prefix_means.cc: computes the mean of all earlier tokens in three ways, and goes on to a head of causal
// self-attention.
#include "show.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <cmath>

using attn::Mask;
using attn::Score;
using attn::Tensor;
using attn::Weights;
using show::print, show::same, show::title;
namespace nn = attn::nn;

namespace {

void prefix_means() {
  title("1. Two sequences (B) of eight tokens (T), each of two numbers (C)");
  const std::int64_t B = 2, T = 8, C = 2;
  const Tensor x = attn::rand({B, T, C});
  print(show::shape(x));
  print(x);

  title("2.1 The mean of all tokens so far, by a loop");
  print(x[0].slice(0, 0, 2));
  const Tensor xbow = attn::zeros({B, T, C});  // "bag of words"
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < T; ++t) xbow[b][t].copy_(x[b].slice(0, 0, t + 1).mean({0}));
  print(x[0]);
  print(xbow[0]);

  title("2.2 By a matrix product: a row of equal weights for each token");
  Tensor a = attn::tril(attn::ones({4, 4}));
  print(a);
  print(a.sum({1}, /*keepdim=*/true));
  a = a / a.sum({1}, true);
  print(a);
  Tensor wei = attn::tril(attn::ones({T, T}));
  wei = wei / wei.sum({1}, true);
  print(wei);
  const Tensor xbow2 = wei.matmul(x);  // [T, T] @ [B, T, C] -> [B, T, C]
  print(xbow2);
  print(attn::allclose(xbow, xbow2) ? "True" : "False");

  title("2.3 By softmax: scores of 0, -inf for what comes later");
  const Tensor tril = attn::tril(attn::ones({T, T}));
  wei = attn::softmax(attn::zeros({T, T}).masked_fill(attn::eq(tril, 0), -show::infinity), -1);
  print(wei);
  const Tensor xbow3 = wei.matmul(x);
  print(xbow3);
  print(attn::allclose(xbow, xbow3) ? "True" : "False");
  same("attention(zeros, x, x, causal): equal scores",
       attn::attention(attn::zeros_like(x), x, x, {.mask = Mask::causal()}).output, xbow3);
}

/// Holds what cells 35 and 47 share: linear maps drawn in the order key, query, value.
struct Head {
  Head(std::int64_t channels, std::int64_t size)
      : key(channels, size, {.bias = false}), query(channels, size, {.bias = false}),
        value(channels, size, {.bias = false}) {}
  const nn::Linear key, query, value;
};

/// Computes the softmax over the tokens so far.
Tensor causal_softmax(const Tensor& scores) {
  const Tensor tril = attn::tril(attn::ones({scores.size(-2), scores.size(-1)}));
  return attn::softmax(scores.masked_fill(attn::eq(tril, 0), -show::infinity), -1);
}

void one_head(const Tensor& x, std::int64_t head_size) {
  title("3.1 A head without values: how well a query meets a key decides");
  const nn::Linear key(x.size(2), head_size, {.bias = false});
  const nn::Linear query(x.size(2), head_size, {.bias = false});
  const Tensor k = key(x), q = query(x);  // [B, T, 16]
  print(show::shape(k));
  print(show::shape(q));
  Tensor wei = q.matmul(k.transpose(-2, -1));  // [B, T, 16] @ [B, 16, T] -> [B, T, T]
  print(show::shape(wei));
  print(wei[0]);
  wei = causal_softmax(wei);
  print(wei[0]);
  Tensor out = wei.matmul(x);
  print(show::shape(out));
  const attn::AttentionOptions unscaled{.score = Score::dot(), .mask = Mask::causal(), .weights = Weights::full};
  const auto fused = attn::attention(q, k, x, unscaled);
  same("attention(q, k, x, dot, causal), weights", fused.weights, wei);
  same("attention(q, k, x, dot, causal), output", fused.output, out);

  title("3.2 A head with values: softmax(query(x) @ key(x).T) @ value(x)");
  // Erratum: the tutorial's text has (query(x) @ key(x).T) * value(x), without softmax; its code is right.
  print("the tutorial's text has * for the last @ and no softmax; its code is right");
  const Head head(x.size(2), head_size);
  out = causal_softmax(head.query(x).matmul(head.key(x).transpose(-2, -1))).matmul(head.value(x));
  print(show::shape(out));
  same("attention(query(x), key(x), value(x), dot, causal)",
       attn::attention(head.query(x), head.key(x), head.value(x), unscaled).output, out);
}

void why_it_is_scaled(std::int64_t B, std::int64_t T, std::int64_t head_size) {
  title("3.3 The variance of a score grows with the head size");
  const Tensor k = attn::randn({B, T, head_size}), q = attn::randn({B, T, head_size});
  print(k.var());
  print(q.var());
  print(q.matmul(k.transpose(-2, -1)).var());
  const Tensor a = attn::randn({T});
  print(a);
  print(attn::softmax(a, -1));
  print(attn::softmax(a * 10, -1));  // ten times the scores: nearly all weight on the largest
}

void scaled_head(const Tensor& x, std::int64_t head_size) {
  title("3.4 Scaled attention");
  const Head head(x.size(2), head_size);
  const double scale = std::pow(double(head_size), -0.5);
  const Tensor k = head.key(x), q = head.query(x), v = head.value(x);
  const Tensor scores = q.matmul(k.transpose(-2, -1));
  // Erratum: the tutorial multiplies the output by the factor. It belongs to the scores, before the softmax, where it
  // keeps the softmax from being too sharp.
  const Tensor as_written = causal_softmax(scores).matmul(v) * scale;
  const Tensor out = causal_softmax(scores * scale).matmul(v);
  print("the output scaled, as the tutorial writes it, first sequence:");
  print(as_written[0]);
  print("the scores scaled, as it is meant:");
  print(out[0]);
  same("scaled_dot_product_attention(q, k, v, is_causal)",
       attn::scaled_dot_product_attention(q, k, v, {.is_causal = true}), out);
  same("attention(q, k, v, causal)", attn::attention(q, k, v, {.mask = Mask::causal()}).output, out);
}

}  // namespace

int main() try {
  attn::manual_seed(1677674292);  // the tutorial shows no seed; with this one its numbers come out
  prefix_means();
  const std::int64_t B = 4, T = 8, C = 32, head_size = 16;
  const Tensor x = attn::rand({B, T, C});
  one_head(x, head_size);
  why_it_is_scaled(B, T, head_size);
  scaled_head(x, head_size);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
