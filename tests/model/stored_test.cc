// tests/model/stored_test.cc: a model whose matrices stay blocks of a GGUF file computes the bits of the model with the
// decoded ones, in every format, with any batch, cache and threads.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/memory.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "kernels/gemm/product.h"
#include "model/gguf/types.h"
#include "model/gguf/write.h"
#include "model/gguf_folder.h"
#include "model/tiny_models.h"
#include "support/errors.h"
#include "support/random_blocks.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace attn {
namespace {

using testing::error_of;
using testing::Folder;
using testing::GgufBytes;

ModelConfig wide_config() {
  ModelConfig config = testing::tiny_llama();
  config.vocab_size = 67;
  config.context = 64;
  config.width = 256;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.mlp_width = 512;
  config.tied_head = true;
  return config;
}

const gguf::Type& type_of(const std::string& name) {
  for (const gguf::Type& type : gguf::types())
    if (name == type.name) return type;
  throw ValueError(name);
}

/// Writes a model of the config with random matrices of that type.
std::string write_model(const Folder& folder, const ModelConfig& config, const std::string& architecture,
                        const std::string& type_name) {
  Generator generator(3);
  LanguageModel(config, Dtype::f32, &generator).save(folder / "plain");
  GgufBytes file = testing::gguf_of_folder(folder / "plain", architecture);
  const gguf::Type& type = type_of(type_name);
  std::mt19937 random(5);
  for (GgufBytes::Tensor& tensor : file.tensors) {
    if (tensor.sizes.size() != 2 || tensor.name == "position_embd.weight") continue;
    const auto numbers = static_cast<std::int64_t>(tensor.sizes[0] * tensor.sizes[1]), blocks = numbers / type.elements;
    std::string data(static_cast<std::size_t>(blocks * type.bytes), '\0');
    if (type.blocks != kernels::BlockFormat::none)
      testing::fill_with_blocks(type.blocks, data.data(), blocks, false, random);
    else
      for (std::int64_t i = 0; i < numbers; ++i)
        type.encode(reinterpret_cast<const float*>(tensor.data.data()) + i,
                    reinterpret_cast<std::byte*>(data.data()) + i * type.bytes);
    tensor.type = type.id;
    tensor.data = data;
  }
  return folder.write("model.gguf", file.bytes());
}

class Stored : public ::testing::TestWithParam<const char*> {};

void expect_the_same(const LanguageModel& stored, const LanguageModel& plain) {
  EXPECT_FALSE(plain.is_stored());
  Generator generator(7);
  const int before = num_threads();
  for (const auto& [batch, length] :
       std::vector<std::pair<std::int64_t, std::int64_t>>{{1, 1}, {1, 3}, {2, 2}, {1, 8}, {3, 3}, {2, 33}}) {
    const Tensor ids = randint(0, stored.config.vocab_size, {batch, length}, generator);
    const NoGrad no_grad;
    const Tensor expected = plain(ids);
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      EXPECT_TRUE(same_bits(stored(ids), expected)) << batch << " x " << length << ", " << threads << " threads";
    }
  }
  set_num_threads(before);
  const GenerateOptions options{.tokens = 12, .sample = {.temperature = 0}};
  const std::vector<std::vector<std::int64_t>> prompts = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, {4}};
  const auto ours = generate(stored, prompts, options), theirs = generate(plain, prompts, options);
  for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(ours[i].tokens, theirs[i].tokens);
}

TEST_P(Stored, HasTheBitsOfTheDecodedModel) {
  const Folder folder;
  const std::string path = write_model(folder, wide_config(), "llama", GetParam());
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}) {
    SCOPED_TRACE(name_of(dtype));
    const LanguageModel stored = LanguageModel::load(path, dtype), plain = stored.decoded();
    EXPECT_EQ(stored.dtype(), dtype);
    EXPECT_EQ(plain.dtype(), dtype);
    const gguf::Type& type = type_of(GetParam());
    const std::string name = GetParam();
    EXPECT_EQ(stored.is_stored(),
              dtype == Dtype::f32
                  ? name == "F32" || (type.elements > 1 ? kernels::multiplies_blocks(kernels::Element::f32)
                                                        : kernels::multiplies_half_b())
              : dtype == Dtype::bf16
                  ? kernels::multiplies_bf16() &&
                        (name == "BF16" || (type.elements > 1 && kernels::multiplies_blocks(kernels::Element::bf16)))
                  : false);
    expect_the_same(stored, plain);
  }
}

INSTANTIATE_TEST_SUITE_P(Every, Stored,
                         ::testing::Values("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K",
                                           "Q6_K"),
                         [](const auto& info) { return std::string(info.param); });

