// tests/model/train_pairs_test.cc: a training on pairs learns, gives the same bits on any number of threads and without
// padding, resumes to the bit, and leaves a folder that others read.
#include "model/small_pairs.h"
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
using testing::id_pairs;
using testing::pair_options;
using testing::same_pair_weights;
using testing::tokenizer_of_pairs;
using testing::trained_on_pairs;

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

/// The parts are added in another order than one graph adds them; without dropout the losses of the rows are the same.
TEST(TrainPairs, PartsComputeTheSameBatch) {
  TrainOptions o = pair_options();
  o.encoder_decoder->dropout = 0, o.label_smoothing = 0.1;
  const auto first_step = [](const TrainOptions& options) { return Trainer::of_pairs(id_pairs(), options).advance(); };
  const TrainStep whole = first_step(o);
  for (const std::int64_t parts : {2, 3, 8}) {
    o.parts = parts;
    const TrainStep in_parts = first_step(o);
    EXPECT_EQ(in_parts.loss, whole.loss) << parts;
    constexpr double roundings = 64 * 0x1p-24;  // of each gradient by the order of its sum
    EXPECT_NEAR(in_parts.gradient_norm, whole.gradient_norm, roundings * whole.gradient_norm) << parts;
  }
  o.parts = 4, o.encoder_decoder->dropout = 0.1;
  const Folder folder;
  const Trainer all = trained_on_pairs(12, o);
  trained_on_pairs(7, o).save(folder.path());
  Trainer resumed = Trainer::resume_pairs(folder.path(), id_pairs());
  while (!resumed.done()) resumed.advance();
  EXPECT_TRUE(same_pair_weights(all, resumed));
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
  o.label_smoothing = 0, o.parts = 9;
  EXPECT_EQ(error(id_pairs(), o), "Trainer: parts is 9; it must be from 1 to the 8 pairs of a batch, or 0, which is 1");
  o.encoder_decoder.reset();
  o.parts = 0;
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
