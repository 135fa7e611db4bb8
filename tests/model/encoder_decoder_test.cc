// tests/model/encoder_decoder_test.cc: encoder-decoders beside transformers: rows and logits; the same bits whatever
// stands beside a text, as a whole or with a cache; gradients, saving, mistakes.
#include <attn/autograd.h>
#include <attn/encoder_decoder.h>
#include <attn/translation.h>

#include "model/encoder_decoders.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <tuple>

namespace attn {
namespace {

using nlohmann::json;
using testing::Folder;
using testing::GivenPair;
using testing::memory_of;
using testing::packed;
using testing::PackedTexts;
using testing::Texts;

::testing::AssertionResult as_recorded(const Tensor& ours, const json& record) {
  return testing::within_error_rule(ours.detach(), testing::golden_tensor(record), record.at("error").get<double>());
}

std::string golden(const std::string& name) { return testing::golden_path("model/encoder_decoders/" + name); }

Tensor logits_of(const EncoderDecoder& model, const Texts& sources, const Texts& targets) {
  const PackedTexts from = packed(sources), to = packed(targets);
  return model.forward(from.ids, from.ends, to.ids, to.ends).detach();
}

TEST(EncoderDecoders, RowsAndLogitsAreThoseOfTransformers) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    const EncoderDecoder model = EncoderDecoder::load(given.folder);
    EXPECT_FALSE(model.is_training());
    const PackedTexts sources = packed(given.sources);
    EXPECT_TRUE(as_recorded(model.encode(sources.ids, sources.ends), given.record.at("rows")));
    EXPECT_TRUE(as_recorded(logits_of(model, given.sources, given.targets), given.record.at("logits")));
  });
}

/// Each pair alone, in other orders, several times, beside others: in every dtype the same bits.
TEST(EncoderDecoders, BitsDoNotDependOnTheOtherTexts) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64}) {
      const EncoderDecoder model = EncoderDecoder::load(given.folder, dtype);
      EXPECT_EQ(model.dtype(), dtype);
      std::vector<Tensor> alone;
      for (std::size_t i = 0; i < given.sources.size(); ++i)
        alone.push_back(logits_of(model, {given.sources[i]}, {given.targets[i]}));
      std::mt19937 random(5);
      for (int repeat = 0; repeat < 4; ++repeat) {
        Texts sources, targets;
        std::vector<Tensor> expected;
        for (std::size_t n = 1 + random() % 7; n > 0; --n) {
          const std::size_t i = random() % given.sources.size();
          sources.push_back(given.sources[i]), targets.push_back(given.targets[i]);
          expected.push_back(alone[i]);
        }
        EXPECT_TRUE(same_bits(logits_of(model, sources, targets), cat(expected))) << name_of(dtype);
      }
    }
  });
}

/// Token by token and in parts of several, with padding behind shorter texts, several texts of one source, forked.
TEST(EncoderDecoders, ACacheGivesTheBitsOfTheWhole) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64})
      for (const std::int64_t page_rows : {0, 16}) {
        const EncoderDecoder model = EncoderDecoder::load(given.folder, dtype);
        const Memory memory = memory_of(model, given.sources);
        // texts 0 and 1 are of source 0, the others of sources 1 to 3
        const std::vector<std::int64_t> of = {0, 0, 1, 2, 3}, all = {0, 1, 2, 3, 4};
        Texts texts = {given.targets[0], given.targets[3], given.targets[1], given.targets[2], given.targets[3]};
        ModelCache cache = model.cache(5, 40, {.page_rows = page_rows});
        std::vector<std::vector<Tensor>> rows(5);
        std::mt19937 random(3);
        while (true) {
          std::vector<std::int64_t> open, sources;
          std::size_t columns = 1 + random() % 4;
          for (const std::int64_t i : all)
            if (cache.length(i) < std::ssize(texts[static_cast<std::size_t>(i)])) open.push_back(i);
          if (open.empty()) break;
          const Tensor ids = zeros({std::ssize(open), static_cast<std::int64_t>(columns)}, Dtype::i64);
          std::vector<std::int64_t> before, kept;
          for (std::size_t b = 0; b < open.size(); ++b) {
            const auto& text = texts[static_cast<std::size_t>(open[b])];
            before.push_back(cache.length(open[b]));
            kept.push_back(std::min(std::ssize(text) - before[b], static_cast<std::int64_t>(columns)));
            std::copy_n(text.begin() + before[b], kept[b], ids.data<std::int64_t>() + b * columns);
            sources.push_back(of[static_cast<std::size_t>(open[b])]);
          }
          const Tensor hidden = model.hidden(ids, cache, open, memory, sources);
          for (std::size_t b = 0; b < open.size(); ++b) {
            rows[static_cast<std::size_t>(open[b])].push_back(
                hidden.select(0, static_cast<std::int64_t>(b)).narrow(0, 0, kept[b]));
            cache.truncate(open[b], before[b] + kept[b]);
          }
        }
        for (std::size_t i = 0; i < texts.size(); ++i) {
          const Tensor whole = logits_of(model, {given.sources[static_cast<std::size_t>(of[i])]}, {texts[i]});
          EXPECT_TRUE(same_bits(model.logits(cat(rows[i])).detach(), whole)) << name_of(dtype) << " text " << i;
          EXPECT_EQ(cache.tokens(static_cast<std::int64_t>(i)), texts[i]);
        }
        cache.reorder({4, 4, 0, 2, 1});
        EXPECT_EQ(cache.tokens(1), texts[4]);
        const Tensor next = model.hidden(zeros({2, 1}, Dtype::i64) + 5, cache, {3, 1}, memory, {1, 3});
        Texts longer = {texts[2], texts[4]};
        for (auto& text : longer) text.push_back(5);
        const Tensor whole = logits_of(model, {given.sources[1], given.sources[3]}, longer);
        const std::int64_t first = std::ssize(longer[0]) - 1, last = whole.size(0) - 1;
        const Tensor said = model.logits(next.reshape({2, model.config.width})).detach();
        EXPECT_TRUE(same_bits(said[0].contiguous(), whole[first].contiguous()));
        EXPECT_TRUE(same_bits(said[1].contiguous(), whole[last].contiguous()));
      }
  });
}

