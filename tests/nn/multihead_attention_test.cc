// tests/nn/multihead_attention_test.cc: every recorded MultiheadAttention case of PyTorch 2.13, and where ours differs.
#include <attn/nn.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace attn::nn {
namespace {

using Json = nlohmann::json;
using testing::golden_tensor;

/// torch gives NaN for the rows of the fully masked sample 0; ours gives out_proj.bias, and NaN with `exact`.
const std::set<std::string> nan_cases = {
    "mha fully masked batch, need_weights=True: NaN",
    "mha fully masked batch, eval fast path, need_weights=False: NaN",
    "mha fully masked batch, eval fast path, need_weights=True: NaN",
};

/// Our text for each error of torch.
const std::map<std::string, std::string> error_texts = {
    {"mha error: is_causal without attn_mask",
     "MultiheadAttention: is_causal is a hint about attn_mask; attn_mask must be given with it"},
    {"mha error: int attn_mask",
     "MultiheadAttention: attn_mask is i32; it must be bool (True = blocked) or f32 (added)"},
    {"mha error: int key_padding_mask",
     "MultiheadAttention: key_padding_mask is i32; it must be bool (True = blocked) or f32 (added)"},
    {"mha error: attn_mask (3,4)", "MultiheadAttention: attn_mask has shape [3, 4]; it must be [3, 3] or [4, 3, 3]"},
    {"mha error: attn_mask (2,3,3) for N*H = 4",
     "MultiheadAttention: attn_mask has shape [2, 3, 3]; it must be [3, 3] or [4, 3, 3]"},
    {"mha error: attn_mask of rank 4",
     "MultiheadAttention: attn_mask has shape [1, 4, 3, 3]; it must be [3, 3] or [4, 3, 3]"},
    {"mha error: key_padding_mask (2,4)",
     "MultiheadAttention: key_padding_mask has shape [2, 4]; it must be [2, 3] for query [2, 3, 4]"},
    {"mha error: key_padding_mask 1-D, batched",
     "MultiheadAttention: key_padding_mask has shape [3]; it must be [2, 3] for query [2, 3, 4]"},
    {"mha error: embed_dim 6 for 4",
     "MultiheadAttention: query has shape [2, 3, 6]; its last dim must be embed_dim = 4"},
    {"mha error: query 3-D, key 2-D",
     "MultiheadAttention: key has shape [3, 4]; its rank must be 3, as that of query [2, 3, 4]"},
    {"mha error: query 4-D",
     "MultiheadAttention: query has shape [1, 2, 3, 4]; it must have rank 3, or 2 when unbatched"},
    {"mha error: key and value lengths differ",
     "MultiheadAttention: value has shape [2, 4, 4]; all but its last dim must match key [2, 3, 4]"},
    {"mha error: ctor(5, 2)", "MultiheadAttention: embed_dim 5 and num_heads 2; num_heads must divide embed_dim"},
    {"mha error: ctor(0, 2)", "MultiheadAttention: embed_dim 0 and num_heads 2; both must be greater than 0"},
    {"mha error: ctor(4, 0)", "MultiheadAttention: embed_dim 4 and num_heads 0; both must be greater than 0"},
};

std::optional<std::int64_t> optional_int(const Json& object, const char* key) {
  return object.contains(key) ? std::optional(object.at(key).get<std::int64_t>()) : std::nullopt;
}

MultiheadAttention make_module(const Json& recorded, bool exact) {
  const Json& options = recorded.at("options");
  const Json ctor = options.value("ctor", Json::object());
  const MultiheadAttention module(options.at("embed_dim").get<std::int64_t>(),
                                  options.at("num_heads").get<std::int64_t>(),
                                  {.dropout = ctor.value("dropout", 0.0),
                                   .bias = ctor.value("bias", true),
                                   .add_bias_kv = ctor.value("add_bias_kv", false),
                                   .add_zero_attn = ctor.value("add_zero_attn", false),
                                   .kdim = optional_int(ctor, "kdim"),
                                   .vdim = optional_int(ctor, "vdim"),
                                   .batch_first = ctor.value("batch_first", false),
                                   .exact = exact});
  StateDict dict;
  for (const auto& [name, value] : recorded.at("inputs").items())
    if (name.rfind("param ", 0) == 0) dict.emplace_back(name.substr(6), golden_tensor(value));
  module.load_state_dict(dict);
  module.train(options.value("training", true));
  if (options.value("no_grad", false))
    for (Tensor parameter : module.parameters()) parameter.requires_grad_(false);
  return module;
}

MultiheadAttentionResult run(const Json& recorded, bool exact = false) {
  const MultiheadAttention module = make_module(recorded, exact);
  const Json& inputs = recorded.at("inputs");
  const auto input = [&](const char* name, const Tensor& otherwise) {
    return inputs.contains(name) ? golden_tensor(inputs.at(name)) : otherwise;
  };
  const Tensor query = input("query", {}), key = input("key", query), value = input("value", key);
  const Json call = recorded.at("options").value("call", Json::object());
  if (recorded.contains("manual_seed_before_call"))
    manual_seed(recorded.at("manual_seed_before_call").get<std::uint64_t>());
  return module(query, key, value,
                {.key_padding_mask = input("key_padding_mask", {}),
                 .need_weights = call.value("need_weights", true),
                 .attn_mask = input("attn_mask", {}),
                 .average_attn_weights = call.value("average_attn_weights", true),
                 .is_causal = call.value("is_causal", false)});
}

template <typename F>
void for_cases(F&& check) {
  for (const Json& recorded : testing::golden("torch_semantics.json").at("cases")) {
    if (recorded.at("op") != "MultiheadAttention") continue;
    SCOPED_TRACE(recorded.at("name").get<std::string>());
    check(recorded, recorded.at("name").get<std::string>());
  }
}

/// torch's error of one tensor; 0 where NaN kept it from being measured.
double torch_error(const Json& recorded, const char* name) {
  const Json errors = recorded.value("torch_error_vs_float64", Json::object());
  return errors.contains(name) && errors.at(name).is_number() ? errors.at(name).get<double>() : 0.0;
}

void expect_result(const MultiheadAttentionResult& ours, const Json& recorded) {
  const Json& expect = recorded.at("expect");
  EXPECT_TRUE(testing::within_error_rule(ours.output.detach(), golden_tensor(expect.at("output")),
                                         torch_error(recorded, "output")));
  ASSERT_EQ(ours.weights.defined(), expect.contains("weights"));
  if (!expect.contains("weights")) return;
  EXPECT_TRUE(testing::within_error_rule(ours.weights.detach(), golden_tensor(expect.at("weights")),
                                         torch_error(recorded, "weights")));
}

TEST(MultiheadAttention, AnArgumentThatWasLeftOutIsNamed) {
  const nn::MultiheadAttention mha(4, 2);
  const Tensor x = ones({1, 2, 4});
  EXPECT_EQ(testing::error_of<ValueError>([&] { mha(Tensor(), x, x); }), "MultiheadAttention: query is undefined");
  EXPECT_EQ(testing::error_of<ValueError>([&] { mha(x, x, Tensor()); }), "MultiheadAttention: value is undefined");
}

TEST(MultiheadAttention, RecordedCases) {
  int checked = 0;
  for_cases([&](const Json& recorded, const std::string& name) {
    if (recorded.contains("error") || nan_cases.contains(name)) return;
    ++checked;
    expect_result(run(recorded), recorded);
    expect_result(run(recorded, /*exact=*/true), recorded);
  });
  EXPECT_EQ(checked, 31);
}

TEST(MultiheadAttention, ExactGivesTorchsNanByPath) {
  int checked = 0;
  for_cases([&](const Json& recorded, const std::string& name) {
    if (!nan_cases.contains(name)) return;
    ++checked;
    expect_result(run(recorded, /*exact=*/true), recorded);
  });
  EXPECT_EQ(checked, 3);
}

TEST(MultiheadAttention, WithoutExactARowThatSeesNothingGivesTheOutputBias) {
  for_cases([&](const Json& recorded, const std::string& name) {
    if (!nan_cases.contains(name)) return;
    const MultiheadAttentionResult ours = run(recorded);
    const Json& expect = recorded.at("expect");
    const Tensor bias = golden_tensor(recorded.at("inputs").at("param out_proj.bias"));
    EXPECT_TRUE(testing::bits_equal(ours.output.detach()[0], bias.expand({3, 4}).contiguous()));
    EXPECT_TRUE(testing::within(ours.output.detach()[1], golden_tensor(expect.at("output"))[1], 2e-6));
    if (!ours.weights.defined()) return;
    EXPECT_TRUE(testing::bits_equal(ours.weights.detach()[0], zeros({3, 3})));
    EXPECT_TRUE(testing::within(ours.weights.detach()[1], golden_tensor(expect.at("weights"))[1], 1e-6));
  });
}

TEST(MultiheadAttention, RecordedErrors) {
  std::size_t checked = 0;
  for_cases([&](const Json& recorded, const std::string& name) {
    if (!recorded.contains("error")) return;
    ++checked;
    std::string ours;
    try {
      run(recorded);
    } catch (const Error& error) { ours = error.what(); }
    const auto text = error_texts.find(name);
    EXPECT_EQ(ours, text == error_texts.end() ? "(no text here)" : text->second) << recorded.at("error").dump();
  });
  EXPECT_EQ(checked, error_texts.size());
}

TEST(MultiheadAttention, NamesInTorchsOrder) {
  const auto names = [](const MultiheadAttention& module) {
    std::string result;
    for (const auto& [name, value] : module.state_dict()) result += name + " ";
    return result;
  };
  EXPECT_EQ(names(MultiheadAttention(4, 2)), "in_proj_weight in_proj_bias out_proj.weight out_proj.bias ");
  EXPECT_EQ(names(MultiheadAttention(4, 2, {.bias = false})), "in_proj_weight out_proj.weight ");
  EXPECT_EQ(names(MultiheadAttention(4, 2, {.add_bias_kv = true, .vdim = 5})),
            "q_proj_weight k_proj_weight v_proj_weight in_proj_bias bias_k bias_v out_proj.weight out_proj.bias ");
}

TEST(MultiheadAttention, APaddedKeyThatHoldsNanChangesNothing) {
  manual_seed(5);
  const Tensor x = randn({2, 3, 4}), memory = randn({2, 5, 4});
  const Tensor padding = zeros({2, 5}, Dtype::boolean);
  padding.slice(1, 4).fill_(true);
  const Tensor poisoned = memory.clone();
  poisoned.slice(1, 4).fill_(std::numeric_limits<double>::quiet_NaN());
  for (const double dropout : {0.0, 0.5}) {
    const MultiheadAttention module(4, 2, {.dropout = dropout, .batch_first = true});
    for (const bool need_weights : {true, false}) {
      const MultiheadAttentionCall call{.key_padding_mask = padding, .need_weights = need_weights};
      manual_seed(6);
      const MultiheadAttentionResult clean = module(x, memory, memory, call);
      manual_seed(6);
      const MultiheadAttentionResult ours = module(x, poisoned, poisoned, call);
      EXPECT_TRUE(testing::bits_equal(ours.output.detach(), clean.output.detach())) << dropout << need_weights;
      if (!need_weights) continue;
      EXPECT_TRUE(testing::bits_equal(ours.weights.detach(), clean.weights.detach()));
    }
  }
}

TEST(MultiheadAttention, DropoutIsTheSameWithAndWithoutWeights) {
  manual_seed(5);
  const MultiheadAttention module(8, 2, {.dropout = 0.3, .batch_first = true});
  const Tensor x = randn({2, 6, 8}), blocked = triu(ones({6, 6}), 1).to(Dtype::boolean);
  const Tensor padding = zeros({2, 6}, Dtype::boolean);
  padding[1].slice(0, 4).fill_(true);
  manual_seed(7);
  const Tensor with = module(x, x, x, {.key_padding_mask = padding, .attn_mask = blocked}).output.detach();
  const double after = rand({1}).item();
  manual_seed(7);
  const Tensor without =
      module(x, x, x, {.key_padding_mask = padding, .need_weights = false, .attn_mask = blocked}).output.detach();
  EXPECT_EQ(rand({1}).item(), after);  // as many numbers were drawn
  EXPECT_TRUE(testing::within(without, with, 1e-6));
}

TEST(MultiheadAttention, NoKeysGiveTheOutputBias) {
  manual_seed(8);
  for (const bool exact : {false, true}) {
    const MultiheadAttention module(4, 2, {.batch_first = true, .exact = exact});
    init::ones_(module.out_proj.bias);
    const MultiheadAttentionResult result = module(randn({2, 3, 4}), zeros({2, 0, 4}), zeros({2, 0, 4}));
    EXPECT_TRUE(testing::bits_equal(result.output.detach(), ones({2, 3, 4})));
    EXPECT_EQ(result.weights.sizes(), (Dims{2, 3, 0}));
  }
}

TEST(MultiheadAttention, LayoutsAndRanksAgree) {
  manual_seed(9);
  const MultiheadAttention first(6, 3, {.batch_first = true}), second(6, 3);
  second.load_state_dict(first.state_dict());
  const Tensor x = randn({2, 4, 6}), memory = randn({2, 5, 6});
  const MultiheadAttentionResult a = first(x, memory, memory, {.average_attn_weights = false});
  const MultiheadAttentionResult b =
      second(x.transpose(0, 1), memory.transpose(0, 1), memory.transpose(0, 1), {.average_attn_weights = false});
  EXPECT_TRUE(testing::bits_equal(b.output.detach().transpose(0, 1).contiguous(), a.output.detach().contiguous()));
  EXPECT_TRUE(testing::bits_equal(b.weights.detach(), a.weights.detach()));
  const MultiheadAttentionResult one = first(x[1], memory[1], memory[1], {.average_attn_weights = false});
  EXPECT_TRUE(testing::bits_equal(one.output.detach(), a.output.detach()[1].contiguous()));
  EXPECT_TRUE(testing::bits_equal(one.weights.detach(), a.weights.detach()[1].contiguous()));
}

TEST(MultiheadAttention, ConstructorErrors) {
  EXPECT_THROW(MultiheadAttention(4, 2, {.dropout = 1.5}), ValueError);
  const MultiheadAttention module(4, 2);
  EXPECT_THROW(module(ones({3, 4}, Dtype::f64), ones({3, 4}, Dtype::f64), ones({3, 4}, Dtype::f64)), DtypeError);
  EXPECT_THROW(module(ones({3, 2, 4}), ones({3, 1, 4}), ones({3, 1, 4})), ShapeError);
  EXPECT_THROW(module(ones({3, 4}), ones({3, 4}), ones({3, 4}), {.attn_mask = zeros({3, 3}, Dtype::f64)}), DtypeError);
}

}  // namespace
}  // namespace attn::nn
