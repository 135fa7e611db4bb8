// tests/mpi/faults_test.cc: what fails or differs at one rank alone is an error of all, with one text: memory at every
// place of a pass, memory before a training, weights, numbers that are not finite.
#include "mpi/saved_model.h"
#include "mpi/watched.h"
#include "mpi/world.h"

#include "model/small_training.h"
#include "model/train_text.h"
#include "ranks/shared_steps.h"
#include "support/failing_memory.h"
#include "support/golden.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <new>

namespace attn::testing {
namespace {

std::string at_rank(int rank, const std::string& text) { return "rank " + std::to_string(rank) + ": " + text; }

/// Six query heads, as many as the ranks or more, two key heads, a context of several spans.
void save_small_model(const std::string& folder) {
  ModelConfig c{.vocab_size = 61, .context = 4096, .layers = 2, .heads = 6, .width = 48, .mlp_width = 40};
  c.kv_heads = 2;
  Generator generator(3);
  LanguageModel(c, Dtype::f32, &generator).save(folder);
}

Tensor some_ids(std::int64_t count) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < count; ++i) ids.push_back(i * i % 61);
  return tensor<std::int64_t>(ids, {1, count});
}

/// Lets allocation `n` of this rank's pass fail, counted from when the ranks have compared the call.
void arm(Watched& watched, bool guilty, long n) {
  watched.after_wait = [&watched, guilty, n, waits = 0]() mutable {
    if (++waits == 2 * (watched.size() - 1) && guilty) allocations_left = n;
  };
}

/// Runs a pass on the ranks again and again; each time another allocation fails at one rank, which must be an error of
/// all with its text. What a rank allocates after the last exchange, which is little, fails at it alone. Returns how
/// many failed.
long fail_each(const Ranks& ranks, const std::function<void(long n)>& arm, int guilty,
               const std::function<void()>& pass, long step) {
  long count = 0, alone = 0;
  for (long n = 0;; n += step, ++count) {
    arm(n);
    std::string said;
    try {
      pass();
    } catch (const std::exception& error) { said = error.what(); }
    allocations_left = -1;
    const std::vector<std::string> all = ranks.gather(said);
    const auto silent = std::count(all.begin(), all.end(), "");
    if (silent == std::ssize(all)) return count;
    if (silent > 0) {
      EXPECT_EQ(silent, std::ssize(all) - 1) << "allocation " << n;
      EXPECT_EQ(all[static_cast<std::size_t>(guilty)], std::bad_alloc().what());
      EXPECT_LT(++alone, 40);
    } else {
      EXPECT_EQ(said, at_rank(guilty, "not enough memory")) << "allocation " << n;
      EXPECT_EQ(alone, 0) << "after the last exchange";
    }
    if (ranks.any(::testing::Test::HasFailure())) return count;
  }
}

TEST(OneRankFails, MemoryWithinAPassOfAModel) {
  const bool all = std::getenv("ATTN_TEST_FULL") != nullptr;
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  if (world.rank() == 0) save_small_model(folder.path());
  world.agree();
  on_each_number(
      [&](const Ranks& ranks) {
        if (ranks.size() > 3 && !all) return;
        const auto watched = std::make_shared<Watched>(ranks);
        const LanguageModel model = LanguageModel::load(folder.path(), std::nullopt, Ranks(watched));
        const NoGrad guard;
        for (const KvSharing sharing : {KvSharing::heads, KvSharing::spans}) {
          const ModelCacheOptions options{.page_rows = 64, .sharing = sharing};
          ModelCache cache(model, options), undisturbed(model, options);
          model.hidden(some_ids(1030), cache), model.hidden(some_ids(1030), undisturbed);
          const Tensor expected = model.hidden(some_ids(2), undisturbed);
          long places = 0;
          for (int guilty = 0; guilty < ranks.size(); ++guilty)
            places += fail_each(
                ranks, [&](long n) { arm(*watched, ranks.rank() == guilty, n); }, guilty,
                [&] {
                  cache.truncate(0, 1030);  // where the last pass began, which may not have failed at all ranks
                  const Tensor given = model.hidden(some_ids(2), cache);
                  allocations_left = -1;
                  EXPECT_TRUE(bits_equal(given, expected));
                },
                all                 ? 1
                : ranks.size() == 2 ? 5
                                    : 31);
          watched->after_wait = [] {};
          if (ranks.rank() == 0)
            std::printf("%d ranks, by %s: %ld failing allocations\n", ranks.size(),
                        sharing == KvSharing::spans ? "spans" : "heads", places);
        }
        const Tensor hidden = model.hidden(some_ids(3));  // the logits compare nothing before they begin
        for (int guilty = 0; guilty < ranks.size(); ++guilty)
          EXPECT_GT(fail_each(
                        ranks, [&](long n) { allocations_left = ranks.rank() == guilty ? n : -1; }, guilty,
                        [&] { model.logits(hidden); }, 1),
                    0);
      },
      2);
}