TEST(EncoderDecoders, GradientsAreThoseOfDifferences) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    const EncoderDecoder model = EncoderDecoder::load(given.folder, Dtype::f64);
    const PackedTexts from = packed({given.sources[0], given.sources[1]}), to = packed({{2, 5, 6}, {2, 4}});
    const Tensor targets = tensor<std::int64_t>({5, 6, -100, 4, 7});
    const auto loss = [&] { return model.loss(from.ids, from.ends, to.ids, to.ends, targets); };
    loss().backward();
    const double step = 1e-5;
    for (const auto& [name, parameter] : model.named_parameters()) {
      const NoGrad no_grad;
      ASSERT_TRUE(parameter.grad().defined()) << name;
      const Tensor gradient = parameter.grad().reshape({-1}), flat = parameter.detach().reshape({-1});
      const std::int64_t at = argmax(abs(gradient), 0).to_int_vector()[0];
      const double before = flat[at].item();
      flat[at].fill_(before + step);
      const double above = loss().item();
      flat[at].fill_(before - step);
      const double below = loss().item();
      flat[at].fill_(before);
      EXPECT_NEAR(gradient[at].item(), (above - below) / (2 * step), 1e-7 + 1e-6 * std::abs(gradient[at].item()))
          << name;
    }
  });
}

std::string generation_in(const std::string& folder) { return testing::content_of(folder + "/generation_config.json"); }

/// python/tests/test_encoder_decoders.py keeps the folder and loads it in transformers.
TEST(EncoderDecoders, WhatIsSavedIsLoaded) {
  const char* kept = std::getenv("ATTN_KEPT_FOLDER");
  testing::each_encoder_decoder([&](const GivenPair& given) {
    const EncoderDecoder model = EncoderDecoder::load(given.folder);
    const Folder own;
    const std::string folder = kept != nullptr ? kept : own.path();
    model.save(folder);
    const EncoderDecoder again = EncoderDecoder::load(folder);
    EXPECT_EQ(again.config, model.config);
    EXPECT_EQ(generation_in(folder), generation_in(given.folder));
    EXPECT_TRUE(
        same_bits(logits_of(again, given.sources, given.targets), logits_of(model, given.sources, given.targets)));
  });
}

/// A folder without generation_config.json has its settings in config.json, or those of its class.
TEST(EncoderDecoders, TextsOfASavedFolderEndAsThoseOfTheLoadedOne) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    const Folder folder;
    for (const char* file : {"config.json", "model.safetensors"})
      std::filesystem::copy_file(given.folder + "/" + file, folder.file(file));
    json config = json::parse(testing::content_of(folder.file("config.json")));
    config.update({{"num_beams", 3}, {"max_length", 9}, {"eos_token_id", 5}, {"decoder_start_token_id", 4}});
    folder.write("config.json", config.dump());
    const TranslateOptions before = TranslateOptions::from_folder(folder.path());
    EncoderDecoder::load(folder.path()).save(folder.path());
    const TranslateOptions after = TranslateOptions::from_folder(folder.path());
    EXPECT_EQ(std::tie(after.beams, after.tokens, after.end_tokens, after.start, after.forced_end),
              std::tie(before.beams, before.tokens, before.end_tokens, before.start, before.forced_end));
    EXPECT_EQ(after.beams, 3);
  });
  for (const char* type : {"t5", "bart", "mbart", "marian", "m2m_100", "pegasus"}) {
    EncoderDecoderConfig config = EncoderDecoder::load(golden(type)).config;
    const EncoderDecoder drawn(config);
    const Folder folder;
    drawn.save(folder.path());
    const TranslateOptions options = TranslateOptions::from_folder(folder.path());
    EXPECT_EQ(options.start.has_value(), config.family != EncoderDecoderConfig::Family::mbart);
    EXPECT_EQ(options.end_tokens.size(), 1u);
  }
}

