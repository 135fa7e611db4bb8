// tests/model/encoder_test.cc: encoders of texts beside transformers: rows, vectors of every pooling, scores; the same
// bits whatever stands beside a text.
#include <attn/autograd.h>
#include <attn/encoder.h>

#include "model/encoders.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <random>

namespace attn {
namespace {

using nlohmann::json;
using testing::Folder;
using testing::GivenEncoder;
using testing::PackedTexts;

::testing::AssertionResult as_recorded(const Tensor& ours, const json& record) {
  return testing::within_error_rule(ours.detach(), testing::golden_tensor(record), record.at("error").get<double>());
}

Tensor hidden(const TextEncoder& encoder, const PackedTexts& texts) {
  return encoder.hidden(texts.ids, texts.ends, texts.segments).detach();
}

const char* const pooling_modes[] = {"cls_token",           "max_tokens", "mean_tokens", "mean_sqrt_len_tokens",
                                     "weightedmean_tokens", "lasttoken"};

TEST(Encoders, RowsAndScoresAreThoseOfTransformers) {
  testing::each_encoder([](const GivenEncoder& given) {
    const TextEncoder encoder = TextEncoder::load(given.folder);
    const PackedTexts all = given.all();
    const Tensor rows = hidden(encoder, all);
    EXPECT_TRUE(as_recorded(rows, given.record.at("rows")));
    EXPECT_EQ(given.record.contains("scores"), encoder.config.labels > 0);
    if (encoder.config.labels > 0) {
      EXPECT_TRUE(as_recorded(encoder.logits(rows, all.ends), given.record.at("scores")));
    } else {
      EXPECT_THROW(encoder.logits(rows, all.ends), ValueError);
    }
  });
}

/// Also normalised, and several joined; an encoder without modules.json has the mean.
TEST(Encoders, VectorsAreThoseOfSentenceTransformers) {
  testing::each_encoder([](const GivenEncoder& given) {
    const PackedTexts all = given.all();
    const auto vectors = [&](const json& modes, bool normalize) {
      const Folder folder;
      testing::write_sentence_folder(given.folder, folder.path(), modes.dump(), normalize);
      const TextEncoder encoder = TextEncoder::load(folder.path());
      const Tensor result = encoder.pooled(hidden(encoder, all), all.ends).detach();
      EXPECT_EQ(result.size(1), encoder.dim());
      return result;
    };
    std::vector<Tensor> each;
    json together;
    for (const std::string mode : pooling_modes) {
      SCOPED_TRACE(mode);
      each.push_back(vectors({{"pooling_mode_" + mode, true}}, false));
      EXPECT_TRUE(as_recorded(each.back(), given.record.at("vectors").at(mode)));
      together["pooling_mode_" + mode] = true;
      const Tensor unit = vectors({{"pooling_mode_" + mode, true}}, true);
      EXPECT_TRUE(testing::within(unit, each.back() / norm(each.back(), 2, {-1}, true), 1e-6));
    }
    EXPECT_TRUE(same_bits(vectors(together, false), cat(each, 1)));
    const TextEncoder bare = TextEncoder::load(given.folder);
    EXPECT_TRUE(same_bits(bare.pooled(hidden(bare, all), all.ends).detach(), each[2]));
  });
}

/// Each text alone, in other orders, several times, beside others: in every dtype the same bits.
TEST(Encoders, BitsDoNotDependOnTheOtherTexts) {
  testing::each_encoder([](const GivenEncoder& given) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}) {
      const TextEncoder encoder = TextEncoder::load(given.folder, dtype);
      EXPECT_EQ(encoder.dtype(), dtype);
      const auto vectors = [&](const std::vector<std::size_t>& which) {
        const PackedTexts texts = given.some(which);
        const Tensor rows = hidden(encoder, texts);
        const Tensor pooled = encoder.pooled(rows, texts.ends).detach();
        return encoder.config.labels > 0 ? cat({pooled, encoder.logits(rows, texts.ends).detach()}, 1) : pooled;
      };
      std::vector<Tensor> alone;
      for (std::size_t i = 0; i < given.texts.size(); ++i) alone.push_back(vectors({i}));
      std::mt19937 random(5);
      for (int repeat = 0; repeat < 6; ++repeat) {
        std::vector<std::size_t> which(1 + random() % 9);
        for (std::size_t& i : which) i = random() % given.texts.size();
        const Tensor together = vectors(which);
        for (std::size_t i = 0; i < which.size(); ++i)
          EXPECT_TRUE(same_bits(together.narrow(0, static_cast<std::int64_t>(i), 1).contiguous(), alone[which[i]]))
              << name_of(dtype) << " text " << which[i];
      }
    }
  });
}

