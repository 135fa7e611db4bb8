// examples/einsum_heads.cc: computes multi-head attention with einsum, with padding, attention and memory masks, for
// self- and cross-attention.
#include "show.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <cmath>

using attn::Mask;
using attn::Tensor;
using show::print, show::same, show::title;
namespace nn = attn::nn;

namespace {

/// The masks are 1 = takes part, 0 = blocked: padding_mask [N, L_KV], attention_mask [L_Q, L_KV].
struct Masks {
  Tensor padding_mask = {};
  Tensor attention_mask = {};
};

std::int64_t head_size(std::int64_t d_model, std::int64_t num_heads) {
  if (d_model % num_heads != 0) throw attn::ValueError("d_model must be divisible by num_heads");
  return d_model / num_heads;
}

struct MultiHeadAttention : nn::Module {
  MultiHeadAttention(std::int64_t d_model, std::int64_t num_heads)
      : num_heads(num_heads), d_k(head_size(d_model, num_heads)), d_model(d_model) {}

  Tensor operator()(const Tensor& x_q, const Tensor& x_k, const Tensor& x_v, const Masks& masks = {}) const {
    // x_q [N, L_Q, D], x_k [N, L_KV, D], x_v [N, L_KV, D]
    const std::int64_t N = x_q.size(0), L_Q = x_q.size(1), L_KV = x_k.size(1);

    // Linear transformation, then split into heads: [N, L, H, d_k]
    const Tensor Q = split(W_Q(x_q)), K = split(W_K(x_k)), V = split(W_V(x_v));

    // Scores of every head at once
    Tensor score = attn::einsum("nihd,njhd->nijh", {Q, K}) / std::sqrt(double(d_k));

    // Erratum: both calls lack their closing parenthesis in the tutorial.
    if (masks.attention_mask)
      score = score.masked_fill(attn::eq(masks.attention_mask.reshape({1, L_Q, L_KV, 1}), 0), -show::infinity);
    if (masks.padding_mask)
      score = score.masked_fill(attn::eq(masks.padding_mask.reshape({N, 1, L_KV, 1}), 0), -show::infinity);

    // Softmax over the keys, weighted sum, heads joined, output transformation
    const Tensor weights = attn::softmax(score, 2);
    return W_O(join(attn::einsum("nijh,njhd->nihd", {weights, V})));
  }

  /// Computes the same in one call of attention, which takes heads before rows: [N, H, L, d_k].
  Tensor fused(const Tensor& x_q, const Tensor& x_kv, const Masks& masks) const {
    Mask mask;
    if (masks.attention_mask) mask = mask & Mask::attend(masks.attention_mask);
    if (masks.padding_mask) mask = mask & ~Mask::key_padding(attn::ne(masks.padding_mask, 0));
    const auto heads = [this](const Tensor& x) { return split(x).transpose(1, 2); };
    return W_O(join(
        attn::attention(heads(W_Q(x_q)), heads(W_K(x_kv)), heads(W_V(x_kv)), {.mask = mask}).output.transpose(1, 2)));
  }

  const std::int64_t num_heads, d_k, d_model;
  const nn::Linear W_Q = register_module("W_Q", nn::Linear(d_model, d_model));
  const nn::Linear W_K = register_module("W_K", nn::Linear(d_model, d_model));
  const nn::Linear W_V = register_module("W_V", nn::Linear(d_model, d_model));
  const nn::Linear W_O = register_module("W_O", nn::Linear(d_model, d_model));

 private:
  Tensor split(const Tensor& x) const { return x.reshape({x.size(0), x.size(1), num_heads, d_k}); }
  Tensor join(const Tensor& x) const { return x.reshape({x.size(0), x.size(1), d_model}); }
};

/// Self-attention: queries, keys and values come from the same input.
struct MultiHeadSelfAttention : MultiHeadAttention {
  using MultiHeadAttention::MultiHeadAttention;
  Tensor operator()(const Tensor& x, const Masks& masks = {}) const {
    return MultiHeadAttention::operator()(x, x, x, masks);
  }
};

/// Cross-attention: keys and values come from another sequence than the queries.
struct MultiHeadCrossAttention : MultiHeadAttention {
  using MultiHeadAttention::MultiHeadAttention;
  Tensor operator()(const Tensor& x_q, const Tensor& x_kv, const Masks& masks = {}) const {
    return MultiHeadAttention::operator()(x_q, x_kv, x_kv, masks);
  }
};

Tensor integers(const std::vector<std::int64_t>& values, const attn::Dims& sizes) {
  return attn::tensor<std::int64_t>(values, sizes);
}

void self_attention(const MultiHeadSelfAttention& attention, const Tensor& x) {
  const Tensor padding = integers({1, 1, 1, 1, 1, 1, 0, 0}, {2, 4});
  const Tensor causal = attn::tril(attn::ones({4, 4})).to(attn::Dtype::i64);
  const auto show_one = [&](const char* name, const Masks& masks) {
    title(name);
    print(attention(x, masks));
    same("attention(Q, K, V, mask), heads joined", attention.fused(x, x, masks), attention(x, masks));
  };
  show_one("Self-attention", {});
  show_one("Self-attention, the second sentence padded from its third word", {.padding_mask = padding});
  show_one("Self-attention, causal", {.attention_mask = causal});
  show_one("Self-attention, padded and causal", {.padding_mask = padding, .attention_mask = causal});

  title("Self-attention, the second sentence all padding");
  const Masks all_padding{.padding_mask = integers({1, 1, 1, 1, 0, 0, 0, 0}, {2, 4})};
  print("step by step, a softmax over nothing gives nan:");
  print(attention(x, all_padding));
  print("attention() gives such rows 0, so that W_O's bias remains:");
  print(attention.fused(x, x, all_padding));
}

void cross_attention(const MultiHeadCrossAttention& attention, const Tensor& x, const Tensor& x_kv) {
  const Tensor padding = integers({1, 1, 1, 1, 0, 1, 1, 1, 0, 0}, {2, 5});
  const Tensor memory = integers({1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1}, {4, 5});
  const auto show_one = [&](const char* name, const Masks& masks) {
    title(name);
    print(attention(x, x_kv, masks));
    same("attention(Q, K, V, mask), heads joined", attention.fused(x, x_kv, masks), attention(x, x_kv, masks));
  };
  show_one("Cross-attention: four queries, five keys", {});
  show_one("Cross-attention, the memory padded", {.padding_mask = padding});
  show_one("Cross-attention with a memory mask: which query may see which key", {.attention_mask = memory});
  show_one("Cross-attention, padded and masked", {.padding_mask = padding, .attention_mask = memory});
  title("The base class, given queries, keys and values one by one");
  print(static_cast<const MultiHeadAttention&>(attention)(x, x_kv, x_kv));
}

}  // namespace

int main() try {
  // The tutorial shows no numbers; these are from seed 3: parameters first, then the inputs.
  print("the tutorial's two masked_fill calls lack a closing parenthesis; here they have it");
  print("its masks are 1 = takes part: the opposite of nn::MultiheadAttention");
  attn::manual_seed(3);
  const MultiHeadSelfAttention self(8, 2);
  const Tensor x = attn::randn({2, 4, 8}), x_kv = attn::randn({2, 5, 8});
  self_attention(self, x);
  const MultiHeadCrossAttention cross(8, 2);
  cross.load_state_dict(self.state_dict());
  cross_attention(cross, x, x_kv);

  title("A model dim that the heads do not divide");
  try {
    MultiHeadAttention(8, 3);
  } catch (const attn::ValueError& error) { print(error.what()); }
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
