// tests/model/checkpoints_test.cc: checkpoints of transformers: logits, greedy texts, the same bits with a cache,
// saved again, and as a GGUF file. The folders are the golden ones, or those that ATTN_CHECKPOINTS names.
#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/gguf/write.h"
#include "model/tiny_models.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <sstream>

namespace attn {
namespace {

using nlohmann::json;
using testing::Folder;

struct Given {
  std::string folder;
  json record;
  LanguageModel model;
  Tensor ids;
};

/// Calls visit for each folder.
template <typename F>
void each_checkpoint(F&& visit) {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("ATTN_CHECKPOINTS")) {
    std::istringstream list(given);
    for (std::string folder; std::getline(list, folder, ':');) folders.push_back(folder);
  } else {
    for (const char* name : {"gemma2", "gemma3", "phi3", "smollm3"}) folders.push_back(testing::golden_folder(name));
  }
  for (const std::string& folder : folders) {
    SCOPED_TRACE(folder);
    const json record = json::parse(testing::content_of(folder + "/logits.json"));
    std::vector<std::int64_t> ids;
    for (const json& row : record.at("ids")) ids.insert(ids.end(), row.begin(), row.end());
    visit(Given{folder, record, LanguageModel::load(folder),
                tensor<std::int64_t>(ids).reshape({static_cast<std::int64_t>(record.at("ids").size()), -1})});
  }
}

TEST(Checkpoints, LogitsAreThoseOfTransformers) {
  each_checkpoint([](const Given& given) {
    EXPECT_TRUE(testing::within_error_rule(given.model(given.ids).detach(),
                                           testing::golden_tensor(given.record.at("logits")),
                                           given.record.at("torch_error_vs_float64").get<double>()));
    std::int64_t count = 0;
    for (const Tensor& weight : given.model.parameters()) count += weight.numel();
    EXPECT_EQ(given.model.config.parameters(), count);
  });
}

/// All prompts in one batch, with a cache and without, and each alone.
TEST(Checkpoints, GreedyTextsAreThoseOfTransformers) {
  each_checkpoint([](const Given& given) {
    const auto prompts = given.record.at("prompts").get<std::vector<std::vector<std::int64_t>>>();
    const json& expected = given.record.at("greedy");
    GenerateOptions options{.tokens = static_cast<std::int64_t>(expected[0].size()), .sample = {.temperature = 0}};
    options.end_tokens = std::vector<std::int64_t>();
    for (const bool cache : {true, false}) {
      options.cache = cache;
      const auto texts = generate(given.model, prompts, options);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        EXPECT_EQ(json(texts[i].tokens), expected[i]) << "prompt " << i << ", cache " << cache;
        EXPECT_EQ(generate(given.model, {prompts[i]}, options)[0].tokens, texts[i].tokens);
      }
    }
  });
}

/// A cache gives the bits of the whole text, as long as both have the same frequencies; else it is refused.
TEST(Checkpoints, ACacheChangesNoBit) {
  each_checkpoint([](const Given& given) {
    const std::int64_t length = given.ids.size(1);
    const ModelConfig& config = given.model.config;
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const LanguageModel model = LanguageModel::load(given.folder, dtype);
      const Tensor whole = model.hidden(given.ids).detach();
      for (const std::int64_t first : {std::int64_t{5}, std::int64_t{15}, length - 1}) {
        ModelCache cache(config, given.ids.size(0), dtype);
        model.hidden(given.ids.narrow(1, 0, first), cache);
        const Tensor rest = given.ids.narrow(1, first, length - first);
        if (!config.same_frequencies(first, length)) {
          EXPECT_THROW(model.hidden(rest, cache), ValueError);
          EXPECT_EQ(cache.length(0), first);
          for (std::int64_t b = 0; b < given.ids.size(0); ++b) cache.truncate(b, 0);
          EXPECT_TRUE(same_bits(model.hidden(given.ids, cache), whole));
          continue;
        }
        EXPECT_TRUE(same_bits(model.hidden(rest, cache), whole.narrow(1, first, length - first).contiguous()))
            << first << " " << name_of(dtype);
      }
    }
  });
}

