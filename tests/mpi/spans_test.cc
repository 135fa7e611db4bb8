// tests/mpi/spans_test.cc: a cache that ranks share by spans has the bits of one process and 1/R of its memory at each
// rank, also where there are more ranks than key heads.
#include "mpi/counted.h"
#include "mpi/saved_model.h"

#include "support/golden.h"
#include "support/sha256.h"

#include <attn/autograd.h>
#include <attn/generate.h>
#include <attn/ops.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace attn::testing {
namespace {

/// Six query heads; tokens see 900 tokens and scores are capped if `sliding`.
ModelConfig config_of(std::int64_t kv_heads, bool sliding = false) {
  ModelConfig c{.vocab_size = 61, .context = 7000, .layers = 2, .heads = 6, .width = 30, .mlp_width = 40};
  c.kv_heads = kv_heads, c.head_dim = 8, c.norm = ModelConfig::Norm::rms_norm, c.tied_head = false;
  c.positions = ModelConfig::Positions::rotary, c.activation = ModelConfig::Activation::swiglu;
  c.attention_bias = false, c.attention_out_bias = false, c.mlp_bias = false;
  if (sliding) c.sliding_window = 900, c.attention_softcap = 20;
  return c;
}

void save(const std::string& folder, const ModelConfig& config, Dtype dtype) {
  Generator generator(3);
  const LanguageModel model(config, dtype, &generator);
  const NoGrad guard;
  for (Tensor x : model.parameters()) x.copy_((randn(x.sizes(), generator) * 0.4).to(dtype));
  model.save(folder);
}

Tensor ids(std::int64_t rows, std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 draws(seed);
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < rows * count; ++i) all.push_back(static_cast<std::int64_t>(draws() % 61));
  return tensor<std::int64_t>(all, {rows, count});
}

/// What hidden() gives for texts that begin, grow, shrink, become copies and grow together, across the ends of spans.
std::vector<Tensor> computed(const LanguageModel& model, const ModelCacheOptions& options) {
  const NoGrad guard;
  model.eval();
  ModelCache cache(model, options);
  std::vector<Tensor> all;
  const auto go_on = [&](std::int64_t count, const std::vector<std::int64_t>& sequences) {
    const Tensor hidden = model.hidden(ids(std::ssize(sequences), count, all.size() + 1), cache, sequences);
    all.push_back(hidden.clone());
    all.push_back(model.logits(hidden.narrow(1, count - 1, 1)).clone());
  };
  for (const std::int64_t count : {5, 1017, 1, 1, 1, 700, 1400, 1}) go_on(count, {0});  // 1023, 1024, 1025; 3126
  go_on(2040, {1});
  for (int n = 0; n < 9; ++n) go_on(n == 3 ? 8 : 1, {0, 1});  // the second passes 2,048
  cache.truncate(0, 2050), cache.truncate(1, 700);
  go_on(3, {1, 0});
  cache.reorder({1, 1, 0});
  go_on(2, {0, 1, 2});
  go_on(340, {1});
  go_on(1, {2, 0});
  cache.truncate(2, 0);
  go_on(20, {2});
  return all;
}

struct SpansCase {
  Dtype dtype;
  std::int64_t kv_heads;
  KvStorage storage;
  std::int64_t page_rows;
  bool sliding;
};

void expect_bits(const SpansCase& c, std::uint64_t number) {
  SCOPED_TRACE(std::string(name_of(c.dtype)) + ", " + std::to_string(c.kv_heads) + " key heads" +
               (c.storage == KvStorage::int8 ? ", int8" : "") + ", pages of " + std::to_string(c.page_rows) +
               (c.sliding ? ", sliding" : "") + ", case " + std::to_string(number));
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  if (world.rank() == 0) save(folder.path(), config_of(c.kv_heads, c.sliding), c.dtype);
  world.agree();
  const ModelCacheOptions options{.sequences = 3, .dtype = c.dtype, .storage = c.storage, .page_rows = c.page_rows};
  std::vector<Tensor> expected;
  if (world.rank() == 0) expected = computed(LanguageModel::load(folder.path()), options);
  on_each_number(
      [&](const Ranks& ranks) {
        const LanguageModel model = LanguageModel::load(folder.path(), std::nullopt, ranks);
        ModelCacheOptions by_spans = options;
        by_spans.sharing = KvSharing::spans;
        const std::vector<Tensor> given = computed(model, by_spans);
        std::string all;
        for (const Tensor& x : given)
          all.append(static_cast<const char*>(x.data()), static_cast<std::size_t>(x.numel()) * size_of(x.dtype()));
        const std::string digest = sha256(all.data(), all.size());
        EXPECT_EQ(digest, ranks.from_first(digest)) << "rank " << ranks.rank();
        if (ranks.rank() != 0) return;
        ASSERT_EQ(given.size(), expected.size());
        for (std::size_t n = 0; n < given.size(); ++n) ASSERT_TRUE(bits_equal(given[n], expected[n])) << "result " << n;
      },
      2);
}

