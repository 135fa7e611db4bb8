// tests/model/forward_test.cc: the forward pass: rows that do not depend on batch, cache or threads; gradients; errors.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/optim.h>
#include <attn/runtime.h>

#include "model/tiny_models.h"
#include "runtime/regions.h"
#include "support/errors.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace attn {
namespace {

using testing::error_of;

class Families : public ::testing::TestWithParam<ModelConfig (*)()> {
 protected:
  /// With weights large enough to be seen in every number.
  LanguageModel model(Dtype dtype = Dtype::f32) const {
    Generator generator(5);
    LanguageModel result(GetParam()(), dtype, &generator);
    for (const Tensor& weight : result.parameters())
      weight.detach().add_(randn(weight.sizes(), generator).to(dtype), 0.3);
    result.eval();
    return result;
  }
  Tensor ids(std::int64_t batch, std::int64_t tokens) const {
    Generator generator(6);
    return randint(0, GetParam()().vocab_size, {batch, tokens}, generator);
  }
};

TEST_P(Families, ARowDependsNeitherOnItsBatchNorOnWhatFollows) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const LanguageModel net = model(dtype);
    const Tensor in = ids(3, 11), all = net(in).detach();
    EXPECT_EQ(all.sizes(), (Dims{3, 11, GetParam()().vocab_size}));
    EXPECT_EQ(all.dtype(), dtype);
    for (std::int64_t b = 0; b < 3; ++b)
      for (const std::int64_t length : {1, 4, 11})
        EXPECT_TRUE(same_bits(net(in.narrow(0, b, 1).narrow(1, 0, length)).detach(),
                              all.narrow(0, b, 1).narrow(1, 0, length).contiguous()))
            << name_of(dtype);
  }
}

TEST_P(Families, ACacheChangesNoBit) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const LanguageModel net = model(dtype);
    const Tensor in = ids(3, 12), all = net.hidden(in).detach();
    ModelCache cache(net.config, 5, dtype);
    // Sequence 4 first alone, then all three side by side although their lengths differ.
    const auto part = [&](std::int64_t b, std::int64_t from, std::int64_t count) {
      return in.narrow(0, b, 1).narrow(1, from, count);
    };
    EXPECT_TRUE(same_bits(net.hidden(part(2, 0, 5), cache, {4}), all.narrow(0, 2, 1).narrow(1, 0, 5).contiguous()));
    net.hidden(part(0, 0, 2), cache, {1});
    const Tensor next = cat({part(0, 2, 3), part(1, 0, 3), part(2, 5, 3)}, 0), y = net.hidden(next, cache, {1, 0, 4});
    EXPECT_TRUE(same_bits(y, cat({all.narrow(0, 0, 1).narrow(1, 2, 3), all.narrow(0, 1, 1).narrow(1, 0, 3),
                                  all.narrow(0, 2, 1).narrow(1, 5, 3)},
                                 0)))
        << name_of(dtype);
    cache.truncate(4, 6);
    EXPECT_EQ(cache.length(4), 6);
    EXPECT_TRUE(same_bits(net.hidden(part(2, 6, 1), cache, {4}), all.narrow(0, 2, 1).narrow(1, 6, 1).contiguous()));
    EXPECT_FALSE(y.requires_grad());
  }
}

TEST_P(Families, ReorderedSequencesGoOn) {
  const LanguageModel net = model();
  const Tensor in = ids(4, 9);
  ModelCache cache(net.config, 4);
  net.hidden(in.narrow(1, 0, 5), cache);
  cache.reorder({2, 0, 2, 2});  // 0 and 2 change places at least, 1 and 3 are gone
  const Tensor grown =
      cat({in.narrow(0, 2, 1), in.narrow(0, 0, 1), in.narrow(0, 2, 1), in.narrow(0, 2, 1)}, 0).narrow(1, 0, 5);
  const Tensor after = cat({grown, in.narrow(1, 5, 4)}, 1), all = net.hidden(after).detach();
  EXPECT_TRUE(same_bits(net.hidden(after.narrow(1, 5, 2), cache), all.narrow(1, 5, 2).contiguous()));
  cache.reorder({3, 2, 1, 0});
  const Tensor turned = after.index_select(0, tensor<std::int64_t>({3, 2, 1, 0}));
  EXPECT_TRUE(
      same_bits(net.hidden(turned.narrow(1, 7, 2), cache), net.hidden(turned).detach().narrow(1, 7, 2).contiguous()));
  EXPECT_THROW(cache.reorder({0, 1, 2}), ValueError);
  EXPECT_THROW(cache.reorder({0, 1, 2, 4}), ValueError);
  for (std::int64_t i = 0; i < 4; ++i) EXPECT_EQ(cache.length(i), 9);
}

