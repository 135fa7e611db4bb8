// tests/random/torch_rng_test.cc: every recorded call of PyTorch 2.13, bit for bit, and the generator's position after
// it.
#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/sha256.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <regex>

namespace attn {
namespace {

using Json = nlohmann::json;
using Match = std::smatch;

// The record does not hold the weights of its multinomial calls; with these all its indices come out.
const std::vector<float> weights = {0.1f, 0.2f, 0.3f, 0.4f};
const std::vector<float> weights_2 = {0.1f, 0.2f, 0.3f, 0.4f, 1.0f, 0.0f, 0.0f, 0.0f};

std::int64_t integer(const Match& match, std::size_t group) { return std::stoll(match[group]); }
double number(const Match& match, std::size_t group) { return std::stod(match[group]); }
Dtype dtype(const Match& match, std::size_t group) { return match[group].matched ? Dtype::f64 : Dtype::f32; }

/// torch's calls by pattern, ours beside them.
const std::vector<std::pair<std::regex, std::function<Tensor(const Match&)>>>& draws() {
  const std::string f64 = "(, dtype=f64)?", num = "(-?[0-9.]+)";
  const auto pattern = [](const std::string& text) { return std::regex(text, std::regex::ECMAScript); };
  static const std::vector<std::pair<std::regex, std::function<Tensor(const Match&)>>> table = {
      {pattern("torch\\.rand\\((\\d+)" + f64 + "\\)"),
       [](const Match& m) { return rand({integer(m, 1)}, dtype(m, 2)); }},
      {pattern("torch\\.randn\\((\\d+)" + f64 + "\\)"),
       [](const Match& m) { return randn({integer(m, 1)}, dtype(m, 2)); }},
      {pattern("torch\\.empty\\((\\d+)" + f64 + "\\)\\.normal_\\(" + num + ", " + num + "\\)"),
       [](const Match& m) { return normal_(empty({integer(m, 1)}, dtype(m, 2)), number(m, 3), number(m, 4)); }},
      {pattern("torch\\.empty\\((\\d+)" + f64 + "\\)\\.uniform_\\(" + num + ", " + num + "\\)"),
       [](const Match& m) { return uniform_(empty({integer(m, 1)}, dtype(m, 2)), number(m, 3), number(m, 4)); }},
      {pattern("torch\\.empty\\((\\d+)" + f64 + "\\)\\.exponential_\\(" + num + "?\\)"),
       [](const Match& m) {
         return exponential_(empty({integer(m, 1)}, dtype(m, 2)), m[3].matched ? number(m, 3) : 1.0);
       }},
      {pattern("torch\\.empty\\((\\d+)\\)\\.bernoulli_\\(" + num + "\\)"),
       [](const Match& m) { return bernoulli_(empty({integer(m, 1)}), number(m, 2)); }},
      {pattern("torch\\.bernoulli\\(torch\\.linspace\\(0, 1, (\\d+)" + f64 + "\\)\\)"),
       [](const Match& m) { return bernoulli(linspace(0, 1, integer(m, 1), dtype(m, 2))); }},
      {pattern("F\\.dropout\\(torch\\.ones\\((\\d+)" + f64 + "\\), " + num + "\\)"),
       [](const Match& m) { return dropout(ones({integer(m, 1)}, dtype(m, 2)), number(m, 3)); }},
      {pattern("torch\\.randint\\((-?\\d+), (\\d+), \\((\\d+),\\)\\)"),
       [](const Match& m) { return randint(integer(m, 1), integer(m, 2), {integer(m, 3)}); }},
      {pattern("torch\\.randperm\\((\\d+)\\)"), [](const Match& m) { return randperm(integer(m, 1)); }},
      {pattern("torch\\.multinomial\\(W, (\\d+)(, replacement=True)?\\)"),
       [](const Match& m) { return multinomial(tensor<float>(weights), integer(m, 1), m[2].matched); }},
      {pattern("torch\\.multinomial\\(W2, 1\\)"),
       [](const Match&) { return multinomial(tensor<float>(weights_2, {2, 4}), 1); }},
      {pattern("nn\\.init\\.xavier_uniform_\\(torch\\.empty\\(5, 7\\)\\)"),
       [](const Match&) { return nn::init::xavier_uniform_(empty({5, 7})); }},
      {pattern("nn\\.init\\.xavier_uniform_\\(torch\\.empty\\(5, 7\\), gain=nn\\.init\\.calculate_gain\\('relu'\\)\\)"),
       [](const Match&) {
         return nn::init::xavier_uniform_(empty({5, 7}), nn::init::calculate_gain(nn::init::Nonlinearity::relu));
       }},
      {pattern("nn\\.init\\.xavier_normal_\\(torch\\.empty\\((\\d+), (\\d+)\\)\\)"),
       [](const Match& m) { return nn::init::xavier_normal_(empty({integer(m, 1), integer(m, 2)})); }},
      {pattern("nn\\.init\\.kaiming_uniform_\\(torch\\.empty\\(5, 7\\), a=math\\.sqrt\\(5\\)\\)"),
       [](const Match&) { return nn::init::kaiming_uniform_(empty({5, 7}), {.a = std::sqrt(5.0)}); }},
      {pattern("nn\\.init\\.kaiming_normal_\\(torch\\.empty\\(5, 7\\)\\)"),
       [](const Match&) { return nn::init::kaiming_normal_(empty({5, 7})); }},
  };
  return table;
}

const std::map<std::string, std::function<nn::StateDict()>>& modules() {
  static const std::map<std::string, std::function<nn::StateDict()>> table = {
      {"nn.Linear(7, 5)", [] { return nn::Linear(7, 5).state_dict(); }},
      {"nn.Linear(7, 5, bias=False)", [] { return nn::Linear(7, 5, {.bias = false}).state_dict(); }},
      {"nn.Embedding(3, 4)", [] { return nn::Embedding(3, 4).state_dict(); }},
      {"nn.Embedding(6, 4, padding_idx=0)", [] { return nn::Embedding(6, 4, {.padding_idx = 0}).state_dict(); }},
      {"nn.LayerNorm(4)", [] { return nn::LayerNorm(4).state_dict(); }},
      {"nn.MultiheadAttention(4, 2)", [] { return nn::MultiheadAttention(4, 2).state_dict(); }},
      {"nn.MultiheadAttention(4, 2, bias=False)",
       [] { return nn::MultiheadAttention(4, 2, {.bias = false}).state_dict(); }},
      {"nn.MultiheadAttention(4, 2, add_bias_kv=True)",
       [] { return nn::MultiheadAttention(4, 2, {.add_bias_kv = true}).state_dict(); }},
      {"nn.MultiheadAttention(16, 2, add_bias_kv=True)",
       [] { return nn::MultiheadAttention(16, 2, {.add_bias_kv = true}).state_dict(); }},
      {"nn.MultiheadAttention(4, 2, kdim=3, vdim=5)",
       [] { return nn::MultiheadAttention(4, 2, {.kdim = 3, .vdim = 5}).state_dict(); }},
      {"nn.TransformerEncoderLayer(4, 2, 6)",
       [] { return nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6}).state_dict(); }},
      {"nn.TransformerDecoderLayer(4, 2, 6)",
       [] { return nn::TransformerDecoderLayer(4, 2, {.dim_feedforward = 6}).state_dict(); }},
  };
  return table;
}

