// tests/model/same_log_probabilities_test.cc: log-probabilities of generated tokens are those of the training forward
// pass, to the bit, however the tokens were generated and however the training batch is laid out.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>
#include <attn/optim.h>

#include "model/lively.h"
#include "model/tiny_models.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attn {
namespace {

using testing::lively;
using Ids = std::vector<std::int64_t>;

const std::vector<Ids> prompts = {{1, 2, 3}, {4}, {5, 6, 7, 8, 9}};

ModelConfig roomy(ModelConfig config) {
  config.context = 64;
  return config;
}

/// A prompt with its continuation, as training sees it: ids, and the id after each; -100 where that is the prompt's.
struct Episode {
  Ids ids, targets;
  std::vector<double> said;  // log-probabilities from generation
};

std::vector<Episode> episodes(const std::vector<Generated>& generated) {
  std::vector<Episode> result;
  for (std::size_t i = 0; i < generated.size(); ++i) {
    Episode one{.ids = prompts[i], .targets = {}, .said = generated[i].log_probabilities};
    one.ids.insert(one.ids.end(), generated[i].tokens.begin(), generated[i].tokens.end());
    one.targets.assign(one.ids.begin() + 1, one.ids.end());
    std::fill_n(one.targets.begin(), prompts[i].size() - 1, -100);
    one.ids.pop_back();
    result.push_back(one);
  }
  return result;
}

/// Those of the generated tokens: the last of a row.
std::vector<double> last(const Tensor& row, std::size_t count) {
  const std::vector<double> all = row.to_vector();
  return {all.end() - static_cast<std::ptrdiff_t>(count), all.end()};
}

void expect_the_same(const LanguageModel& model, const std::vector<Episode>& all) {
  // each alone, with gradients recorded
  for (const Episode& one : all) {
    const Tensor row = model.log_probabilities(tensor<std::int64_t>(one.ids).unsqueeze(0),
                                               tensor<std::int64_t>(one.targets).unsqueeze(0));
    EXPECT_TRUE(row.requires_grad());
    EXPECT_EQ(last(row[0], one.said.size()), one.said);
  }
  // a batch, padded on the right
  std::size_t longest = 0;
  for (const Episode& one : all) longest = std::max(longest, one.ids.size());
  const Dims sizes{std::ssize(all), static_cast<std::int64_t>(longest)};
  const Tensor ids = zeros(sizes, Dtype::i64), targets = full(sizes, -100, Dtype::i64);
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::copy(all[i].ids.begin(), all[i].ids.end(), ids.data<std::int64_t>() + i * longest);
    std::copy(all[i].targets.begin(), all[i].targets.end(), targets.data<std::int64_t>() + i * longest);
  }
  const Tensor batch = model.log_probabilities(ids, targets);
  // packed
  Ids packed, packed_targets, ends{0};
  for (const Episode& one : all) {
    packed.insert(packed.end(), one.ids.begin(), one.ids.end());
    packed_targets.insert(packed_targets.end(), one.targets.begin(), one.targets.end());
    ends.push_back(std::ssize(packed));
  }
  const Tensor joined = model.log_probabilities(tensor<std::int64_t>(packed), tensor<std::int64_t>(packed_targets),
                                                tensor<std::int64_t>(ends));
  EXPECT_EQ(joined.sizes(), (Dims{ends.back()}));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto row = static_cast<std::int64_t>(i);
    EXPECT_EQ(last(batch[row].slice(0, 0, std::ssize(all[i].ids)), all[i].said.size()), all[i].said);
    EXPECT_EQ(last(joined.slice(0, ends[i], ends[i + 1]), all[i].said.size()), all[i].said);
    // the importance ratio of a policy that has not changed
    const Tensor ratio = exp(joined.slice(0, ends[i + 1] - std::ssize(all[i].said), ends[i + 1]).to(Dtype::f64) -
                             tensor<double>(all[i].said));
    for (const double r : ratio.to_vector()) EXPECT_EQ(r, 1.0);
  }
}