TEST(Spans, HaveTheBitsOfOneProcess) {
  const bool all = std::getenv("ATTN_TEST_FULL") != nullptr;
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  std::vector<SpansCase> cases;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16, Dtype::f64})
    for (const std::int64_t kv_heads : {1, 2, 3, 6})
      for (const KvStorage storage : {KvStorage::same, KvStorage::int8})
        for (const std::int64_t page_rows : {0, 64})
          for (const bool sliding : {false, true}) cases.push_back({dtype, kv_heads, storage, page_rows, sliding});
  std::vector<std::uint64_t> chosen;
  std::mt19937_64 draws(all ? 0 : sample_seed(world));
  // without ATTN_TEST_FULL one of each dtype
  for (std::uint64_t n = 0; n < cases.size(); ++n)
    if (all) chosen.push_back(n);
  for (std::uint64_t d = 0; d < 4 && !all; ++d) chosen.push_back(d * cases.size() / 4 + draws() % (cases.size() / 4));
  for (const std::uint64_t n : chosen) expect_bits(cases[n], n);
  if (world.rank() == 0) std::printf("%zu of %zu cases on 2 to %d ranks\n", chosen.size(), cases.size(), world.size());
}

TEST(Spans, TextsAreThoseOfOneProcess) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  if (world.rank() == 0) save(folder.path(), config_of(1), Dtype::f32);
  world.agree();
  std::vector<std::vector<std::int64_t>> prompts;
  for (const std::int64_t count : {1021, 4, 2300}) prompts.push_back(ids(1, count, 77).to_int_vector());
  const auto said = [&](const LanguageModel& model, double temperature) {
    // the cache is the generation's own: by spans if there are more ranks than key heads
    GenerateOptions o{.tokens = 7, .sample = {.temperature = temperature}, .seed = 4};
    o.samples = temperature > 0 ? 2 : 1, o.log_probabilities = true;
    return generate(model, prompts, o);
  };
  const LanguageModel alone = LanguageModel::load(folder.path());
  for (const double temperature : {0.0, 1.0}) {
    const std::vector<Generated> expected = said(alone, temperature);
    on_each_number(
        [&](const Ranks& ranks) {
          const LanguageModel model = LanguageModel::load(folder.path(), std::nullopt, ranks);
          const std::vector<Generated> given = said(model, temperature);
          ASSERT_EQ(given.size(), expected.size());
          for (std::size_t n = 0; n < given.size(); ++n) {
            EXPECT_EQ(given[n].tokens, expected[n].tokens);
            EXPECT_EQ(given[n].log_probabilities, expected[n].log_probabilities);
          }
        },
        2);
  }
}

TEST(Spans, EachRankHasItsShareOfTheMemory) {
  const ModelConfig config = config_of(1);
  constexpr std::int64_t tokens = 6144;  // six spans
  const std::int64_t row = config.layers * 2 * 8 * 4;
  on_each_number_with_model(
      [&](const std::string& folder) { save(folder, config, Dtype::f32); },
      [&](const Ranks& ranks, const LanguageModel& model) {
        std::int64_t held[2], bytes[2];
        for (const KvSharing sharing : {KvSharing::heads, KvSharing::spans}) {
          ModelCache cache(model, {.page_rows = 64, .sharing = sharing});
          for (std::int64_t at = 0; at < tokens; at += 512) model.hidden(ids(1, 512, 5), cache);
          held[sharing == KvSharing::spans] = cache.held(0), bytes[sharing == KvSharing::spans] = cache.bytes();
          EXPECT_EQ(cache.length(0), tokens);
        }
        EXPECT_EQ(held[0], tokens) << "a single key head is at every rank";
        EXPECT_EQ(sum_over(ranks, held[1]), tokens);
        EXPECT_LE(held[1], (6 + ranks.size() - 1) / ranks.size() * 1024);
        // pages for the whole context of 7,000 tokens, and one of zeros
        EXPECT_EQ(bytes[0], (7000 + 63) / 64 * 64 * row + 64 * row);
        const std::int64_t most = (7 + ranks.size() - 1) / ranks.size() * 1024;
        EXPECT_LE(bytes[1], most * row + 64 * row);
        for (int r = 0; r < ranks.size(); ++r) {
          const std::string each = ranks.gather(std::to_string(bytes[1]))[static_cast<std::size_t>(r)];
          if (ranks.rank() == 0)
            std::printf("%d ranks: rank %d has %s bytes of cache\n", ranks.size(), r, each.c_str());
        }
      });
}

