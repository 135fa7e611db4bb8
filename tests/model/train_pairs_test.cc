// tests/model/train_pairs_test.cc: a training on pairs learns, gives the same bits on any number of threads and without
// padding, resumes to the bit, and leaves a folder that others read.
#include "support/errors.h"
#include "support/folder.h"
#include "support/golden.h"

#include <attn/autograd.h>
#include <attn/runtime.h>
#include <attn/train.h>

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::bits_equal;
using testing::error_of;
using testing::Folder;

/// Words and the same words backwards.
std::vector<TextPair> texts_of_pairs() {
  const std::vector<std::string> words = {"one", "two", "six", "ten", "cat", "dog"};
  std::vector<TextPair> pairs;
  for (std::size_t i = 0; i < 60; ++i) {
    const std::string &a = words[i % 6], &b = words[i * 7 / 6 % 6], &c = words[i / 5 % 6];
    pairs.push_back(i % 3 == 0   ? TextPair{a, a}
                    : i % 3 == 1 ? TextPair{a + " " + b, b + " " + a}
                                 : TextPair{a + " " + b + " " + c, c + " " + b + " " + a});
  }
  return pairs;
}

Tokenizer tokenizer_of_pairs() { return train_pair_tokenizer(texts_of_pairs(), Tokenizer::Kind::words); }
std::vector<IdPair> id_pairs() { return encode_pairs(tokenizer_of_pairs(), texts_of_pairs()); }

TrainOptions pair_options() {
  const std::int64_t size = tokenizer_of_pairs().size();
  TrainOptions o;
  o.encoder_decoder = EncoderDecoderConfig{.family = EncoderDecoderConfig::Family::marian,
                                           .vocab_size = size,
                                           .decoder_vocab_size = size,
                                           .positions = 8,
                                           .encoder_layers = 1,
                                           .decoder_layers = 1,
                                           .encoder_heads = 2,
                                           .decoder_heads = 2,
                                           .width = 16,
                                           .encoder_mlp_width = 32,
                                           .decoder_mlp_width = 32,
                                           .scaled_embedding = true,
                                           .padding_id = size - 1,
                                           .dropout = 0.1};
  o.steps = 12, o.batch = 8, o.warmup = 3, o.eval_every = 5, o.lr = 1e-2;
  return o;
}

::testing::AssertionResult same_pair_weights(const Trainer& a, const Trainer& b) {
  const auto x = a.encoder_decoder().state_dict(), y = b.encoder_decoder().state_dict();
  for (std::size_t i = 0; i < x.size(); ++i)
    if (const auto same = bits_equal(x[i].second, y[i].second); !same)
      return ::testing::AssertionFailure() << x[i].first << ": " << same.message();
  return bits_equal(a.losses(), b.losses());
}

Trainer trained_on_pairs(std::int64_t steps, const TrainOptions& o) {
  Trainer trainer = Trainer::of_pairs(id_pairs(), o);
  while (trainer.step() < steps) trainer.advance();
  return trainer;
}

TEST(TrainPairs, TheTokenizerEndsATextAndItsLastIdIsPadding) {
  const Tokenizer tokenizer = tokenizer_of_pairs();
  EXPECT_EQ(tokenizer.find("<pad>"), tokenizer.size() - 1);
  const auto ids = tokenizer.encode("one two", true);
  EXPECT_EQ(ids.back(), *tokenizer.find("</s>"));
  EXPECT_EQ(tokenizer.decode(ids, true), "one two");
  EXPECT_EQ(id_pairs()[0].target.back(), ids.back());
}

TEST(TrainPairs, TheLossFalls) {
  TrainOptions o = pair_options();
  o.steps = 60;
  const Trainer trainer = trained_on_pairs(60, o);
  const auto losses = trainer.losses();
  EXPECT_LT(losses[59][1].item(), 0.6 * losses[0][1].item());
  EXPECT_LT(trainer.best_loss(), losses[0][1].item());
}

TEST(TrainPairs, ThreadsChangeNoBit) {
  const int before = num_threads();
  set_num_threads(1);
  const Trainer one = trained_on_pairs(12, pair_options());
  set_num_threads(3);
  const Trainer three = trained_on_pairs(12, pair_options());
  set_num_threads(before);
  EXPECT_TRUE(same_pair_weights(one, three));
}