/// SDPA whose output is the dropped weights themselves.
Tensor dropped_identity() {
  return scaled_dot_product_attention(ones({1, 1, 3, 2}), ones({1, 1, 3, 2}), eye(3).reshape({1, 1, 3, 3}),
                                      {.dropout_p = 0.5});
}

nn::MultiheadAttentionResult dropped_module() {
  manual_seed(1);
  const nn::MultiheadAttention module(4, 2, {.dropout = 0.5, .batch_first = true});
  const Tensor x = ones({1, 3, 4});
  manual_seed(6);
  return module(x, x, x, {.average_attn_weights = false});
}

/// One call of a case; modules give several tensors by name and are made once.
class Case {
 public:
  Tensor run(const std::string& call) {
    if (const std::size_t arrow = call.find(" -> "); arrow != std::string::npos && call.rfind("nn.", 0) == 0)
      return parameter(call.substr(0, arrow), call.substr(arrow + 4));
    if (call == "q=k=ones(1,1,3,2), v=eye(3): the output is the dropped weight matrix") return dropped_identity();
    if (call.rfind(
            "manual_seed(1); MultiheadAttention(4,2,dropout=0.5,batch_first=True); x = ones(1,3,4); manual_seed(6);",
            0) == 0) {
      const nn::MultiheadAttentionResult result = dropped_module();
      return call.find("-> output") != std::string::npos ? result.output.detach() : result.weights.detach();
    }
    for (const auto& [pattern, draw] : draws())
      if (Match match; std::regex_match(call, match, pattern)) return draw(match);
    ADD_FAILURE() << "no call of ours for " << call;
    return {};
  }
  /// Parameters that no recorded call asked for.
  std::size_t left() const { return state_.size(); }

