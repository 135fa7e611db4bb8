// tests/mpi/pairs_test.cc: a training on pairs that ranks share has the bits of one process, and is resumed on any
// number of ranks.
#include "mpi/world.h"

#include "model/small_pairs.h"

namespace attn::testing {
namespace {

TrainOptions pairs_in_parts(std::int64_t parts, Dtype dtype) {
  TrainOptions o = pair_options();
  o.parts = parts, o.dtype = dtype, o.label_smoothing = 0.1;
  o.steps = 6, o.eval_every = 3;
  return o;
}

::testing::AssertionResult same(const Trainer& a, const Trainer& b) {
  if (const auto weights = same_pair_weights(a, b); !weights) return weights;
  return bits_equal(a.validations(), b.validations());
}

Trainer shared(std::int64_t steps, const TrainOptions& o, const Ranks& ranks) {
  Trainer trainer = Trainer::of_pairs(id_pairs(), o, ranks);
  while (trainer.step() < steps) trainer.advance();
  return trainer;
}

TEST(SharedPairs, HaveTheBitsOfOneProcess) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t parts : {1, 2, 5, 8}) {
      const TrainOptions o = pairs_in_parts(parts, dtype);
      const Trainer alone = trained_on_pairs(4, o);
      on_each_number([&](const Ranks& ranks) {
        if (ranks.size() <= parts) {
          EXPECT_TRUE(same(shared(4, o, ranks), alone)) << parts << " parts, " << name_of(dtype);
        } else {
          EXPECT_NE(rank_error(ranks, [&] { shared(4, o, ranks); }).find(" ranks share a training of "),
                    std::string::npos);
        }
      });
    }
}

TEST(SharedPairs, AreResumedOnAnyNumberOfRanks) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  const TrainOptions o = pairs_in_parts(5, Dtype::f32);
  const Trainer alone = trained_on_pairs(6, o);
  for (int before = 1; before <= world.size(); before += 2)
    for (int after = 1; after <= world.size(); ++after) {
      const SharedFolder folder(world);
      on_first(before, [&](const Ranks& ranks) { shared(3, o, ranks).save(folder.path()); });
      on_first(after, [&](const Ranks& ranks) {
        Trainer trainer = Trainer::resume_pairs(folder.path(), id_pairs(), ranks);
        while (!trainer.done()) trainer.advance();
        EXPECT_TRUE(same(trainer, alone)) << "saved on " << before;
      });
    }
}

TEST(SharedPairs, WhatDiffersAtOneRankIsAnErrorAtAll) {
  on_each_number(
      [](const Ranks& ranks) {
        const TrainOptions o = pairs_in_parts(8, Dtype::f32);
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          std::vector<IdPair> pairs = id_pairs();
          if (ranks.rank() == guilty) std::swap(pairs[1], pairs[2]);
          const std::string who = "rank " + std::to_string(std::max(guilty, 1)) + ": ";
          EXPECT_TRUE(rank_error(ranks, [&] {
                        Trainer::of_pairs(std::move(pairs), o, ranks);
                      }).starts_with(who + "Trainer: the digest of the tokens is "));
          EXPECT_EQ(
              rank_error(
                  ranks,
                  [&] { Trainer::of_pairs(ranks.rank() == guilty ? std::vector<IdPair>() : id_pairs(), o, ranks); }),
              "rank " + std::to_string(guilty) +
                  ": Trainer: pairs has size 0; it must be 2 or more, one of them for validation");
        }
      },
      2);
}

}  // namespace
}  // namespace attn::testing