TEST(Spans, AreChosenByThemselvesWhereTheySaveMemory) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder one(world), three(world), brief(world);
  if (world.rank() == 0) {
    save(one.path(), config_of(1), Dtype::f32), save(three.path(), config_of(3), Dtype::f32);
    ModelConfig small = config_of(1);
    small.context = 1024;
    save(brief.path(), small, Dtype::f32);
  }
  world.agree();
  on_each_number([&](const Ranks& ranks) {
    const auto by_spans = [&](const SharedFolder& folder, const ModelCacheOptions& options) {
      return ModelCache(LanguageModel::load(folder.path(), std::nullopt, ranks), options).by_spans();
    };
    EXPECT_EQ(by_spans(one, {}), ranks.size() > 1);
    EXPECT_EQ(by_spans(three, {}), ranks.size() > 3);
    EXPECT_FALSE(by_spans(brief, {})) << "the context is one span";
    EXPECT_FALSE(by_spans(one, {.window = 100})) << "a window frees what is behind it";
    EXPECT_FALSE(by_spans(one, {.sharing = KvSharing::heads}));
    EXPECT_EQ(by_spans(brief, {.sharing = KvSharing::spans}), ranks.size() > 1);
    EXPECT_EQ(by_spans(three, {.sharing = KvSharing::spans}), ranks.size() > 1);
    if (ranks.size() > 1) { EXPECT_THROW(by_spans(one, {.window = 100, .sharing = KvSharing::spans}), ValueError); }
  });
}

TEST(Spans, WhatDiffersAtOneRankIsAnErrorAtAll) {
  on_each_number_with_model(
      [&](const std::string& folder) { save(folder, config_of(1), Dtype::f32); },
      [&](const Ranks& ranks, const LanguageModel& model) {
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          const bool wrong = ranks.rank() == guilty;
          const std::string who = "rank " + std::to_string(std::max(guilty, 1)) + ": LanguageModel: the call is ids ";
          const auto differs = [&](const std::function<void()>& call) {
            const std::string error = rank_error(ranks, call);
            // of two ranks either may be the one that differs from rank 0
            EXPECT_TRUE(error.starts_with(guilty == 0 ? "rank 1: LanguageModel: the call is ids " : who)) << error;
          };
          differs([&] {
            ModelCache cache(model, {.sharing = wrong ? KvSharing::heads : KvSharing::spans});
            model.hidden(ids(1, 3, 1), cache);
          });
          ModelCache cache(model, {.sharing = KvSharing::spans});
          model.hidden(ids(1, 1030, 1), cache);
          differs([&] { model.hidden(ids(1, 3, wrong ? 2 : 1), cache); });
          differs([&] { model.hidden(wrong ? ids(1, 6000, 1) : ids(1, 3, 1), cache); });
          if (wrong) cache.truncate(0, 5);
          differs([&] { model.hidden(ids(1, 3, 1), cache); });
          // what all give wrongly is one error too, and the cache stays as it was
          cache.truncate(0, 5);
          EXPECT_THROW(model.hidden(ids(1, 7000, 1), cache), ValueError);
          EXPECT_THROW(cache.truncate(0, 6), ValueError);
          EXPECT_THROW(cache.truncate(0, -1), ValueError);
          EXPECT_THROW(cache.reorder({0, 0}), ValueError);
          EXPECT_EQ(cache.length(0), 5);
          EXPECT_NO_THROW(model.hidden(ids(1, 3, 1), cache));
          EXPECT_EQ(cache.length(0), 8);
        }
      },
      2);
}

TEST(Spans, SendWhatTheDocumentsCount) {
  const ModelConfig c = config_of(2);
  on_each_number_with_model(
      [&](const std::string& folder) { save(folder, c, Dtype::f32); },
      [&](const Ranks& ranks, const LanguageModel& model) {
        const auto sent = [&](KvSharing sharing) {
          ModelCache cache(model, {.sharing = sharing});
          model.hidden(ids(1, 3000, 1), cache);
          counted = {};
          model.hidden(ids(1, 1, 1), cache);
          const Counted mine = counted;
          const std::int64_t bytes = sum_over(ranks, mine.bytes), messages = sum_over(ranks, mine.messages);
          return std::pair(bytes, messages);
        };
        const auto [bytes, messages] = sent(KvSharing::spans);
        const auto [of_heads, messages_of_heads] = sent(KvSharing::heads);
        const std::int64_t r = ranks.size(), d = 8, text = std::ssize(std::string(", by spans"));
        std::int64_t states = 0, senders = 0;
        for (std::int64_t span = 0; span < 3; ++span)  // 3,001 keys
          states += c.heads - (c.heads * (span % r + 1) / r - c.heads * (span % r) / r);
        if (r > 2) {  // the heads of a group are dealt among its ranks
          states = 0;
          for (std::int64_t span = 0; span < 3; ++span) {
            const std::int64_t owner = span % r, first = r / 2;  // ranks of the first group
            const bool second = owner >= first;
            const std::int64_t of_group = second ? r - first : first, index = second ? owner - first : owner;
            states += c.heads - (3 * (index + 1) / of_group - 3 * index / of_group);
          }
        }
        senders = std::min<std::int64_t>(3, r);
        EXPECT_EQ(bytes - of_heads,
                  c.layers * (4 * (r - 1) * (c.heads + 2 * 2) * d + states * (d + 2) * 4) + r * (r - 1) * text);
        EXPECT_EQ(messages - messages_of_heads, c.layers * (r - 1) * (r + senders));
      },
      2);
}

}  // namespace
}  // namespace attn::testing