TEST(SameLogProbabilities, HoweverTheTokensWereGenerated) {
  for (const ModelConfig& config : {testing::tiny_gpt2(), testing::tiny_llama(), testing::tiny_mistral(),
                                    testing::tiny_qwen3(), testing::tiny_mixture()})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
      const LanguageModel model = lively(roomy(config), dtype), draft = lively(roomy(config), dtype, 9);
      for (const GenerateOptions& options :
           {GenerateOptions{}, GenerateOptions{.cache = false}, GenerateOptions{.draft = {.ngram = 2}},
            GenerateOptions{.draft = {.model = &draft}},
            GenerateOptions{.sample = {.temperature = 0.7, .top_k = 5, .repetition_penalty = 1.2}}}) {
        GenerateOptions asked = options;
        asked.tokens = 40;
        asked.log_probabilities = true;
        expect_the_same(model, episodes(generate(model, prompts, asked)));
        // one prompt after the other
        std::vector<Generated> alone;
        for (const Ids& prompt : prompts) alone.push_back(generate(model, {prompt}, asked)[0]);
        expect_the_same(model, episodes(alone));
      }
    }
}

// the ratio's gradient is that of log p, and training changes the ratio
TEST(SameLogProbabilities, TrainAPolicy) {
  const LanguageModel model = lively(roomy(testing::tiny_llama()));
  const Generated said = generate(model, {{1, 2, 3}}, {.tokens = 20, .log_probabilities = true})[0];
  Ids ids = {1, 2, 3};
  ids.insert(ids.end(), said.tokens.begin(), said.tokens.end());
  Ids targets(ids.begin() + 1, ids.end());
  ids.pop_back();
  const Tensor before = tensor<double>(said.log_probabilities).to(Dtype::f32);
  optim::SGD optimizer(model.parameters(), {.lr = 1e-5});
  const auto ratio = [&] {
    const Tensor now =
        model.log_probabilities(tensor<std::int64_t>(ids).unsqueeze(0), tensor<std::int64_t>(targets).unsqueeze(0))[0];
    return exp(now.slice(0, 2) - before);
  };
  const Tensor first = ratio();
  for (const double r : first.detach().to_vector()) EXPECT_EQ(r, 1.0);
  (-first.mean()).backward();
  optimizer.step();
  EXPECT_GT(ratio().mean().item(), 1.0);  // the tokens have become likelier
}

TEST(SameLogProbabilities, PackedSequencesAreThoseAlone) {
  for (const ModelConfig& config : {testing::tiny_gpt2(), testing::tiny_mistral()}) {
    const LanguageModel model = lively(config);
    const Tensor ids = tensor<std::int64_t>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 1, 2, 3}),
                 ends = tensor<std::int64_t>({0, 3, 3, 15});
    const Tensor packed = model.hidden_packed(ids, ends);
    EXPECT_TRUE(same_bits(packed.slice(0, 0, 3), model.hidden(ids.slice(0, 0, 3).unsqueeze(0))[0]));
    EXPECT_TRUE(same_bits(packed.slice(0, 3, 15), model.hidden(ids.slice(0, 3, 15).unsqueeze(0))[0]));
  }
}

TEST(SameLogProbabilities, Errors) {
  using testing::error_of;
  const LanguageModel model = lively(testing::tiny_gpt2());
  const Tensor ids = zeros({15}, Dtype::i64);
  const auto refused = [&](const Tensor& given, const Tensor& ends) {
    return error_of<Error>([&] { model.hidden_packed(given, ends); });
  };
  EXPECT_EQ(refused(ids.unsqueeze(0), tensor<std::int64_t>({0, 15})),
            "LanguageModel: ids has shape [1, 15]; packed sequences are [total]");
  EXPECT_EQ(refused(ids, {}), "LanguageModel: cu_seqlens must be i32 or i64 [N + 1]");
  EXPECT_EQ(refused(ids, tensor<std::int64_t>({0, 3, 12})),
            "LanguageModel: cu_seqlens must begin with 0 and end with 15, the number of ids");
  EXPECT_EQ(refused(ids, tensor<std::int64_t>({0, 15})),
            "LanguageModel: sequence 0 has 15 tokens; the context holds 12 tokens");
  EXPECT_NE(refused(ids, tensor<std::int64_t>({0, 9, 5, 15})), "");
  EXPECT_EQ(error_of<ShapeError>(
                [&] { model.log_probabilities(ids, zeros({14}, Dtype::i64), tensor<std::int64_t>({0, 7, 15})); }),
            "LanguageModel: targets has shape [14]; it must be that of ids, [15]");
}

}  // namespace
}  // namespace attn