TEST_P(Families, ThreadsChangeNoBit) {
  const int before = num_threads();
  Tensor logits;
  std::vector<Tensor> gradients;
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    const LanguageModel net = model();
    const Tensor loss = net.loss(ids(3, 11), ids(3, 12).narrow(1, 1, 11));
    loss.backward();
    const Tensor y = net(ids(3, 11)).detach();
    if (!logits.defined()) logits = y;
    EXPECT_TRUE(same_bits(y, logits)) << threads;
    const auto parameters = net.parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (gradients.size() <= i) gradients.push_back(parameters[i].grad());
      EXPECT_TRUE(same_bits(parameters[i].grad(), gradients[i])) << threads;
    }
  }
  set_num_threads(before);
}

TEST_P(Families, GradientsAreThoseOfDifferences) {
  const LanguageModel net = model(Dtype::f64);
  const Tensor in = ids(2, 5), targets = ids(2, 6).narrow(1, 1, 5);
  // the parameters are changed in place
  const auto loss = [&](const std::vector<Tensor>&) { return net.loss(in, targets); };
  EXPECT_EQ(check_gradients(loss, net.parameters()), "");
}

TEST_P(Families, LearnOneBatchByHeart) {
  ModelConfig config = GetParam()();
  config.width = 32;
  config.mlp_width = 64;
  Generator generator(5);
  const LanguageModel net(config, Dtype::f32, &generator);
  const Tensor rows = ids(4, 12);
  optim::AdamW optimizer(net.parameters(), {.lr = 1e-2});
  double loss = 0;
  for (int step = 0; step < 150; ++step) {
    const Tensor value = net.loss(rows.slice(1, 0, -1), rows.slice(1, 1));
    optimizer.zero_grad();
    value.backward();
    optimizer.step();
    loss = value.item();
  }
  EXPECT_LT(loss, 0.05);
}

TEST_P(Families, HeadsAreWhatAttentionIsGiven) {
  const LanguageModel net = model();
  const LanguageModel::Heads heads = net.heads(ids(2, 5), 1);
  EXPECT_EQ(heads.q.sizes(), (Dims{2, net.config.heads, 5, net.config.dim_of_head()}));
  EXPECT_EQ(heads.k.sizes(), (Dims{2, net.config.key_value_heads(), 5, net.config.dim_of_head()}));
  EXPECT_EQ(error_of<ValueError>([&] { net.heads(ids(1, 2), 2); }),
            "LanguageModel: layer is 2; it must be from 0 to 1");
}

TEST_P(Families, WeightsLaidOutForDecodingHaveTheSameBitsAndAreMadeAnewWhenTheyChange) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const LanguageModel net = model(dtype);
    const NoGrad no_grad;
    const Tensor in = ids(1, 3);
    for (int round = 0; round < 2; ++round) {
      Tensor whole;
      {
        const EnableGrad grad;  // by the weights as they are
        whole = net(in).detach();
      }
      for (int call = 0; call < 40; ++call)
        ASSERT_TRUE(same_bits(net(in), whole)) << name_of(dtype) << ", call " << call;
      const Tensor many = ids(4, 5);
      const Tensor rows = net(many);
      {
        const EnableGrad grad;
        ASSERT_TRUE(same_bits(rows, net(many).detach())) << name_of(dtype);
      }
      for (const Tensor& weight : net.parameters()) weight.mul_(1.25);
      ASSERT_FALSE(same_bits(net(in), whole)) << name_of(dtype);
    }
  }
}

TEST(Projections, ManyThreadsDecodeWithOneModel) {
  const LanguageModel net(ModelConfig::nano(11));
  const NoGrad no_grad;
  const Tensor in = zeros({1, 2}, Dtype::i64), expected = net(in);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const NoGrad here;
      for (int call = 0; call < 30; ++call) wrong += !same_bits(net(in), expected);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Projections, AChildForkedAmidThemDecodes) {
  const int children = testing::sanitized ? 0 : 150;  // the thread sanitizer ends a child of several threads
  const LanguageModel net(ModelConfig::nano(11));
  const NoGrad no_grad;
  const Tensor in = zeros({1, 2}, Dtype::i64), expected = net(in);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      const NoGrad here;
      while (!stop) net(in);
    });
  int worked = 0;
  for (int child = 0; child < children && worked == child; ++child)
    worked += testing::in_fork([&] { return same_bits(net(in), expected) ? 7 : 1; }) == 7;
  EXPECT_EQ(worked, children);
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

constexpr const char* family_names[] = {"gpt2",   "llama",  "mistral", "qwen2",   "qwen3",
                                        "gemma2", "gemma3", "phi3",    "smollm3", "mixture"};
INSTANTIATE_TEST_SUITE_P(Models, Families,
                         ::testing::Values(&testing::tiny_gpt2, &testing::tiny_llama, &testing::tiny_mistral,
                                           &testing::tiny_qwen2, &testing::tiny_qwen3, &testing::tiny_gemma2,
                                           &testing::tiny_gemma3, &testing::tiny_phi3, &testing::tiny_smollm3,
                                           &testing::tiny_mixture),
                         [](const auto& info) { return family_names[info.index]; });

