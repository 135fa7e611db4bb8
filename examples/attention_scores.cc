// examples/attention_scores.cc: computes additive, dot-product, general and self-attention scores, padding, and
// multi-head attention, both written out and with torch's module.
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

// ===== 1. Scores ===================================================================================================

/// Computes w . tanh(W_k k + W_q q) with a learned query q.
struct AdditiveScore : nn::Module {
  explicit AdditiveScore(std::int64_t hidden_size)
      : W_q(register_module("W_q", nn::Linear(hidden_size, hidden_size, {.bias = false}))),
        W_k(register_module("W_k", nn::Linear(hidden_size, hidden_size, {.bias = false}))),
        w(register_module("w", nn::Linear(hidden_size, 1, {.bias = false}))),
        q(register_parameter("q", attn::randn({1, hidden_size}))) {}
  // [B, L, D] -> [B, L, 1] -> [B, L]
  Tensor operator()(const Tensor& X) const { return w(attn::tanh(W_k(X) + W_q(q))).squeeze(-1); }
  const nn::Linear W_q, W_k, w;
  const Tensor q;
};

/// Computes k . q with a learned query q. Erratum: the tutorial writes self.q(X), but q is a parameter; X @ q is meant.
struct DotProductScore : nn::Module {
  explicit DotProductScore(std::int64_t hidden_size) : q(register_parameter("q", attn::randn({hidden_size, 1}))) {}
  Tensor operator()(const Tensor& X) const { return X.matmul(q).squeeze(-1); }  // [B, L, D] -> [B, L]
  const Tensor q;
};

/// Computes (W_q x_i) . (W_k x_j) for all pairs of words.
struct SelfAttentionScore : nn::Module {
  explicit SelfAttentionScore(std::int64_t hidden_size)
      : W_q(register_module("W_q", nn::Linear(hidden_size, hidden_size, {.bias = false}))),
        W_k(register_module("W_k", nn::Linear(hidden_size, hidden_size, {.bias = false}))) {}
  Tensor operator()(const Tensor& X) const { return W_q(X).matmul(W_k(X).transpose(1, 2)); }  // [B, L, L]
  const nn::Linear W_q, W_k;
};

void scores() {
  title("1. Additive score, learned query");
  const AdditiveScore additive(4);
  Tensor X = attn::randn({3, 4, 4});
  print(additive(X));
  const Tensor query = additive.q.expand({3, 1, 4});
  const Score score = Score::additive(additive.W_q.weight, additive.W_k.weight, additive.w.weight);
  same("attention_scores(q, X, additive)", attn::attention_scores(query, X, {.score = score}).squeeze(1), additive(X));
  const Tensor pooled = attn::softmax(additive(X), -1).unsqueeze(1).matmul(X);  // one vector for each sentence
  same("attention(q, X, X, additive): pooling", attn::attention(query, X, X, {.score = score}).output, pooled);

  title("Dot-product score, learned query");
  const DotProductScore dot(4);
  X = attn::randn({3, 4, 4});
  print("the tutorial calls its parameter, self.q(X); a product is meant:");
  print(dot(X));
  same("attention_scores(q, X, dot)",
       attn::attention_scores(dot.q.t().expand({3, 1, 4}), X, {.score = Score::dot()}).squeeze(1), dot(X));

  title("Self-attention score");
  const SelfAttentionScore self_attn_score(4);
  X = attn::randn({3, 4, 4});
  print(self_attn_score(X));
  same("attention_scores(W_q X, W_k X, dot)",
       attn::attention_scores(self_attn_score.W_q(X), self_attn_score.W_k(X), {.score = Score::dot()}),
       self_attn_score(X));
  const Tensor W = self_attn_score.W_q.weight.t().matmul(self_attn_score.W_k.weight);
  same("attention_scores(X, X, general(W_q^T W_k))", attn::attention_scores(X, X, {.score = Score::general(W)}),
       self_attn_score(X));
}

// ===== 2. One head, step by step ===================================================================================

