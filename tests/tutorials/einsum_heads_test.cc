// tests/tutorials/einsum_heads_test.cc: every step of tutorial 003: multi-head attention by einsum, with its masks.
#include "support/tutorial.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>

#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

using Drawn = std::vector<std::pair<std::string, Tensor>>;

/// From seed 3: the parameters, each weight then its bias, then the inputs.
Drawn draw() {
  Drawn drawn;
  manual_seed(3);
  for (const auto& [name, value] : nn::MultiHeadAttention(8, 2).state_dict()) drawn.emplace_back(name, value);
  drawn.emplace_back("x", randn({2, 4, 8}));
  drawn.emplace_back("x_kv", randn({2, 5, 8}));
  return drawn;
}

/// One call of the tutorial's class: its inputs by name, "" where there is none.
struct Call {
  std::string name, x_kv, padding_mask, attention_mask;
};

class Heads {
 public:
  Heads(const Tutorial& g, const Call& call)
      : g_(g), x_q_(g("x")), x_kv_(g(call.x_kv)), padding_(mask(call.padding_mask)),
        attention_(mask(call.attention_mask)) {}

  // In steps, as the tutorial writes it: axes (N, L_Q, L_KV, H).
  Tensor scores() const {
    return einsum("nihd,njhd->nijh", {split("W_Q", x_q_), split("W_K", x_kv_)}) / std::sqrt(4.0);
  }
  Tensor weights_of(Tensor scores) const {
    if (attention_) scores = scores.masked_fill(eq(attention_.reshape({1, 4, x_kv_.size(1), 1}), 0), -infinity);
    if (padding_) scores = scores.masked_fill(eq(padding_.reshape({2, 1, x_kv_.size(1), 1}), 0), -infinity);
    return softmax(scores, 2);
  }
  Tensor output_of(const Tensor& weights) const {
    return project("W_O", einsum("nijh,njhd->nihd", {weights, split("W_V", x_kv_)}).reshape({2, 4, 8}));
  }

  // In one call, heads before rows.
  AttentionResult fused() const {
    Mask mask;
    if (attention_) mask = mask & Mask::attend(attention_);
    if (padding_) mask = mask & Mask::key_padding(eq(padding_, 0));
    return attention(split("W_Q", x_q_).transpose(1, 2), split("W_K", x_kv_).transpose(1, 2),
                     split("W_V", x_kv_).transpose(1, 2), {.mask = mask, .weights = Weights::full});
  }
  Tensor fused_scores() const {
    return attention_scores(split("W_Q", x_q_).transpose(1, 2), split("W_K", x_kv_).transpose(1, 2))
        .permute({0, 2, 3, 1});
  }
  Tensor fused_weights() const { return fused().weights.permute({0, 2, 3, 1}); }
  Tensor fused_output() const { return project("W_O", fused().output.transpose(1, 2).reshape({2, 4, 8})); }

  // As the library's module.
  Tensor module_output() const {
    const nn::MultiHeadAttention module(8, 2);
    nn::StateDict state;
    for (const auto& [name, value] : module.state_dict()) state.emplace_back(name, g_(name));
    module.load_state_dict(state);
    return module(x_q_, x_kv_, x_kv_, padding_, attention_);
  }

 private:
  Tensor mask(const std::string& name) const { return name.empty() ? Tensor() : g_(name); }
  Tensor project(const std::string& name, const Tensor& x) const {
    return linear(x, g_(name + ".weight"), g_(name + ".bias"));
  }
  Tensor split(const std::string& name, const Tensor& x) const {
    return project(name, x).reshape({2, x.size(1), 2, 4});
  }

  const Tutorial& g_;
  Tensor x_q_, x_kv_, padding_, attention_;
};

const std::vector<Call>& calls() {
  static const std::vector<Call> all = {
      {"self", "x", "", ""},
      {"self_padding", "x", "padding_mask", ""},
      {"self_causal", "x", "", "causal_mask"},
      {"self_padding_causal", "x", "padding_mask", "causal_mask"},
      {"cross", "x_kv", "", ""},
      {"cross_padding", "x_kv", "padding_mask_kv", ""},
      {"cross_memory", "x_kv", "", "memory_mask"},
      {"cross_padding_memory", "x_kv", "padding_mask_kv", "memory_mask"},
      {"base_qkv", "x_kv", "", ""},
  };
  return all;
}
const Call fully_masked{"self_fully_masked", "x", "padding_mask_all", ""};