/// What config.json has no field for would be lost in the folder, and other numbers computed from it.
TEST(EncoderDecoders, AConfigThatAFolderCannotSayIsRefused) {
  EncoderDecoderConfig config = EncoderDecoderConfig::nano(13);  // Marian's
  config.scaled_output = true;
  EXPECT_EQ(testing::error_of<ValueError>([&] { const EncoderDecoder model(config); }),
            "EncoderDecoderConfig: scaled_output is true; only T5's last rows are scaled");
  config.family = EncoderDecoderConfig::Family::t5;
  EXPECT_EQ(testing::error_of<ValueError>([&] { const EncoderDecoder model(config); }),
            "EncoderDecoderConfig: scaled_embedding is true; T5's embeddings are not scaled");
}

/// Without dropout the drawn model's rows have a finite loss near log V; the same seed draws the same weights.
TEST(EncoderDecoders, DrawnModelsCanBeTrained) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    EncoderDecoderConfig config = EncoderDecoder::load(given.folder).config;
    config.dropout = 0.1;
    Generator one(5), other(5);
    const EncoderDecoder model(config, Dtype::f32, &one), same(config, Dtype::f32, &other);
    EXPECT_TRUE(model.is_training());
    for (std::size_t i = 0; i < model.parameters().size(); ++i)
      EXPECT_TRUE(same_bits(model.parameters()[i].detach(), same.parameters()[i].detach()));
    const PackedTexts from = packed(given.sources), to = packed(given.targets);
    const auto loss = [&] { return model.loss(from.ids, from.ends, to.ids, to.ends, to.ids); };
    const double first = loss().item(), second = loss().item();
    EXPECT_NE(first, second);  // other elements are dropped
    EXPECT_LT(first, 60);
    model.eval();
    EXPECT_EQ(loss().item(), loss().item());
  });
}

TEST(EncoderDecoders, MistakesOfACallAreSaid) {
  const EncoderDecoder model = EncoderDecoder::load(golden("bart"));
  const auto ids = [](const std::vector<std::int64_t>& list) { return tensor<std::int64_t>(list); };
  const auto error = [&](const Tensor& of, const Tensor& ends) {
    return testing::error_of<Error>([&] { model.encode(of, ends); });
  };
  EXPECT_EQ(error(ids({4, 5}), ids({0, 1})),
            "EncoderDecoder: cu_seqlens of the source must begin with 0 and end with 2, the number of ids");
  EXPECT_EQ(error(ids({4, 5}), ids({0, 1, 1, 2})),
            "EncoderDecoder: source text 1 has no token; cu_seqlens must ascend");
  EXPECT_EQ(error(ids(std::vector<std::int64_t>(41, 5)), ids({0, 41})),
            "EncoderDecoder: source text 0 has 41 tokens; the model reads at most 40");
  EXPECT_EQ(error(zeros({1, 2}, Dtype::i64), ids({0, 2})),
            "EncoderDecoder: the source ids have shape [1, 2]; texts one after another are [total]");
  EXPECT_NE(error(ids({4, 29}), ids({0, 2})).find("29"), std::string::npos);
  const Memory memory = memory_of(model, {{4, 5}, {6}});
  EXPECT_EQ(testing::error_of<ValueError>([&] { model.hidden(ids({2}), ids({0, 1}), memory); }),
            "EncoderDecoder: there are 1 target texts; it must be one for each of the 2 source texts");
  ModelCache cache = model.cache(2, 40);
  const auto cached = [&](const std::vector<std::int64_t>& sequences, const std::vector<std::int64_t>& sources) {
    return testing::error_of<Error>(
        [&] { model.hidden(zeros({std::ssize(sequences), 1}, Dtype::i64), cache, sequences, memory, sources); });
  };
  EXPECT_EQ(cached({0, 1}, {1, 0}),
            "EncoderDecoder: sources descend; rows of one source must stand together, in its order");
  EXPECT_EQ(cached({0, 1}, {0, 2}), "EncoderDecoder: source is 2; the memory has texts 0 to 1");
  EXPECT_EQ(cached({0, 0}, {0, 0}), "EncoderDecoder: sequence 0 is given twice");
  EXPECT_EQ(cached({0, 2}, {0, 0}), "ModelCache: sequence is 2; it must be from 0 to 1");
  EXPECT_EQ(cached({0}, {0, 0}),
            "EncoderDecoder: ids has shape [1, 1]; it must have a row for each of 1 sequences and 2 sources");
  EXPECT_EQ(cache.length(0), 0);
  const EncoderDecoder marian = EncoderDecoder::load(golden("t5_1_1"));
  EXPECT_EQ(testing::error_of<ValueError>([&] { marian.hidden(ids({2}), ids({0, 1}), memory); }),
            "EncoderDecoder: the memory is of a model with 2 layers; this one has 3");
}

}  // namespace
}  // namespace attn