/// Holds the values, printed with four digits, of in_proj_weight (rows of W_q, W_k, W_v) and out_proj.weight of
/// `multihead_attention` below.
struct Printed {
  Tensor W = attn::tensor2d({{0.4926, -0.7041, -0.4945},
                             {0.6348, -0.2868, -0.4850},
                             {-0.2386, 0.1559, -0.5426},
                             {-0.0833, 0.3115, 0.6994},
                             {0.2863, -0.1040, 0.5505},
                             {-0.0437, 0.2370, 0.1977},
                             {-0.4363, -0.4253, 0.3783},
                             {0.2342, 0.2743, 0.5620},
                             {-0.5765, 0.6763, 0.6810}})
                 .requires_grad_();
  Tensor W_out = attn::tensor2d({{0.4881, 0.4734, -0.3643}, {-0.4775, 0.4050, 0.0622}, {-0.5061, 0.0370, -0.5362}})
                     .requires_grad_();
  Tensor W_q = W.slice(0, 0, 3), W_k = W.slice(0, 3, 6), W_v = W.slice(0, 6);
};

/// Returns [B, L], True where there is a word.
Tensor words_mask(std::int64_t max_len, const Tensor& seq_lens) {
  return attn::lt(attn::arange(max_len), seq_lens.unsqueeze(-1));
}

/// Sets the columns of padding to -1e9, so that no word attends to them.
Tensor score_mask(const Tensor& score, const Tensor& seq_lens) {
  const Tensor mask = words_mask(score.size(1), seq_lens).unsqueeze(1);  // [B, 1, L]: hides a column in every row
  return score.masked_fill(attn::logical_not(mask), -1e9);
}

void step_by_step(const Tensor& x, const Tensor& seq_lens) {
  title("2. Scores, mask, softmax, weighted sum, for three sentences of 4, 3 and 2 words");
  const Printed p;
  const Tensor Q = x.matmul(p.W_q.t()), K = x.matmul(p.W_k.t()), V = x.matmul(p.W_v.t());
  print(show::shape(Q), show::shape(K), show::shape(V));
  const Tensor attn_score = Q.matmul(K.transpose(1, 2)) / attn::sqrt(attn::scalar_tensor(3.0f));
  print(attn_score);
  const Tensor masked_score = score_mask(attn_score, seq_lens);
  print(masked_score);
  const Tensor atten = attn::softmax(masked_score, 2);
  print(atten);
  const Tensor out = atten.matmul(V);
  print(out);
  print(out.matmul(p.W_out.t()));

  const auto fused = attn::attention(Q, K, V, {.key_lengths = seq_lens, .weights = Weights::full});
  same("attention(Q, K, V, key_lengths), weights", fused.weights, atten);
  same("attention(Q, K, V, key_lengths), output", fused.output, out);
  // Padding must not change a sentence. The third sentence, alone and without its padding:
  const auto alone = [](const Tensor& t) { return t.slice(0, 2, 3).slice(1, 0, 2); };
  print("the third sentence alone, bit for bit:",
        attn::same_bits(attn::attention(alone(Q), alone(K), alone(V)).output, alone(fused.output).contiguous())
            ? "True"
            : "False");
}

// ===== 3. torch's module, and the same as a class ==================================================================

/// Computes one head with an output projection; masks are True = blocked, as in nn::MultiheadAttention.
struct Attention : nn::Module {
  explicit Attention(std::int64_t embed_dim)
      : W_q(register_module("W_q", nn::Linear(embed_dim, embed_dim, {.bias = false}))),
        W_k(register_module("W_k", nn::Linear(embed_dim, embed_dim, {.bias = false}))),
        W_v(register_module("W_v", nn::Linear(embed_dim, embed_dim, {.bias = false}))),
        W_out(register_module("W_out", nn::Linear(embed_dim, embed_dim, {.bias = false}))) {}

  std::pair<Tensor, Tensor> operator()(const Tensor& q, const Tensor& k, const Tensor& v,
                                       const Tensor& key_padding_mask, const Tensor& attn_mask) const {
    const Tensor Q = W_q(q), K = W_k(k), V = W_v(v);
    Tensor attn_score = Q.matmul(K.transpose(1, 2)) / std::sqrt(double(q.size(2)));
    if (key_padding_mask) attn_score = attn_score.masked_fill(key_padding_mask.unsqueeze(1), -1e9);
    // erratum: the tutorial applies key_padding_mask
    if (attn_mask) attn_score = attn_score.masked_fill(attn_mask, -1e9);
    const Tensor atten = attn::softmax(attn_score, 2);
    return {W_out(atten.matmul(V)), atten};
  }
  const nn::Linear W_q, W_k, W_v, W_out;
};

