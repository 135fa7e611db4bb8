// tests/mpi/training_test.cc: a training that ranks share has the bits of one process, is resumed on any number of
// ranks, and sends the messages and bytes that docs/ranks.md counts.
#include "mpi/counted.h"
#include "mpi/world.h"

#include "model/small_training.h"

#include <attn/random.h>
#include <attn/runtime.h>

#include <cstdio>
#include <cstdlib>
#include <random>

namespace attn::testing {
namespace {

const bool full = std::getenv("ATTN_TEST_FULL") != nullptr;

TrainOptions in_parts(std::int64_t parts, Dtype dtype = Dtype::f32) {
  TrainOptions o = training_in_parts(12, parts, dtype);
  o.steps = 6, o.eval_every = 3;
  o.model.mlp_width = 300;  // a parameter of more than one block
  return o;
}

Trainer shared(std::int64_t steps, const TrainOptions& o, const Ranks& ranks) {
  Trainer trainer(training_ids(), o, ranks);
  while (trainer.step() < steps) trainer.advance();
  return trainer;
}

::testing::AssertionResult same(const Trainer& a, const Trainer& b) {
  if (const auto weights = same_weights(a, b); !weights) return weights;
  if (!bits_equal(a.losses(), b.losses())) return ::testing::AssertionFailure() << "other losses";
  if (!bits_equal(a.validations(), b.validations())) return ::testing::AssertionFailure() << "other validations";
  return ::testing::AssertionSuccess();
}

TEST(SharedTraining, HasTheBitsOfOneProcess) {
  int equal = 0, refused = 0;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t parts : {1, 2, 3, 4, 6, 8, 12}) {
      if (dtype == Dtype::bf16 && parts != 6 && !full) continue;
      const TrainOptions o = in_parts(parts, dtype);
      const Trainer alone = trained(4, o);
      on_each_number([&](const Ranks& ranks) {
        if (ranks.rank() == 0) ++(ranks.size() > parts ? refused : equal);
        if (ranks.size() <= parts) {
          EXPECT_TRUE(same(shared(4, o, ranks), alone)) << parts << " parts, " << name_of(dtype);
        } else {
          EXPECT_EQ(rank_error(ranks, [&] { shared(4, o, ranks); }).find("rank "), 0U) << parts << " parts";
        }
      });
    }
  if (equal > 0) std::printf("%d pairs of parts and ranks are equal, %d refused\n", equal, refused);
}

TEST(SharedTraining, HasTheBitsOfOneProcessWithoutClippingAndDropout) {
  TrainOptions wild = in_parts(5);
  wild.clip = 0, wild.model.tied_head = false, wild.model.dropout = 0;
  const Trainer alone = trained(4, wild);
  on_each_number([&](const Ranks& ranks) { EXPECT_TRUE(same(shared(4, wild, ranks), alone)); });
}

TEST(SharedTraining, IsResumedOnAnyNumberOfRanks) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const TrainOptions o = in_parts(6, dtype);
    const Trainer alone = trained(6, o);
    on_each_number([&](const Ranks& before) {
      const SharedFolder folder(before);
      shared(3, o, before).save(folder.path());
      before.agree();
      if (before.rank() == 0) {  // alone
        Trainer one = Trainer::resume(folder.path(), training_ids());
        EXPECT_EQ(one.step(), 3);
        while (!one.done()) one.advance();
        EXPECT_TRUE(same(one, alone));
      }
      before.agree();
    });
    const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
    const SharedFolder folder(world);
    if (world.rank() == 0) trained(3, o).save(folder.path());
    world.agree();
    on_each_number([&](const Ranks& after) {
      Trainer trainer = Trainer::resume(folder.path(), training_ids(), after);
      while (!trainer.done()) trainer.advance();
      EXPECT_TRUE(same(trainer, alone));
      EXPECT_EQ(trainer.best_step(), alone.best_step());
    });
  }
}

/// Without ATTN_TEST_FULL two pairs of numbers that a printed seed draws; the tests around this one go by one process.
TEST(SharedTraining, IsSavedOnAnyNumberOfRanksAndResumedOnAnyOther) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const auto size = static_cast<std::uint64_t>(world.size());
  struct Pair {
    Dtype dtype;
    int before, after;
  };
  std::vector<Pair> pairs;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (int before = 1; before <= world.size(); ++before)
      for (int after = 1; after <= world.size(); ++after) pairs.push_back({dtype, before, after});
  if (!full) {
    std::mt19937_64 draws(sample_seed(world));
    pairs = {pairs[draws() % (size * size)], pairs[size * size + draws() % (size * size)]};
  }
  for (const auto& [dtype, before, after] : pairs) {
    const TrainOptions o = in_parts(6, dtype);
    const Trainer alone = trained(6, o);
    const SharedFolder folder(world);
    on_first(before, [&](const Ranks& ranks) { shared(3, o, ranks).save(folder.path()); });
    on_first(after, [&, before = before](const Ranks& ranks) {
      Trainer trainer = Trainer::resume(folder.path(), training_ids(), ranks);
      EXPECT_EQ(trainer.step(), 3);
      while (!trainer.done()) trainer.advance();
      EXPECT_TRUE(same(trainer, alone)) << "saved on " << before;
    });
  }
  if (world.rank() == 0)
    std::printf("%zu trainings, saved on 1 to %d ranks and resumed on 1 to %d\n", pairs.size(), world.size(),
                world.size());
}