TEST(Encoders, APromptMayTakeNoPart) {
  const std::string from = testing::golden_path("model/encoders/bert");
  const Folder folder;
  testing::write_sentence_folder(from, folder.path(), R"({"pooling_mode_mean_tokens": true, "include_prompt": false})",
                                 false);
  const TextEncoder encoder = TextEncoder::load(folder.path());
  const PackedTexts texts = testing::packed({{5, 6, 7, 8, 9}, {4, 5}});
  const Tensor rows = hidden(encoder, texts);
  const Tensor vectors = encoder.pooled(rows, texts.ends, {2, 0}).detach();
  EXPECT_TRUE(testing::within(vectors.select(0, 0), mean(rows.narrow(0, 2, 3), {0}), 1e-6));
  EXPECT_TRUE(testing::within(vectors.select(0, 1), mean(rows.narrow(0, 5, 2), {0}), 1e-6));
  EXPECT_FALSE(any(encoder.pooled(rows, texts.ends, {9, 0}).detach().select(0, 0)));
  EXPECT_EQ(testing::error_of<ValueError>([&] { encoder.pooled(rows, texts.ends, {1}); }),
            "TextEncoder: prompts has 1 entries; it must have one for each of the 2 texts");
}

TEST(Encoders, NoTextsAreNoVectors) {
  const TextEncoder encoder = TextEncoder::load(testing::golden_path("model/encoders/bert"));
  const PackedTexts none = testing::packed({});
  const Tensor rows = hidden(encoder, none);
  EXPECT_EQ(rows.sizes(), (Dims{0, 16}));
  EXPECT_EQ(encoder.pooled(rows, none.ends).sizes(), (Dims{0, 16}));
  EXPECT_EQ(encoder.logits(rows, none.ends).sizes(), (Dims{0, 1}));
}

TEST(Encoders, MistakesOfACallAreSaid) {
  const TextEncoder encoder = TextEncoder::load(testing::golden_path("model/encoders/roberta"));
  const auto error = [&](const std::vector<std::int64_t>& ids, const std::vector<std::int64_t>& ends,
                         const Tensor& segments = {}) {
    return testing::error_of<Error>(
        [&] { encoder.hidden(tensor<std::int64_t>(ids), tensor<std::int64_t>(ends), segments); });
  };
  EXPECT_EQ(error({4, 5}, {0, 1}), "TextEncoder: cu_seqlens must begin with 0 and end with 2, the number of tokens");
  EXPECT_EQ(error({4, 5}, {0, 1, 1, 2}), "TextEncoder: text 1 has no token; cu_seqlens must ascend");
  EXPECT_EQ(error(std::vector<std::int64_t>(37, 5), {0, 37}),
            "TextEncoder: text 0 has 37 tokens; the model reads at most 36");
  EXPECT_EQ(error({4, 5}, {0, 2}, zeros({3}, Dtype::i64)),
            "TextEncoder: segments has shape [3]; texts one after another are [total]");
  EXPECT_NE(error({4, 31}, {0, 2}).find("31"), std::string::npos);
  EXPECT_EQ(
      testing::error_of<ShapeError>([&] { encoder.hidden(zeros({1, 2}, Dtype::i64), tensor<std::int64_t>({0, 2})); }),
      "TextEncoder: ids has shape [1, 2]; texts one after another are [total]");
  EXPECT_EQ(testing::error_of<ShapeError>([&] { encoder.pooled(zeros({2, 3}), tensor<std::int64_t>({0, 2})); }),
            "TextEncoder: hidden has shape [2, 3]; it must be [total, 16]");
}

TEST(Encoders, GradientsAreThoseOfDifferences) {
  testing::each_encoder([](const GivenEncoder& given) {
    const TextEncoder encoder = TextEncoder::load(given.folder, Dtype::f64);
    const PackedTexts texts = given.some({0, 1});
    const auto loss = [&](const std::vector<Tensor>&) {
      const Tensor rows = encoder.hidden(texts.ids, texts.ends, texts.segments);
      const Tensor sums = sum(encoder.pooled(rows, texts.ends) * arange(Scalar(1), Scalar(17), 1, Dtype::f64));
      return encoder.config.labels > 0 ? sums + sum(encoder.logits(rows, texts.ends)) : sums;
    };
    std::vector<Tensor> small;  // a parameter of each kind but the matrices, whose elements are many
    for (const Tensor& weight : encoder.parameters())
      if (weight.numel() <= 16) small.push_back(weight);
    EXPECT_EQ(check_gradients(loss, small), "");
  });
}

}  // namespace
}  // namespace attn