void print_pair(const std::pair<Tensor, Tensor>& out_and_attn) {
  print(out_and_attn.first);
  print(out_and_attn.second);
}

void one_head(const Tensor& x, const Tensor& seq_lens) {
  title("3. torch's module with one head");
  const nn::MultiheadAttention multihead_attention(3, 1, {.batch_first = true});
  for (const Tensor& parameter : multihead_attention.parameters()) {
    print("Parameter containing:");
    print(parameter);
  }

  title("The mask as attn_mask [B, L, L]");
  const Tensor words = words_mask(4, seq_lens);
  const Tensor mask = (words.unsqueeze(1) + attn::zeros({3, 4, 4})).to(attn::Dtype::boolean);
  print(mask);
  const auto by_attn_mask =
      // a mask for each of B * num_heads; here num_heads is 1
      multihead_attention(x, x, x, {.attn_mask = attn::logical_not(mask)});
  print_pair({by_attn_mask.output, by_attn_mask.weights});

  title("The mask as key_padding_mask [B, L]");
  print(words);
  const auto by_padding = multihead_attention(x, x, x, {.key_padding_mask = attn::logical_not(words)});
  print_pair({by_padding.output, by_padding.weights});
  same("attn_mask and key_padding_mask", by_attn_mask.output, by_padding.output);

  title("The class Attention, with the printed digits of the module's weights");
  const Attention myattention(3);
  const Printed p;
  myattention.load_state_dict(
      {{"W_q.weight", p.W_q}, {"W_k.weight", p.W_k}, {"W_v.weight", p.W_v}, {"W_out.weight", p.W_out}});
  const auto ours = myattention(x, x, x, attn::logical_not(words), {});
  print_pair(ours);
  print("where attn_mask is given the tutorial applies key_padding_mask; with the mask that is meant:");
  same("its attn_mask and key_padding_mask", myattention(x, x, x, {}, attn::logical_not(mask)).first, ours.first);
}

// ===== 4. Several heads ============================================================================================

/// Splits [B, L, D] into heads: [B, L, H, d] -> [B, H, L, d] -> [B * H, L, d].
Tensor split_head_reshape(const Tensor& X, std::int64_t num_heads, std::int64_t head_size) {
  const std::int64_t B = X.size(0), L = X.size(1);
  return X.reshape({B, L, num_heads, head_size}).transpose(1, 2).reshape({B * num_heads, L, head_size});
}

/// Joins the heads again: [B * H, L, d] -> [B, L, D].
Tensor head_rebuild(const Tensor& X, std::int64_t B, std::int64_t L, std::int64_t num_heads, std::int64_t head_size) {
  return X.reshape({B, num_heads, L, head_size}).transpose(1, 2).reshape({B, L, num_heads * head_size});
}

struct Call {
  Tensor key_padding_mask = {};  // [B, L]
  Tensor attn_mask = {};         // [L, L] or [B * num_heads, L, L]
  bool average_attn_weights = true;
};

struct MultiheadAttention : nn::Module {
  MultiheadAttention(std::int64_t embed_dim, std::int64_t num_heads)
      : num_heads(num_heads), head_size(embed_dim / num_heads),
        W_q(register_module("W_q", nn::Linear(embed_dim, embed_dim, {.bias = false}))),
        W_k(register_module("W_k", nn::Linear(embed_dim, embed_dim, {.bias = false}))),
        W_v(register_module("W_v", nn::Linear(embed_dim, embed_dim, {.bias = false}))),
        W_out(register_module("W_out", nn::Linear(embed_dim, embed_dim, {.bias = false}))) {}