 private:
  Tensor parameter(const std::string& module, const std::string& name) {
    if (made_ != module) {
      made_ = module;
      state_ = modules().at(module)();
    }
    for (auto entry = state_.begin(); entry != state_.end(); ++entry)
      if (entry->first == name) {
        const Tensor value = entry->second;
        state_.erase(entry);
        return value;
      }
    ADD_FAILURE() << module << " has no parameter " << name;
    return {};
  }
  std::string made_;
  nn::StateDict state_;
};

void expect_values(const Tensor& ours, const Json& call) {
  ASSERT_TRUE(ours.defined());
  if (call.at("call").get<std::string>().ends_with("-> output")) {  // the one record that is matrix products of draws
    EXPECT_TRUE(testing::within_error_rule(ours, testing::golden_tensor(call), 0));
    return;
  }
  if (call.contains("values")) {
    EXPECT_TRUE(testing::bits_equal(ours, testing::golden_tensor(call)));
    return;
  }
  EXPECT_EQ(ours.sizes(), Dims(call.at("shape").get<std::vector<std::int64_t>>()));
  EXPECT_EQ(torch_name_of(ours.dtype()), call.at("dtype").get<std::string>());
  const Tensor flat = ours.contiguous().flatten();
  const auto part = [&](const char* name) {
    return testing::golden_tensor(call.at(name), {static_cast<std::int64_t>(call.at(name).size())}, ours.dtype());
  };
  EXPECT_TRUE(testing::bits_equal(flat.slice(0, 0, 20), part("first_20")));
  EXPECT_TRUE(testing::bits_equal(flat.slice(0, -20), part("last_20")));
  const std::string digest =
      testing::sha256(flat.data(), static_cast<std::size_t>(flat.numel()) * size_of(flat.dtype()));
  EXPECT_EQ(digest.substr(0, 16), call.at("sha256_16_of_little_endian_bytes").get<std::string>());
}

TEST(TorchRng, EveryRecordedCall) {
  const Json& cases = testing::golden("torch_rng.json").at("cases");
  ASSERT_GE(cases.size(), 80u);
  for (const Json& recorded : cases) {
    SCOPED_TRACE(recorded.at("name").get<std::string>());
    manual_seed(static_cast<std::uint64_t>(recorded.at("seed").get<std::int64_t>()));
    Case run;
    for (const Json& call : recorded.at("calls")) {
      SCOPED_TRACE(call.at("call").get<std::string>());
      expect_values(run.run(call.at("call").get<std::string>()), call);
    }
    EXPECT_EQ(run.left(), 0u) << "parameters that torch's module does not have";
    const Tensor next = testing::golden_tensor(Json::array({recorded.at("next_rand_1")}), {1}, Dtype::f32);
    EXPECT_TRUE(testing::bits_equal(rand({1}), next)) << "the generator stands elsewhere";
  }
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(testing::sha256("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(testing::sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace attn
