// examples/sixteen_dimensions.cc: computes self-, multi-head and cross-attention with weights stored as [d_q, d] and
// applied from the left.
#include "show.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>
#include <attn/text.h>

#include <cmath>

using attn::Tensor;
using show::print, show::same, show::shape, show::title;
namespace nn = attn::nn;

namespace {

constexpr std::int64_t d_q = 24, d_k = 24, d_v = 28;

Tensor embed_the_sentence() {
  title("Embedding a sentence");
  const std::string sentence = "Life is short, eat dessert first";
  const auto dictionary = attn::text::Vocabulary::of(sentence);  // the sorted words
  const char* between = "{";
  for (const std::string& word : dictionary.tokens()) {
    std::cout << between << "'" << word << "': " << *dictionary.find(word);
    between = ", ";
  }
  print("}");
  const Tensor sentence_int = attn::tensor<std::int64_t>(dictionary.encode(attn::text::split(sentence)));
  print(sentence_int);

  attn::manual_seed(123);
  const nn::Embedding embed(6, 16);
  const Tensor embedded = embed(sentence_int).detach();
  print(embedded);
  print(shape(embedded));
  return embedded;
}

void one_query(const Tensor& x, const Tensor& W_query, const Tensor& W_key, const Tensor& W_value) {
  title("Scores that are not yet normalised");
  const Tensor x_2 = x[1];  // the second word is the query
  const Tensor query_2 = W_query.matmul(x_2), key_2 = W_key.matmul(x_2), value_2 = W_value.matmul(x_2);
  print(shape(query_2));
  print(shape(key_2));
  print(shape(value_2));
  const Tensor keys = W_key.matmul(x.t()).t(), values = W_value.matmul(x.t()).t();
  print("keys.shape:", shape(keys));
  print("values.shape:", shape(values));
  print(attn::dot(query_2, keys[4]));  // with the fifth word, index 4
  const Tensor omega_2 = query_2.matmul(keys.t());
  print(omega_2);

  title("Attention weights and the context vector");
  const Tensor weights_2 = attn::softmax(omega_2 / std::sqrt(double(d_k)), 0);
  print(weights_2);
  const Tensor context_2 = weights_2.matmul(values);
  print(shape(context_2));
  print(context_2);
  same("attention(query_2, keys, values)", attn::attention(query_2.unsqueeze(0), keys, values).output[0], context_2);
}

void three_heads(const Tensor& x) {
  title("Multi-head attention: three heads stacked in one tensor");
  const std::int64_t h = 3, d = x.size(1);
  const Tensor W_query = attn::rand({h, d_q, d});
  const Tensor W_key = attn::rand({h, d_k, d});
  const Tensor W_value = attn::rand({h, d_v, d});
  const Tensor query_2 = W_query.matmul(x[1]);
  print(shape(query_2));
  const Tensor stacked_inputs = x.t().repeat({h, 1, 1});
  print(shape(stacked_inputs));
  Tensor keys = attn::bmm(W_key, stacked_inputs), values = attn::bmm(W_value, stacked_inputs);
  print("multihead_keys.shape:", shape(keys));
  print("multihead_values.shape:", shape(values));
  keys = keys.permute({0, 2, 1});
  values = values.permute({0, 2, 1});
  print("multihead_keys.shape:", shape(keys));
  print("multihead_values.shape:", shape(values));

  // The tutorial leaves this to its reader: the same steps for each head.
  const Tensor omega_2 = keys.matmul(query_2.unsqueeze(-1)).squeeze(-1);  // [h, words]
  print(omega_2);
  const Tensor weights_2 = attn::softmax(omega_2 / std::sqrt(double(d_k)), -1);
  print(weights_2);
  const Tensor contexts_2 = attn::bmm(weights_2.unsqueeze(1), values).squeeze(1);  // [h, d_v]
  print(contexts_2);
  // [h, rows, D] -> [B = 1, h, rows, D]
  const auto in_one_batch = [](const Tensor& heads) { return heads.unsqueeze(0); };
  same("attention(query_2, keys, values), all heads in one call",
       attn::attention(in_one_batch(query_2.unsqueeze(1)), in_one_batch(keys), in_one_batch(values))
           .output.reshape({h, d_v}),
       contexts_2);
}

void two_sentences(const Tensor& x) {
  title("Cross-attention: queries from one sentence, keys and values from another");
  attn::manual_seed(123);
  const std::int64_t d = x.size(1);
  // Errata: the tutorial's print has a colon too many, `shape:)`, and its output says queries.shape where its code says
  // query.shape.
  print(
      "the tutorial's next print has a colon too many, and its output says queries.shape where its code says "
      "query.shape");
  print("embedded_sentence.shape:", shape(x));
  const Tensor W_query = attn::rand({d_q, d}), W_key = attn::rand({d_k, d}), W_value = attn::rand({d_v, d});
  const Tensor query_2 = W_query.matmul(x[1]);
  print("query.shape", shape(query_2));
  Tensor keys = W_key.matmul(x.t()).t(), values = W_value.matmul(x.t()).t();
  print("keys.shape:", shape(keys));
  print("values.shape:", shape(values));

  const Tensor x_2 = attn::rand({8, 16});  // a second sentence, of eight words
  keys = W_key.matmul(x_2.t()).t();
  values = W_value.matmul(x_2.t()).t();
  print("keys.shape:", shape(keys));
  print("values.shape:", shape(values));

  // The tutorial leaves this to its reader, too.
  const Tensor omega_2 = query_2.matmul(keys.t());
  print(omega_2);
  const Tensor weights_2 = attn::softmax(omega_2 / std::sqrt(double(d_k)), 0);
  print(weights_2);
  const Tensor context_2 = weights_2.matmul(values);
  print(context_2);
  same("cross_attention(sentence, second sentence, ...), row 1",
       attn::cross_attention(x, x_2, W_query.t(), W_key.t(), W_value.t()).context[1], context_2);
}

}  // namespace

int main() try {
  const Tensor x = embed_the_sentence();
  attn::manual_seed(123);
  const std::int64_t d = x.size(1);
  // The tutorial's weights are parameters, but its prints show no grad_fn: they come from a run without gradients.
  const Tensor W_query = attn::rand({d_q, d}), W_key = attn::rand({d_k, d}), W_value = attn::rand({d_v, d});
  one_query(x, W_query, W_key, W_value);
  three_heads(x);  // the random generator continues where W_value ended
  two_sentences(x);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
