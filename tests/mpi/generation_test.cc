// tests/mpi/generation_test.cc: a model that ranks share has the bits of one process, a part of the weights at each
// rank, and sends the messages and bytes that docs/ranks.md counts.
#include "mpi/counted.h"
#include "mpi/saved_model.h"

#include "support/golden.h"

#include <attn/autograd.h>
#include <attn/explain_model.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include "model/columns.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace attn::testing {
namespace {

/// Six query heads, so that five ranks have uneven numbers of them.
ModelConfig config_of(std::int64_t kv_heads) {
  ModelConfig c{.vocab_size = 61, .context = 16, .layers = 2, .heads = 6, .width = 30, .mlp_width = 70};
  if (kv_heads == 0) return c;  // as GPT-2: biases, learned positions, a tied head
  c.kv_heads = kv_heads, c.head_dim = 8, c.norm = ModelConfig::Norm::rms_norm, c.tied_head = false;
  c.positions = ModelConfig::Positions::rotary, c.activation = ModelConfig::Activation::swiglu;
  c.attention_bias = kv_heads == 2, c.attention_out_bias = false, c.mlp_bias = false, c.qk_norm = kv_heads == 3;
  return c;
}

void save(const std::string& folder, const ModelConfig& config, Dtype dtype, std::uint64_t seed = 3) {
  Generator generator(seed);
  const LanguageModel model(config, dtype, &generator);
  const NoGrad guard;
  for (Tensor x : model.parameters())  // biases and norms too
    x.copy_((randn(x.sizes(), generator) * 0.3).to(dtype));
  model.save(folder);
}

struct Texts {
  std::vector<Generated> texts;
  Tensor logits;
  friend bool operator==(const Texts& a, const Texts& b) {
    return bits_equal(a.logits, b.logits) && std::equal(a.texts.begin(), a.texts.end(), b.texts.begin(), b.texts.end(),
                                                        [](const Generated& x, const Generated& y) {
                                                          return x.tokens == y.tokens &&
                                                                 x.log_probabilities == y.log_probabilities;
                                                        });
  }
};

/// What users ask of a model: greedy, sampled, more than the context holds, several texts of a prompt, and no cache.
std::vector<Texts> said_by(const LanguageModel& model) {
  const std::vector<std::vector<std::int64_t>> prompts{{7, 3, 60, 0, 21}, {9}, {30, 31, 32, 1, 2, 3, 4, 5, 6, 30, 59}};
  std::vector<Texts> all;
  for (const double temperature : {0.0, 1.0})
    for (const bool cache : {true, false}) {
      GenerateOptions o{.tokens = cache ? 12 : 2, .sample = {.temperature = temperature, .top_k = 20}, .seed = 4};
      o.cache = cache, o.log_probabilities = true, o.samples = temperature > 0 ? 2 : 1;
      all.push_back({generate(model, prompts, o), model(tensor<std::int64_t>({1, 60, 2, 30, 31}).unsqueeze(0))});
    }
  return all;
}

TEST(SharedModel, HasTheBitsOfOneProcess) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const bool full = std::getenv("ATTN_TEST_FULL") != nullptr;  // more ranks than cores wait for each other
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f64})
    for (const std::int64_t kv_heads : {0, 1, 2, 3, 6}) {
      if (!full && kv_heads != (dtype == Dtype::f32 ? 2 : 0) && (dtype != Dtype::f32 || kv_heads != 1)) continue;
      const SharedFolder folder(world);
      if (world.rank() == 0) save(folder.path(), config_of(kv_heads), dtype);
      world.agree();
      const std::vector<Texts> alone = said_by(LanguageModel::load(folder.path()));
      on_each_number([&](const Ranks& ranks) {
        const LanguageModel model = LanguageModel::load(folder.path(), std::nullopt, ranks);
        EXPECT_EQ(model.is_shared(), ranks.size() > 1);
        EXPECT_TRUE(said_by(model) == alone) << kv_heads << " key heads, " << name_of(dtype);
      });
    }
}