/// The rows of q and k are in another order in the file, and so are their biases; a head of its own; norms of heads.
TEST(StoredModels, OfOtherShapes) {
  ModelConfig config = wide_config();
  config.attention_bias = true;
  config.tied_head = false;
  const Folder llama, qwen2, qwen3;
  const LanguageModel first = LanguageModel::load(write_model(llama, config, "llama", "Q5_1"));
  expect_the_same(first, first.decoded());
  config.attention_out_bias = false;
  const LanguageModel second = LanguageModel::load(write_model(qwen2, config, "qwen2", "Q8_0"));
  expect_the_same(second, second.decoded());
  config.attention_bias = false;
  config.qk_norm = true;
  const LanguageModel third = LanguageModel::load(write_model(qwen3, config, "qwen3", "Q4_K"));
  expect_the_same(third, third.decoded());
}

/// It is saved as a folder, and as a GGUF file, with the decoded numbers.
TEST(StoredModels, AreSaved) {
  const Folder folder;
  const LanguageModel stored = LanguageModel::load(write_model(folder, wide_config(), "llama", "Q4_1")),
                      plain = stored.decoded();
  stored.save(folder / "saved");
  gguf::write(folder / "again.gguf", stored, nullptr, "F32");
  const LanguageModel saved = LanguageModel::load(folder / "saved"),
                      again = LanguageModel::load(folder / "again.gguf").decoded();
  const nn::StateDict expected = plain.state_dict(), one = saved.state_dict(), other = again.state_dict();
  ASSERT_EQ(one.size(), expected.size());
  ASSERT_EQ(other.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(same_bits(one[i].second, expected[i].second)) << expected[i].first;
    EXPECT_TRUE(same_bits(other[i].second, expected[i].second)) << expected[i].first;
  }
}

TEST(StoredModels, AreNotTrained) {
  const Folder folder;
  const LanguageModel stored = LanguageModel::load(write_model(folder, wide_config(), "llama", "Q8_0"));
  if (!stored.is_stored()) GTEST_SKIP() << "no vector kernels";
  const Tensor ids = randint(0, 67, {1, 4});
  EXPECT_FALSE(stored.loss(ids, ids).requires_grad());
  stored.train();
  EXPECT_EQ(
      error_of<ValueError>([&] { stored.loss(ids, ids); }),
      "LanguageModel: the weights are the blocks of a GGUF file, which cannot be trained; decoded() gives a model "
      "that can");
  const LanguageModel plain = stored.decoded();
  EXPECT_TRUE(plain.is_training());
  plain.loss(ids, ids).backward();
  EXPECT_EQ(plain.parameters().size(), 16u);
  for (const Tensor& parameter : plain.parameters()) EXPECT_TRUE(parameter.grad().defined());
}

TEST(StoredModels, SayWhatIsWrong) {
  const Folder folder;
  const LanguageModel stored = LanguageModel::load(write_model(folder, wide_config(), "llama", "Q8_0")),
                      plain = stored.decoded();
  const Tensor ids = tensor<std::int64_t>({1, 67}).unsqueeze(0);
  const auto said = [](const LanguageModel& model, const Tensor& x) {
    return error_of<Error>([&] { x.dtype() == Dtype::i64 ? model(x) : model.logits(x); });
  };
  for (const Tensor& wrong : {ids, zeros({1, 2}), zeros({1, 2, 255}), zeros({1, 256}, Dtype::f64)})
    EXPECT_EQ(said(stored, wrong), said(plain, wrong));
}

/// Returns the peak of this process's memory that is no file's, since it was set back, in bytes.
std::int64_t peak() {
  std::ifstream status("/proc/self/status");
  std::string word;
  std::int64_t value = 0;
  while (status >> word)
    if (word == "VmHWM:" && status >> value) return value * 1024;
  return 0;
}

/// Loading and generating takes the file's pages and little memory beside.
TEST(StoredModels, TakeTheMemoryOfTheFile) {
  ModelConfig config = wide_config();
  config.vocab_size = 20000;
  config.width = 1024;
  config.mlp_width = 8192;
  const Folder folder;
  const std::string path = write_model(folder, config, "llama", "Q4_0");
  const auto file_bytes = static_cast<std::int64_t>(std::filesystem::file_size(path));
  release_free_memory();
  std::ofstream("/proc/self/clear_refs") << "5";  // sets the peak back
  const std::int64_t before = peak();
  const LanguageModel model = LanguageModel::load(path);
  if (!model.is_stored()) GTEST_SKIP() << "no vector kernels";
  generate(model, {std::vector<std::int64_t>(48, 7)}, {.tokens = 8, .sample = {.temperature = 0}});
  EXPECT_LT(peak() - before, file_bytes + (64 << 20));
  EXPECT_GT(4 * config.parameters(), 3 * (file_bytes + (64 << 20)) / 2) << "the decoded weights would not fit";
}

}  // namespace
}  // namespace attn
