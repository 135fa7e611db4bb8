// tests/model/translation_test.cc: what encoder-decoders say beside transformers' generate: texts and scores of beam
// search and greedy, sampling, settings from files, mistakes.
#include <attn/translation.h>

#include "model/encoder_decoders.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace attn {
namespace {

using nlohmann::json;
using testing::Folder;
using testing::GivenPair;
using testing::Texts;

std::string golden(const std::string& name) { return testing::golden_path("model/encoder_decoders/" + name); }

/// The settings of a folder's files with those of a call of generate.
TranslateOptions options_of(const std::string& folder, const json& settings) {
  const Folder changed;
  json config = json::parse(testing::content_of(folder + "/generation_config.json"));
  config.update(settings);
  changed.write("generation_config.json", config.dump());
  return TranslateOptions::from_folder(changed.path());
}

/// The sources that generate was called with: all but the third, which holds padding.
Texts sources_of(const GivenPair& given) {
  Texts sources = given.sources;
  sources.erase(sources.begin() + 2);
  return sources;
}

/// How far apart two scores of a text may be: each log-probability by twice the error of a logit.
double apart(const json& record, std::size_t tokens, double penalty) {
  double largest = 0;
  for (const double x : record.at("logits").at("values")) largest = std::max(largest, std::abs(x));
  const double logit = 2 * record.at("logits").at("error").get<double>() + 4 * 1.2e-7 * largest;
  const auto n = static_cast<double>(tokens + 1);
  return 2 * n * logit / std::pow(n, penalty) + 1e-8;
}

TEST(Translation, TextsAndScoresAreThoseOfGenerate) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    const EncoderDecoder model = EncoderDecoder::load(given.folder);
    const Texts sources = sources_of(given);
    for (const json& expected : given.record.at("generated")) {
      SCOPED_TRACE(expected.at("settings").dump());
      const TranslateOptions options = options_of(given.folder, expected.at("settings"));
      const auto texts = translate(model, sources, options);
      ASSERT_EQ(texts.size(), sources.size());
      for (std::size_t s = 0; s < sources.size(); ++s) {
        ASSERT_EQ(texts[s].size(), expected.at("texts")[s].size());
        for (std::size_t n = 0; n < texts[s].size(); ++n) {
          // a text that is no end of a beam is what was there first: generate returns it with the score -1e9
          EXPECT_EQ(texts[s][n].tokens, expected.at("texts")[s][n].get<std::vector<std::int64_t>>())
              << "source " << s << " text " << n;
          if (options.beams > 1) {
            const double score = expected.at("scores")[s][n];
            EXPECT_NEAR(texts[s][n].score, score,
                        apart(given.record, texts[s][n].tokens.size(), options.length_penalty))
                << "source " << s << " text " << n;
          }
        }
      }
    }
  });
}

/// Each source alone, in small batches, twice: the same tokens, and scores to the bit.
TEST(Translation, TextsDoNotDependOnTheOtherSources) {
  testing::each_encoder_decoder([](const GivenPair& given) {
    const EncoderDecoder model = EncoderDecoder::load(given.folder, Dtype::bf16);
    Texts sources = sources_of(given);
    sources.insert(sources.end(), given.sources.rbegin(), given.sources.rend());
    for (const json& settings :
         {json{{"num_beams", 3}, {"num_return_sequences", 3}, {"max_length", 14}}, json{{"max_length", 14}},
          json{{"do_sample", true}, {"num_return_sequences", 3}, {"max_length", 14}}}) {
      TranslateOptions options = options_of(given.folder, settings);
      options.end_tokens = {2, 8, 15, 20};
      const auto together = translate(model, sources, options);
      options.batch_tokens = 20;
      const auto batches = translate(model, sources, options);
      for (std::size_t s = 0; s < sources.size(); ++s) {
        const auto alone = translate(model, {sources[s]}, options);
        for (std::size_t n = 0; n < alone[0].size(); ++n)
          for (const auto* other : {&together[s][n], &batches[s][n]}) {
            EXPECT_EQ(other->tokens, alone[0][n].tokens);
            EXPECT_EQ(other->score, alone[0][n].score);
            EXPECT_EQ(other->finish, alone[0][n].finish);
          }
      }
    }
  });
}

/// The score of a text is the mean of log p that the training pass gives its tokens.
TEST(Translation, AScoreIsTheMeanOfLogProbabilities) {
  const EncoderDecoder model = EncoderDecoder::load(golden("marian"));
  const std::vector<std::int64_t> source = {5, 9, 4, 17};
  TranslateOptions options = TranslateOptions::from_folder(golden("marian"));
  options.forced_end.clear();
  for (const std::int64_t beams : {1, 4}) {
    options.beams = options.returned = beams;
    const std::vector<Translated> texts = translate(model, {source}, options)[0];
    for (const Translated& text : texts) {
      std::vector<std::int64_t> said = text.tokens, targets = text.tokens;
      said.insert(said.begin(), *options.start);
      if (text.finish == Finish::end) targets.push_back(options.end_tokens[0]);
      else said.pop_back();
      const auto from = testing::packed({source}), to = testing::packed({said});
      const Tensor log_p = model.log_probabilities(from.ids, from.ends, to.ids, to.ends, tensor<std::int64_t>(targets));
      EXPECT_NEAR(text.score, mean(log_p.detach()).item(), 1e-6);
    }
  }
}