  std::pair<Tensor, Tensor> operator()(const Tensor& q, const Tensor& k, const Tensor& v, const Call& call) const {
    const std::int64_t B = q.size(0), L = q.size(1);
    const auto split = [this](const Tensor& X) { return split_head_reshape(X, num_heads, head_size); };
    const Tensor Q = split(W_q(q)), K = split(W_k(k)), V = split(W_v(v));            // [B * H, L, d]
    Tensor attn_score = Q.matmul(K.transpose(1, 2)) / std::sqrt(double(head_size));  // [B * H, L, L]
    if (call.key_padding_mask) {
      const Tensor mask =
          call.key_padding_mask.reshape({B, 1, 1, L}).expand({-1, num_heads, -1, -1}).reshape({B * num_heads, 1, L});
      attn_score = attn_score.masked_fill(mask, -1e9);
    }
    // 2-D: the same mask for all; 3-D: one mask for each head
    if (call.attn_mask) attn_score = attn_score.masked_fill(call.attn_mask, -1e9);
    const Tensor attention = attn::softmax(attn_score, -1);
    const Tensor out = W_out(head_rebuild(attention.matmul(V), B, L, num_heads, head_size));
    const Tensor attn_weights = attention.reshape({B, num_heads, L, L});
    return {out, call.average_attn_weights ? attn_weights.mean({1}) : attn_weights};
  }
  const std::int64_t num_heads, head_size;
  const nn::Linear W_q, W_k, W_v, W_out;
};

void several_heads(const Tensor& seq_lens, const Tensor& input_x) {
  title("4. Splitting heads");
  print(split_head_reshape(attn::arange(1, 33).reshape({2, 2, 8}), 2, 4));

  title("5. torch's module and our class, two heads, their own weights");
  const nn::MultiheadAttention multi_head_attention_1(6, 2, {.batch_first = true});
  const MultiheadAttention multi_head_attention_2(6, 2);
  const Tensor padding = attn::logical_not(words_mask(4, seq_lens));
  const auto torchs = multi_head_attention_1(input_x, input_x, input_x, {.key_padding_mask = padding});
  auto [out_2, attn_2] = multi_head_attention_2(input_x, input_x, input_x, {.key_padding_mask = padding});
  print(torchs.weights);
  print(attn_2);
  print(torchs.output);
  print(out_2);

  title("Our class with the module's weights");
  const Tensor all_w = multi_head_attention_1.in_proj_weight;
  multi_head_attention_2.load_state_dict({{"W_q.weight", all_w.slice(0, 0, 6)},
                                          {"W_k.weight", all_w.slice(0, 6, 12)},
                                          {"W_v.weight", all_w.slice(0, 12)},
                                          {"W_out.weight", multi_head_attention_1.out_proj.weight}});
  const auto [out_3, attn_3] = multi_head_attention_2(input_x, input_x, input_x, {.key_padding_mask = padding});
  print(torchs.weights);
  print(attn_3);
  print(torchs.output);
  print(out_3);
  same("module and class, weights", attn_3, torchs.weights);
  same("module and class, outputs", out_3, torchs.output);

  title("Weights of each head, and masks of two and three dimensions");
  const Tensor causal = attn::triu(attn::ones({4, 4}), 1).to(attn::Dtype::boolean);
  const auto per_head =
      multi_head_attention_1(input_x, input_x, input_x, {.key_padding_mask = padding, .average_attn_weights = false});
  print(show::shape(per_head.weights));
  same("the mean over heads", per_head.weights.mean({1}), torchs.weights);
  const auto flat = multi_head_attention_1(input_x, input_x, input_x, {.attn_mask = causal});
  const auto full = multi_head_attention_1(input_x, input_x, input_x, {.attn_mask = causal.expand({6, 4, 4})});
  same("attn_mask [L, L] and [B * num_heads, L, L]", full.output, flat.output);
  same("the class with attn_mask [L, L]",
       multi_head_attention_2(input_x, input_x, input_x, {.attn_mask = causal}).first, flat.output);
}

}  // namespace

int main() try {
  attn::manual_seed(102);  // once: the whole notebook is one run
  scores();
  const Tensor seq_lens = attn::tensor<std::int64_t>({4, 3, 2});
  const Tensor x = attn::randn({3, 4, 3});
  step_by_step(x, seq_lens);
  one_head(x, seq_lens);
  const Tensor input_x = attn::randn({3, 4, 6});
  several_heads(seq_lens, input_x);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