TEST(SharedModel, EachRankHasAPartOfTheWeightsAndOfTheCache) {
  const ModelConfig config = config_of(6);
  const std::int64_t vectors = config.width * (2 * config.layers + 1);  // every rank has the norms
  const auto count = [&](const Ranks& ranks, const LanguageModel& model) {
    std::int64_t mine = 0;
    for (const Tensor& x : model.parameters()) mine += x.numel();
    EXPECT_EQ(sum_over(ranks, mine), config.parameters() + (ranks.size() - 1) * vectors);
    EXPECT_LE(mine, config.parameters() / ranks.size() * 3 / 2 + vectors)
        << "six heads on five ranks are 2, 1, 1, 1, 1";
  };
  on_each_number_with_model([&](const std::string& folder) { save(folder, config, Dtype::f32); }, count);
}

/// Ranks without messages: what each would have.
class Dealt final : public SharedColumns {
 public:
  Dealt(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void begin(const std::vector<NamedTensor>&, const std::string&) const override {}
  Tensor pass(std::int64_t, const std::function<Tensor()>& work) const override { return work(); }
  Tensor join(const Tensor& mine, const std::vector<std::int64_t>&) const override { return mine; }
  Tensor attend(const SpanAttention& call) const override { return call.heads.q; }
  bool by_spans(const ModelConfig&, const ModelCacheOptions&) const override { return false; }
  std::int64_t own_keys(std::int64_t length) const override { return length; }
  void check_truncation(std::int64_t, std::int64_t) const override {}

 private:
  int rank_, size_;
};

TEST(SharedModel, EveryHeadHasOneRankAndItsKeys) {
  for (const std::int64_t group : {1, 2, 3, 8})
    for (const std::int64_t key_heads : {1, 2, 3, 4, 7})
      for (int size = 1; size <= std::min<std::int64_t>(group * key_heads, 12); ++size) {
        ModelConfig c{.vocab_size = 100, .heads = group * key_heads, .kv_heads = key_heads, .width = 100};
        c.head_dim = 2;
        std::int64_t next = 0;
        for (int rank = 0; rank < size; ++rank) {
          const ColumnShare share(c, std::make_shared<Dealt>(rank, size));
          const Span heads = share.own(Columns::heads), keys = share.own(Columns::key_heads);
          EXPECT_EQ(heads.begin, next);
          EXPECT_GT(heads.size(), 0);
          EXPECT_EQ(heads.begin / group, keys.begin);
          EXPECT_EQ((heads.end - 1) / group, keys.end - 1);
          EXPECT_EQ(heads.size() % keys.size(), 0);
          next = heads.end;
        }
        EXPECT_EQ(next, c.heads) << size << " ranks, " << key_heads << " key heads, groups of " << group;
      }
}

TEST(SharedModel, WhatDiffersAtOneRankIsAnErrorAtAll) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder one(world), two(world), three(world);
  if (world.rank() == 0) {
    save(one.path(), config_of(2), Dtype::f32);
    save(two.path(), config_of(2), Dtype::f32, /*seed=*/8);
    ModelConfig wider = config_of(2);
    wider.norm_eps = 1e-6;
    save(three.path(), wider, Dtype::f32);
  }
  world.agree();
  on_each_number(
      [&](const Ranks& ranks) {
        const int last = ranks.size() - 1;
        const std::string who = "rank " + std::to_string(last) + ": ";
        const auto said = [&](const std::string& other) {
          return rank_error(
              ranks, [&] { LanguageModel::load(ranks.rank() == last ? other : one.path(), std::nullopt, ranks); });
        };
        EXPECT_TRUE(said(two.path()).starts_with(who + "LanguageModel::load: the digest of the weights is "));
        EXPECT_TRUE(said(three.path()).starts_with(who + "LanguageModel::load: the digest of the architecture is "));
        EXPECT_TRUE(said("/no/such/folder").starts_with(who + "LanguageModel::load: /no/such/folder/config.json: "));
        const LanguageModel model = LanguageModel::load(one.path(), std::nullopt, ranks);
        EXPECT_TRUE(rank_error(ranks, [&] {
                      model(tensor<std::int64_t>({1, ranks.rank() == last ? 2 : 3}).unsqueeze(0));
                    }).starts_with(who + "LanguageModel: the call is ids i64 [1, 2] "));
        // what is wrong at one rank: it must not leave the others waiting
        const Tensor good = tensor<std::int64_t>({1, 2}).unsqueeze(0);
        const auto differs = [&](const std::function<void(bool wrong)>& call) {
          const std::string error = rank_error(ranks, [&] { call(ranks.rank() == last); });
          EXPECT_TRUE(error.starts_with(who + "LanguageModel: the call is ids ")) << error;
        };
        for (const Tensor& bad : {Tensor(), zeros({1, 17}, Dtype::i64), tensor<std::int64_t>({1, 2}), zeros({1, 2}),
                                  tensor<std::int64_t>({1, 61}).unsqueeze(0)}) {
          differs([&](bool wrong) { model.hidden(wrong ? bad : good); });
          differs([&](bool wrong) {
            ModelCache cache(model, {});
            model.hidden(wrong ? bad : good, cache);
          });
        }
        differs([&](bool wrong) {
          ModelCache cache(model, {.sequences = 2});
          model.hidden(good, cache, {wrong ? 1 : 0});
        });
        differs([&](bool wrong) {
          ModelCache cache(model, {});
          model.hidden(good, cache, {wrong ? 7 : 0});
        });
        differs([&](bool wrong) {
          ModelCache cache(model, {.storage = wrong ? KvStorage::int8 : KvStorage::same});
          model.hidden(good, cache);
        });
        differs([&](bool wrong) {
          ModelCache cache(model, {.window = wrong ? 3 : 0});
          model.hidden(good, cache);
        });
        ModelCache cache(model, {});
        model.hidden(good, cache);
        if (ranks.rank() == last) cache.truncate(0, 1);
        differs([&](bool) { model.hidden(good, cache); });
        const Tensor packed = tensor<std::int64_t>({1, 2, 3});
        for (const std::vector<std::int64_t>& bad : {std::vector<std::int64_t>{0, 1, 3}, {0, 2}, {1, 3}})
          differs([&](bool wrong) {
            model.hidden_packed(packed, tensor(wrong ? bad : std::vector<std::int64_t>{0, 2, 3}));
          });
        differs([&](bool wrong) { model.hidden_packed(wrong ? good : packed, tensor<std::int64_t>({0, 2, 3})); });
        // the same at every rank, before any waits
        EXPECT_THROW(model(tensor<std::int64_t>({1, 61}).unsqueeze(0)), ValueError);
        EXPECT_THROW(model.save(one.path()), ValueError);
        EXPECT_THROW(model.decoded(), ValueError);
        EXPECT_THROW(model.heads(good, 0), ValueError);
        EXPECT_THROW(explain_model(model, Tokenizer::train("ab", Tokenizer::Kind::characters), "ab"), ValueError);
        model.train();
        EXPECT_THROW(model(tensor<std::int64_t>({1, 2}).unsqueeze(0)), ValueError);
      },
      2);
}

