// tests/model/earlier_files_test.cc: files that earlier versions wrote (tests/earlier) are read,
// and mean what they meant.
#include "support/golden.h"
#include "support/places.h"

#include <attn/autograd.h>
#include <attn/encoder.h>
#include <attn/encoder_decoder.h>
#include <attn/npy.h>
#include <attn/safetensors.h>
#include <attn/tokenizer.h>
#include <attn/train.h>

#include <algorithm>
#include <filesystem>

namespace attn {
namespace {

using testing::bits_equal;
using testing::within;

/// The folders of tests/earlier, one for each version.
std::vector<std::string> versions() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(testing::golden_path("../earlier")))
    if (entry.is_directory()) found.push_back(entry.path().string());
  return found;
}

class EarlierFiles : public ::testing::TestWithParam<std::string> {
 protected:
  std::string path(const std::string& name) const { return GetParam() + "/" + name; }
  Safetensors expected(const std::string& name) const { return load_safetensors(path(name + "/expected.safetensors")); }
};

TEST_P(EarlierFiles, AModelHasItsLogits) {
  const NoGrad no_grad;
  const Safetensors gpt2 = expected("gpt2"), llama = expected("llama");
  EXPECT_TRUE(bits_equal(LanguageModel::load(path("gpt2"))(gpt2.at("ids")), gpt2.at("logits")));
  // The frequencies of rotary positions come from the C library's power, which may differ in its last bit.
  EXPECT_TRUE(within(LanguageModel::load(path("llama"))(llama.at("ids")), llama.at("logits"), 1e-6));
}

TEST_P(EarlierFiles, AnEncoderDecoderHasItsLogits) {
  const NoGrad no_grad;
  for (const std::string name : {"bart", "marian", "t5"}) {
    SCOPED_TRACE(name);
    const Safetensors file = expected(name);
    const EncoderDecoder model = EncoderDecoder::load(path(name));
    const Tensor logits =
        model.forward(file.at("ids"), file.at("starts"), file.at("target_ids"), file.at("target_starts"));
    // Marian's positions are the C library's sines and powers.
    if (name == "marian") EXPECT_TRUE(within(logits, file.at("logits"), 1e-6));
    else EXPECT_TRUE(bits_equal(logits, file.at("logits")));
  }
}

TEST_P(EarlierFiles, AModelOfAGgufFileHasItsIdsAndLogits) {
  const NoGrad no_grad;
  const Safetensors file = expected("gguf");
  const std::string model = path("gguf/model.gguf");
  const std::vector<std::int64_t> ids = Tokenizer::load(model).encode(file.metadata.at("text"));
  EXPECT_EQ(std::vector<double>(ids.begin(), ids.end()), file.at("ids").to_vector());
  EXPECT_TRUE(within(LanguageModel::load(model)(file.at("ids").unsqueeze(0)), file.at("logits"), 1e-6));
}

TEST_P(EarlierFiles, AnEncoderOfAGgufFileHasItsVectors) {
  const NoGrad no_grad;
  const Safetensors file = expected("gguf_encoder");
  const TextEncoder encoder = TextEncoder::load(path("gguf_encoder/model.gguf"));
  const Tensor rows = encoder.hidden(file.at("ids"), file.at("starts"));
  EXPECT_TRUE(bits_equal(encoder.pooled(rows, file.at("starts")), file.at("vectors")));
}

TEST_P(EarlierFiles, ATokenizerGivesItsIds) {
  for (const std::string name : {"characters", "words", "bpe"}) {
    SCOPED_TRACE(name);
    const Safetensors file = expected(name);
    const std::string text = file.metadata.at("text");
    const Tokenizer tokenizer = Tokenizer::load(path(name));
    const std::vector<std::int64_t> ids = tokenizer.encode(text);
    const Tensor wanted = file.at("ids");
    ASSERT_EQ(static_cast<std::int64_t>(ids.size()), wanted.numel());
    EXPECT_TRUE(std::equal(ids.begin(), ids.end(), wanted.data<std::int64_t>()));
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

/// Resumes a training of six steps after three, and gives its losses and weights.
void expect_resumed(const std::string& folder, const Safetensors& expected, double tolerance) {
  const Tensor ids = expected.at("ids");
  const std::int64_t* first = ids.data<std::int64_t>();
  Trainer trainer = Trainer::resume(folder, {first, first + ids.numel()});
  EXPECT_EQ(trainer.step(), 3);
  while (!trainer.done()) trainer.advance();
  EXPECT_TRUE(within(trainer.losses(), expected.at("losses"), tolerance));
  for (const auto& [name, value] : trainer.model().state_dict())
    EXPECT_TRUE(within(value.to(Dtype::f32), expected.at(name).to(Dtype::f32), tolerance)) << name;
}

// Not bits: the cosine of the learning rate is the C library's, and bf16 differs between kinds of processors.
TEST_P(EarlierFiles, ACheckpointGoesOn) { expect_resumed(path("checkpoint_f32"), expected("checkpoint_f32"), 1e-6); }
TEST_P(EarlierFiles, ACheckpointOfBf16GoesOn) {
  expect_resumed(path("checkpoint_bf16"), expected("checkpoint_bf16"), 2e-2);
}

TEST_P(EarlierFiles, TensorsHaveTheirValues) {
  const Tensor values = arange(6).to(Dtype::f32).reshape({2, 3});
  EXPECT_TRUE(bits_equal(load_npy(path("values.npy")), values));
  const Safetensors file = load_safetensors(path("values.safetensors"));
  EXPECT_TRUE(bits_equal(file.at("f32"), values));
  EXPECT_TRUE(bits_equal(file.at("bf16"), values.to(Dtype::bf16)));
  EXPECT_EQ(file.metadata.at("made"), "by attn");
}

INSTANTIATE_TEST_SUITE_P(Versions, EarlierFiles, ::testing::ValuesIn(versions()), [](const auto& version) {
  std::string name = std::filesystem::path(version.param).filename().string();
  std::replace(name.begin(), name.end(), '.', '_');
  return "V" + name;
});

}  // namespace
}  // namespace attn