TEST(SharedTraining, TheFileHasNoRankInIt) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const SharedFolder one(world), many(world);
  const TrainOptions o = in_parts(12);
  if (world.rank() == 0) trained(3, o).save(one.path());
  shared(3, o, world).save(many.path());
  world.agree();
  if (world.rank() == 0) {
    EXPECT_TRUE(content_of(one.path() + "/train_state.safetensors") ==
                content_of(many.path() + "/train_state.safetensors"));
  }
  world.agree();
}

TEST(SharedTraining, WhatDiffersAtOneRankIsAnErrorAtAll) {
  on_each_number(
      [](const Ranks& ranks) {
        const int last = ranks.size() - 1;
        const bool mine = ranks.rank() == last;
        const std::string who = "rank " + std::to_string(last) + ": ";
        const auto said = [&](std::vector<std::int64_t> ids, const TrainOptions& o) {
          return rank_error(ranks, [&] { Trainer(std::move(ids), o, ranks); });
        };
        TrainOptions o = in_parts(12), other = o;
        other.lr *= 2;
        EXPECT_TRUE(said(training_ids(), mine ? other : o).starts_with(who + "Trainer: the options is "));
        std::vector<std::int64_t> ids = training_ids();
        if (mine) ids[7] ^= 1;
        EXPECT_TRUE(said(ids, o).starts_with(who + "Trainer: the digest of the tokens is "));
        if (mine) ids[7] = 99;
        EXPECT_EQ(said(ids, o),
                  who + "Trainer: id 99 at 7 is not below vocab_size " + std::to_string(o.model.vocab_size));
        EXPECT_NE(
            said(training_ids(), in_parts(1))
                .find(": Trainer: " + std::to_string(ranks.size()) +
                      " ranks share a training of 1 part; parts must be " + std::to_string(ranks.size()) + " or more"),
            std::string::npos);
        // No folder at rank 0; a folder that cannot be written.
        EXPECT_TRUE(rank_error(ranks, [&] {
                      Trainer::resume("/no/such/folder", training_ids(), ranks);
                    }).starts_with("rank 0: "));
        const Trainer trainer(training_ids(), o, ranks);
        EXPECT_TRUE(rank_error(ranks, [&] { trainer.save("/proc/nowhere"); }).starts_with("rank 0: Trainer::save: "));
        EXPECT_TRUE(rank_error(ranks, [&] { trainer.save_model("/proc/nowhere"); }).starts_with("rank 0: "));
      },
      2);
}

TEST(SharedTraining, ADivergedOneEndsEverywhere) {
  on_each_number(
      [](const Ranks& ranks) {
        TrainOptions o = in_parts(12);
        o.lr = 1e30, o.clip = 0;
        EXPECT_THROW(shared(6, o, ranks), ValueError);
        ranks.agree();
      },
      2);
}

TEST(SharedTraining, SendsWhatTheDocumentsCount) {
  on_each_number(
      [](const Ranks& ranks) {
        const std::int64_t r = ranks.size();
        TrainOptions o = in_parts(0);
        o.batch = 2 * r, o.eval_every = 100, o.model.mlp_width = 3000;
        for (const std::int64_t parts : {r, 2 * r}) {  // in both each rank has one node of the tree
          o.parts = parts;
          Trainer trainer(training_ids(), o, ranks);
          trainer.advance();
          counted = {};
          trainer.advance();
          const Counted mine = counted;
          std::int64_t weights = 0, blocks = 0;
          for (const Tensor& x : trainer.model().parameters())
            weights += x.numel(), blocks += (x.numel() + 4095) / 4096;
          const std::int64_t bytes = sum_over(ranks, mine.bytes), messages = sum_over(ranks, mine.messages);
          const std::int64_t rows = o.batch * o.model.context;
          // gradients to their owners, weights to everybody, and each rank's losses and sums of squares
          EXPECT_EQ(bytes, (r - 1) * (2 * 4 * weights + 8 * r + 4 * rows + 4 * blocks)) << parts << " parts";
          EXPECT_EQ(messages, 3 * r * (r - 1)) << "one bucket for each rank";
          EXPECT_EQ(mine.gathers, 3) << "two agreements, and the lengths of the losses";
          // What a rank sends to be saved is what it keeps of the optimiser: both moments of its buckets.
          const SharedFolder folder(ranks);
          counted = {};
          trainer.save(folder.path());
          if (ranks.rank() != 0) {
            EXPECT_NEAR(static_cast<double>(counted.bytes), 8.0 * static_cast<double>(weights / r), 8.0 * 4096);
          }
        }
      },
      2);
}

}  // namespace
}  // namespace attn::testing