TEST(TrainPairs, ResumesToTheBit) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    TrainOptions o = pair_options();
    o.dtype = dtype;
    o.label_smoothing = 0.1;
    const Folder folder;
    const Trainer whole = trained_on_pairs(12, o);
    trained_on_pairs(7, o).save(folder.path());
    EXPECT_EQ(Trainer::find(folder.path())->first, o);
    Trainer resumed = Trainer::resume_pairs(folder.path(), id_pairs());
    while (!resumed.done()) resumed.advance();
    EXPECT_TRUE(same_pair_weights(whole, resumed)) << name_of(dtype);
    EXPECT_EQ(whole.best_loss(), resumed.best_loss());
  }
}

TEST(TrainPairs, ALossIsThatOfThePairsAlone) {
  TrainOptions o = pair_options();
  const Trainer trainer = Trainer::of_pairs(id_pairs(), o);
  const NoGrad guard;
  trainer.encoder_decoder().eval();
  double sum = 0, targets = 0;
  const std::vector<IdPair> pairs = id_pairs();
  for (std::size_t i = 54; i < 60; ++i) {
    const IdPair& pair = pairs[i];
    std::vector<std::int64_t> input = {o.encoder_decoder->padding_id};
    input.insert(input.end(), pair.target.begin(), pair.target.end() - 1);
    const auto one = [](const std::vector<std::int64_t>& ids) { return tensor<std::int64_t>(ids); };
    const auto ends = [&](const std::vector<std::int64_t>& ids) { return one({0, std::ssize(ids)}); };
    const auto n = static_cast<double>(pair.target.size());
    sum += n * trainer.encoder_decoder()
                   .loss(one(pair.source), ends(pair.source), one(input), ends(input), one(pair.target))
                   .item();
    targets += n;
  }
  EXPECT_NEAR(trainer.validate(), sum / targets, 1e-6);
}

TEST(TrainPairs, TheFolderIsAModelsFolder) {
  const Folder folder;
  const Trainer trainer = Trainer::of_pairs(id_pairs(), pair_options());
  trainer.save_model(folder.path());
  const EncoderDecoder loaded = EncoderDecoder::load(folder.path());
  EXPECT_EQ(loaded.state_dict().size(), trainer.encoder_decoder().state_dict().size());
  const std::string generation = testing::content_of(folder.file("generation_config.json"));
  EXPECT_NE(generation.find("\"decoder_start_token_id\": " + std::to_string(loaded.config.padding_id)),
            std::string::npos)
      << generation;
}

TEST(TrainPairs, Mistakes) {
  const auto error = [](std::vector<IdPair> pairs, const TrainOptions& o) {
    return error_of<ValueError>([&] { Trainer::of_pairs(std::move(pairs), o); });
  };
  EXPECT_EQ(error({{{1}, {1}}}, pair_options()),
            "Trainer: pairs has size 1; it must be 2 or more, one of them for validation");
  EXPECT_EQ(error({{{1}, {1}}, {{1}, {}}}, pair_options()), "Trainer: the target of pair 2 has no token");
  EXPECT_EQ(error({{{1, 1, 1, 1, 1, 1, 1, 1, 1}, {1}}, {{1}, {1}}}, pair_options()),
            "Trainer: the source of pair 1 has 9 tokens; the model reads at most 8");
  EXPECT_EQ(error({{{1}, {99}}, {{1}, {1}}}, pair_options()),
            "Trainer: id 99 in the target of pair 1 is not below vocab_size " +
                std::to_string(pair_options().encoder_decoder->vocab_size));
  TrainOptions o = pair_options();
  o.label_smoothing = 1;
  EXPECT_EQ(error(id_pairs(), o), "Trainer: label_smoothing is 1; it must be from 0 to below 1");
  o.encoder_decoder.reset();
  o.label_smoothing = 0;
  o.model = ModelConfig::nano(10);
  EXPECT_EQ(error(id_pairs(), o), "Trainer: encoder_decoder is not set, which pairs train");
  const Folder folder;
  Trainer trainer = Trainer::of_pairs(id_pairs(), pair_options());
  trainer.save(folder.path());
  EXPECT_EQ(error_of<ValueError>([&] { (void)trainer.model(); }),
            "Trainer: its model is an encoder-decoder, which encoder_decoder() returns");
  EXPECT_EQ(error_of<ValueError>([&] { Trainer::resume(folder.path(), std::vector<std::int64_t>(100, 1)); }),
            "Trainer: " + folder.path() + " trains on pairs, not on a text");
}

}  // namespace
}  // namespace attn