TEST(OneRankFails, WrongArgumentsOfAllKeepTheirKind) {
  on_each_number_with_model(save_small_model, [](const Ranks&, const LanguageModel& model) {
    ModelCache cache(model, {});
    EXPECT_THROW(model.hidden(some_ids(4097), cache), ValueError);
    EXPECT_THROW(model.hidden(some_ids(4097)), ValueError);
    EXPECT_THROW(model.hidden(full({1, 2}, 61, Dtype::i64)), Error);
    EXPECT_NO_THROW(model.hidden(some_ids(3), cache));
  });
}

TEST(OneRankFails, MemoryWhereTheyBegin) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder folder(world);
  if (world.rank() == 0) save_small_model(folder.path());
  world.agree();
  const std::vector<std::int64_t> ids = training_ids();
  on_each_number(
      [&](const Ranks& ranks) {
        const TrainOptions o = training_in_parts(2 * ranks.size(), ranks.size(), Dtype::f32);
        for (int guilty = 0; guilty < ranks.size(); guilty += ranks.size() - 1)
          for (const long n : {0, 1, 10, 100}) {
            const auto watched = std::make_shared<Watched>(ranks);
            const Ranks watching(watched);
            // until the first agreement: what comes later is of a few bytes
            watched->on_gather = [] { allocations_left = -1; };
            std::vector<std::int64_t> own = ids;
            const auto said = [&](const std::function<void()>& work) {
              return rank_error(ranks, [&] {
                if (ranks.rank() == guilty) allocations_left = n;
                work();
              });
            };
            EXPECT_EQ(said([&] { Trainer(std::move(own), o, watching); }), at_rank(guilty, "not enough memory"));
            const std::string path = folder.path();
            EXPECT_EQ(said([&] { LanguageModel::load(path, std::nullopt, watching); }),
                      at_rank(guilty, "not enough memory"));
          }
      },
      2);
}

TEST(OneRankDiffers, WeightsAtTheBeginningOfATraining) {
  on_each_number(
      [](const Ranks& ranks) {
        const TrainOptions o = training_in_parts(2 * ranks.size(), ranks.size(), Dtype::f32);
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          Trainer::State state(std::make_unique<TextTask>(training_ids(), o), o);
          const NoGrad guard;
          if (ranks.rank() == guilty) state.parameters.back().add_(1e-3);
          const std::string said = rank_error(ranks, [&] { share_training(state, ranks); });
          EXPECT_TRUE(said.starts_with(at_rank(std::max(guilty, 1), "Trainer: the digest of the weights is "))) << said;
          EXPECT_EQ(state.ranks, nullptr);
        }
        Trainer::State state(std::make_unique<TextTask>(training_ids(), o), o);
        EXPECT_NO_THROW(share_training(state, ranks));
      },
      2);
}

TEST(OneRankDiffers, WeightsInTheMidstOfATraining) {
  on_each_number(
      [](const Ranks& ranks) {
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          Trainer trainer(training_ids(), training_in_parts(2 * ranks.size(), ranks.size(), Dtype::f32), ranks);
          trainer.advance();
          const auto compare = [&] { ranks.same("step 1: the digest of the weights", trainer.weights_digest()); };
          EXPECT_NO_THROW(compare());
          const NoGrad guard;
          if (ranks.rank() == guilty) trainer.model().parameters()[0].add_(1e-3);
          const std::string said = rank_error(ranks, compare);
          EXPECT_TRUE(said.starts_with(at_rank(std::max(guilty, 1), "step 1: the digest of the weights is "))) << said;
        }
      },
      2);
}

TEST(OneRankFails, ALossThatIsNotFinite) {
  on_each_number(
      [](const Ranks& ranks) {
        for (const double number : {std::numeric_limits<double>::quiet_NaN(), 1e38})
          for (int guilty = 0; guilty < ranks.size(); ++guilty) {
            Trainer trainer(training_ids(), training_in_parts(2 * ranks.size(), ranks.size(), Dtype::f32), ranks);
            {
              const NoGrad guard;  // only its own parts of the batch have such a loss
              if (ranks.rank() == guilty) trainer.model().parameters()[0].fill_(number);
            }
            std::string said = "nothing";
            try {
              trainer.advance();
            } catch (const ValueError& error) { said = error.what(); }
            EXPECT_TRUE(said.starts_with("Trainer: step 1 has loss ")) << said;
            for (const std::string& each : ranks.gather(said)) EXPECT_EQ(each, said);
            EXPECT_EQ(trainer.step(), 0);
          }
      },
      2);
}

}  // namespace
}  // namespace attn::testing