TEST(Translation, SamplesAreDrawnWithSeedsOfTheirOwn) {
  const EncoderDecoder model = EncoderDecoder::load(golden("bart"));
  TranslateOptions options = TranslateOptions::from_folder(golden("bart"));
  options.sample.temperature = 1;
  options.returned = 4;
  options.seed = 7;
  const auto texts = translate(model, {{5, 9, 4}}, options)[0];
  EXPECT_NE(texts[0].tokens, texts[1].tokens);
  options.returned = 1;
  for (std::size_t n = 0; n < texts.size(); ++n) {
    options.seed = 7 + n;
    EXPECT_EQ(translate(model, {{5, 9, 4}}, options)[0][0].tokens, texts[n].tokens);
  }
}

/// Without generation_config.json the settings are those of config.json, and of the class of the model.
TEST(Translation, SettingsComeFromTheFiles) {
  const Folder folder;
  folder.write("config.json", testing::content_of(golden("bart") + "/config.json"));
  TranslateOptions options = TranslateOptions::from_folder(folder.path());
  EXPECT_EQ(options.start, 2);
  EXPECT_EQ(options.end_tokens, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(options.forced_end, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(options.tokens, 20);
  EXPECT_EQ(options.sample.temperature, 0);
  folder.write("generation_config.json", R"({"bos_token_id": 3, "eos_token_id": [4, 5], "num_beams": 6,
    "max_length": 142, "min_length": 56, "length_penalty": 2.0, "early_stopping": "never", "no_repeat_ngram_size": 3,
    "bad_words_ids": [[7], [8, 9]], "forced_bos_token_id": 0, "renormalize_logits": true, "temperature": 0.5})");
  options = TranslateOptions::from_folder(folder.path());
  EXPECT_EQ(options.start, 3);
  EXPECT_EQ(options.end_tokens, (std::vector<std::int64_t>{4, 5}));
  EXPECT_TRUE(options.forced_end.empty());
  EXPECT_EQ(options.forced_begin, 0);
  EXPECT_EQ(options.beams, 6);
  EXPECT_EQ(options.tokens, 141);
  EXPECT_EQ(options.min_tokens, 55);
  EXPECT_EQ(options.length_penalty, 2);
  EXPECT_EQ(options.early_stopping, EarlyStopping::never);
  EXPECT_EQ(options.no_repeat_ngram, 3);
  EXPECT_EQ(options.bad_words, (Texts{{7}, {8, 9}}));
  EXPECT_TRUE(options.renormalize);
  EXPECT_EQ(options.sample.temperature, 0);
  const auto said = [&](const std::string& text) {
    folder.write("generation_config.json", text);
    std::string error = testing::error_of<Error>([&] { TranslateOptions::from_folder(folder.path()); });
    return error.substr(error.find("generation_config.json"));
  };
  EXPECT_EQ(said(R"({"early_stopping": 3})"),
            "generation_config.json: early_stopping is 3; it must be true, false or \"never\"");
  EXPECT_EQ(said(R"({"bad_words_ids": [5]})"),
            "generation_config.json: bad_words_ids is [5]; it must be a list of lists of ids");
  EXPECT_EQ(said(R"({"num_beam_groups": 2})"), "generation_config.json: num_beam_groups is 2; this is not supported");
  EXPECT_EQ(said(R"({"forced_bos_token_id": [1, 2]})"),
            "generation_config.json: forced_bos_token_id is [1,2]; it must be one id");
}

TEST(Translation, MistakesOfACallAreSaid) {
  const EncoderDecoder model = EncoderDecoder::load(golden("bart"));
  const TranslateOptions plain = TranslateOptions::from_folder(golden("bart"));
  const auto said = [&](const std::function<void(TranslateOptions&)>& change, const Texts& sources = {{4, 5}}) {
    TranslateOptions options = plain;
    change(options);
    return testing::error_of<ValueError>([&] { translate(model, sources, options); });
  };
  const auto nothing = [](TranslateOptions&) {};
  EXPECT_EQ(said(nothing, {{4}, {}}), "translate: source 1 has no token");
  EXPECT_EQ(said(nothing, {{29}}), "translate: source 0 has the id 29; the model reads ids from 0 to 28");
  EXPECT_EQ(said([](auto& o) { o.beams = 0; }), "translate: beams is 0; it must be at least 1");
  EXPECT_EQ(said([](auto& o) { o.tokens = 0; }), "translate: tokens is 0; it must be at least 1");
  EXPECT_EQ(said([](auto& o) { o.beams = 3, o.returned = 4; }),
            "translate: returned is 4; it must be at most beams, 3");
  EXPECT_EQ(said([](auto& o) { o.returned = 2; }),
            "translate: returned is 2; one beam without a temperature gives one text");
  EXPECT_EQ(said([](auto& o) { o.beams = 2, o.sample.temperature = 1; }),
            "translate: beams and a temperature do not go together; one beam samples");
  EXPECT_EQ(said([](auto& o) { o.start.reset(); }),
            "translate: start is not set; generation_config.json or config.json names it (decoder_start_token_id)");
  EXPECT_EQ(said([](auto& o) { o.start = 29; }), "translate: start is 29; the model says ids from 0 to 28");
  EXPECT_EQ(said([](auto& o) { o.forced_begin = -1; }),
            "translate: forced_begin is -1; the model says ids from 0 to 28");
  EXPECT_TRUE(translate(model, {}, plain).empty());
}

}  // namespace
}  // namespace attn