TEST(SharedModel, SendsWhatTheDocumentsCount) {
  const ModelConfig c = config_of(3);
  on_each_number_with_model(
      [&](const std::string& folder) { save(folder, c, Dtype::f32); },
      [&](const Ranks& ranks, const LanguageModel& model) {
        ModelCache cache(model, {});
        for (const std::int64_t tokens : {5, 1}) {
          counted = {};
          const std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens), 17);  // all have one owner
          const Tensor hidden = model.hidden(tensor<std::int64_t>(ids).unsqueeze(0), cache);
          model.logits(hidden);
          const Counted mine = counted;
          const std::int64_t bytes = sum_over(ranks, mine.bytes), messages = sum_over(ranks, mine.messages);
          const std::string text =
              "ids i64 [1, 5] 0123456789abcdef, a cache of 2 layers, dtype f32, storage 0, window 0, "
              "sinks 0, sequences 0:0";
          const std::int64_t others = ranks.size() - 1, digest = std::ssize(text);
          EXPECT_EQ(bytes, others * (4 * tokens *
                                         (c.layers * (c.heads * c.dim_of_head() + 2 * c.width + c.dim_of_mlp()) +
                                          c.width + c.vocab_size) +
                                     ranks.size() * digest));
          EXPECT_EQ(messages, others * (ranks.size() * (4 * c.layers + 1 + 1) + 1));
          EXPECT_EQ(mine.gathers, 1) << "the lengths of the digests";
        }
      },
      2);
}

}  // namespace
}  // namespace attn::testing