/// Rows of a batch whose texts have other frequencies.
TEST(Checkpoints, ARowHasTheFrequenciesOfItsOwnText) {
  each_checkpoint([](const Given& given) {
    ModelCache cache(given.model.config, 2);
    const auto part = [&](std::int64_t row, std::int64_t from, std::int64_t to) {
      return given.ids.narrow(0, row, 1).narrow(1, from, to - from);
    };
    const std::int64_t before = 18;
    given.model.hidden(part(0, 0, before), cache, {0});
    if (!given.model.config.same_frequencies(before, before + 2)) return;
    const Tensor y = given.model.hidden(cat({part(0, before, before + 2), part(1, 0, 2)}), cache, {0, 1});
    EXPECT_TRUE(same_bits(y.narrow(0, 0, 1),
                          given.model.hidden(part(0, 0, before + 2)).detach().narrow(1, before, 2).contiguous()));
    EXPECT_TRUE(same_bits(y.narrow(0, 1, 1), given.model.hidden(part(1, 0, 2)).detach()));
  });
}

TEST(Checkpoints, SavedAgainAreTheSame) {
  each_checkpoint([](const Given& given) {
    const Folder folder;
    given.model.save(folder.path());
    const LanguageModel again = LanguageModel::load(folder.path());
    EXPECT_EQ(again.config.to_json(), given.model.config.to_json());
    EXPECT_TRUE(same_bits(again(given.ids).detach(), given.model(given.ids).detach()));
    const auto said = json::parse(testing::content_of(folder / "config.json")),
               theirs = json::parse(testing::content_of(given.folder + "/config.json"));
    for (const char* field : {"layer_types", "no_rope_layers", "query_pre_attn_scalar", "attn_logit_softcapping",
                              "final_logit_softcapping", "max_position_embeddings"})
      if (said.contains(field) && theirs.at("model_type") == said.at("model_type") && theirs.contains(field)) {
        EXPECT_EQ(said.at(field), theirs.at(field)) << field;
      }
  });
}

TEST(Checkpoints, GradientsAreThoseOfDifferences) {
  each_checkpoint([](const Given& given) {
    const LanguageModel model = LanguageModel::load(given.folder, Dtype::f64);
    const Tensor in = given.ids.narrow(1, 0, 6), targets = given.ids.narrow(1, 1, 6);
    const auto loss = [&](const std::vector<Tensor>&) { return model.loss(in, targets); };
    EXPECT_EQ(check_gradients(loss, model.parameters()), "");
  });
}

/// As a GGUF file, if one can say it; weights of norms that lose a bit when 1 is added are allowed for.
TEST(Checkpoints, AGgufFileIsTheSameModel) {
  each_checkpoint([](const Given& given) {
    const Folder folder;
    try {
      gguf::write(folder / "m.gguf", given.model, nullptr, "F32");
    } catch (const ValueError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("convert: the model ")) << error.what();
      return;
    }
    const LanguageModel again = LanguageModel::load(folder / "m.gguf").decoded();
    ModelConfig same = given.model.config;
    same.dropout = 0;
    json said = json::parse(again.config.to_json()), meant = json::parse(same.to_json());
    const json::json_pointer attention("/rope_parameters/attention_factor");
    if (meant.contains(attention) && said.contains(attention)) {  // the file has a quotient in f32
      const auto factor = meant.at(attention).get<double>();
      EXPECT_NEAR(said.at(attention).get<double>(), factor, factor * 0x1p-23);
      said[attention] = factor;
    }
    EXPECT_EQ(said, meant);
    const nn::StateDict ours = again.state_dict(), theirs = given.model.state_dict();
    const std::map<std::string, Tensor> expected(theirs.begin(), theirs.end());
    for (const auto& [name, weight] : ours) {
      const bool added =
          given.model.config.norm == ModelConfig::Norm::rms_norm_plus_one && name.find("norm") != std::string::npos;
      EXPECT_TRUE(testing::within(weight, expected.at(name).detach(), added ? 0x1p-23 : 0)) << name;
    }
    EXPECT_TRUE(testing::within_error_rule(again(given.ids).detach(), testing::golden_tensor(given.record.at("logits")),
                                           given.record.at("torch_error_vs_float64").get<double>()));
  });
}

}  // namespace
}  // namespace attn