Tensor integers(const std::vector<std::int64_t>& values, const Dims& sizes) {
  return tensor<std::int64_t>(values, sizes);
}
/// 1 up to each length.
Tensor up_to(const std::vector<std::int64_t>& lengths, std::int64_t columns) {
  return lt(arange(columns), tensor<std::int64_t>(lengths).unsqueeze(-1)).to(Dtype::i64);
}

TEST(EinsumHeadsTutorial, EveryStep) {
  const Tutorial g("003");
  Steps steps;
  add_drawn(steps, draw());
  steps["padding_mask"] = exact([] { return up_to({4, 2}, 4); });
  steps["padding_mask_kv"] = exact([] { return up_to({4, 3}, 5); });
  steps["padding_mask_all"] = exact([] { return up_to({4, 0}, 4); });
  steps["causal_mask"] = exact([] { return tril(ones({4, 4})).to(Dtype::i64); },
                               [] { return Mask::causal().dense(1, 1, 4, 4)[0][0].to(Dtype::i64); });
  steps["memory_mask"] =
      exact([] { return integers({1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1, 0, 1, 0, 1, 1, 1, 1}, {4, 5}); });
  for (const Call& call : calls()) {
    const Heads heads(g, call);
    steps[call.name + "_scores"] = close([=] { return heads.scores(); }, [=] { return heads.fused_scores(); });
    steps[call.name + "_weights"] =
        close([=, &g] { return heads.weights_of(g(call.name + "_scores")); }, [=] { return heads.fused_weights(); });
    steps[call.name + "_output"] = close([=, &g] { return heads.output_of(g(call.name + "_weights")); },
                                         [=] { return heads.fused_output(); }, [=] { return heads.module_output(); });
  }
  // Every key of the second sentence is padding: a plain softmax gives NaN, and only in steps.
  const Heads heads(g, fully_masked);
  steps["self_fully_masked_scores"] = close([=] { return heads.scores(); }, [=] { return heads.fused_scores(); });
  steps["self_fully_masked_weights"] = close([=, &g] { return heads.weights_of(g("self_fully_masked_scores")); });
  steps["self_fully_masked_output"] = close([=, &g] { return heads.output_of(g("self_fully_masked_weights")); });
  EXPECT_EQ(expect_every_step(g, steps), 45u);
}

/// attention() gives such rows 0 and a logsumexp of -inf, and the first sentence what torch gives it.
TEST(EinsumHeadsTutorial, FullyMaskedRowsOfTheFusedCallAreZero) {
  const Tutorial g("003");
  const Heads heads(g, fully_masked);
  const AttentionResult result = heads.fused();
  EXPECT_TRUE(bits_equal(result.output[1].contiguous(), zeros({2, 4, 4})));
  EXPECT_TRUE(bits_equal(result.weights[1].contiguous(), zeros({2, 4, 4})));
  EXPECT_TRUE(bits_equal(result.logsumexp[1].contiguous(), full({2, 4}, -infinity)));
  EXPECT_TRUE(within(heads.fused_weights()[0], g("self_fully_masked_weights")[0], 2e-6));
  EXPECT_TRUE(within(heads.fused_output()[0], g("self_fully_masked_output")[0], 2e-6));
  EXPECT_TRUE(bits_equal(heads.fused_output()[1].contiguous(), g("W_O.bias").expand({4, 8}).contiguous()));
  EXPECT_TRUE(bits_equal(heads.module_output()[1].detach().contiguous(), g("W_O.bias").expand({4, 8}).contiguous()));
}

TEST(EinsumHeadsTutorial, HeadsMustDivideTheModelDim) { EXPECT_THROW(nn::MultiHeadAttention(8, 3), ValueError); }

}  // namespace
}  // namespace attn::testing