// Four tokens: itself and three before.
TEST(LanguageModel, ATokenBehindTheWindowIsNotSeen) {
  ModelConfig config = testing::tiny_mistral();
  config.layers = 1;  // a second layer sees what the first took in
  const LanguageModel net(config);
  const Tensor ids = arange(0, 12).unsqueeze(0);
  const NoGrad no_grad;
  const Tensor logits = net(ids);
  for (const std::int64_t changed : {0, 5, 11}) {
    const Tensor others = ids.clone();
    others.data<std::int64_t>()[changed] = 12;
    const Tensor now = net(others);
    for (std::int64_t t = 0; t < 12; ++t)
      EXPECT_EQ(same_bits(now.narrow(1, t, 1).contiguous(), logits.narrow(1, t, 1).contiguous()),
                t < changed || t > changed + 3)
          << changed << ", row " << t;
  }
}

TEST(LanguageModel, DropoutIsForTraining) {
  ModelConfig config = testing::tiny_gpt2();
  config.dropout = 0.5;
  const LanguageModel net(config);
  const Tensor ids = arange(0, 8).unsqueeze(0);
  EXPECT_FALSE(same_bits(net(ids).detach(), net(ids).detach()));
  manual_seed(4);
  const Tensor first = net(ids).detach();
  manual_seed(4);
  EXPECT_TRUE(same_bits(net(ids).detach(), first));
  net.eval();
  EXPECT_TRUE(same_bits(net(ids).detach(), net(ids).detach()));
}

TEST(LanguageModel, Presets) {
  EXPECT_EQ(ModelConfig::small().parameters(), 124439808);  // GPT-2
  EXPECT_EQ(ModelConfig::nano(65).parameters(), 809856);
  EXPECT_EQ(ModelConfig::baby(65).parameters(), 10770816);
}

TEST(LanguageModel, Errors) {
  const LanguageModel net(testing::tiny_gpt2());
  EXPECT_EQ(error_of<ValueError>([&] { net(zeros({2, 13}, Dtype::i64)); }),
            "LanguageModel: ids has shape [2, 13]; the context holds 12 tokens");
  EXPECT_EQ(error_of<ShapeError>([&] { net(zeros({13}, Dtype::i64)); }),
            "LanguageModel: ids has shape [13]; it must be [B, T]");
  EXPECT_THROW(net(full({1, 2}, 13, Dtype::i64)), ValueError);
  EXPECT_EQ(error_of<ShapeError>([&] { net.loss(zeros({2, 3}, Dtype::i64), zeros({2, 2}, Dtype::i64)); }),
            "LanguageModel: targets has shape [2, 2]; it must be that of ids, [2, 3]");
  EXPECT_EQ(error_of<DtypeError>([] { LanguageModel(testing::tiny_gpt2(), Dtype::i64); }),
            "LanguageModel: dtype is i64; it must be f32, f64, bf16 or f16");
  ModelCache cache(net.config, 2);
  const Tensor ten = zeros({1, 10}, Dtype::i64);
  net.hidden(ten, cache);
  EXPECT_EQ(error_of<ValueError>([&] { net.hidden(ten, cache); }),
            "LanguageModel: ids has shape [1, 10] after 10 tokens; the context holds 12 tokens");
  EXPECT_EQ(error_of<ValueError>([&] { net.hidden(ten, cache, {2}); }),
            "ModelCache: sequence is 2; it must be from 0 to 1");
  EXPECT_EQ(error_of<ValueError>([&] { net.hidden(zeros({2, 1}, Dtype::i64), cache, {1, 1}); }),
            "LanguageModel: sequence 1 is given twice");
  EXPECT_EQ(error_of<ShapeError>([&] { net.hidden(ten, cache, {0, 1}); }),
            "LanguageModel: ids has shape [1, 10]; it must have a row for each of 2 sequences");
  ModelConfig deeper = net.config;
  ++deeper.layers;
  ModelCache other(deeper, 2);
  EXPECT_EQ(error_of<ValueError>([&] { net.hidden(ten, other, {0}); }),
            "LanguageModel: the cache is of a model with 3 layers; this one has 2");
  deeper.layers = 1;
  EXPECT_EQ(error_of<ValueError>([&] {
              ModelCache one(deeper, 2);
              net.hidden(ten, one, {0});
            }),
            "LanguageModel: the cache is of a model with 1 layer; this one has 2");
  EXPECT_EQ(error_of<ValueError>([&] { ModelCache(net.config, 0); }),
            "ModelCache: sequences is 0; it must be from 1 to 1048576");
  static_assert(!std::is_copy_constructible_v<ModelCache> && !std::is_copy_assignable_v<ModelCache>);
  static_assert(std::is_nothrow_move_constructible_v<ModelCache> && std::is_nothrow_move_assignable_v<ModelCache>);
  EXPECT_EQ(cache.length(0), 10);
  EXPECT_EQ(cache.length(1), 0);
}

}  // namespace
}  // namespace attn
