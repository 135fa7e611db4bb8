// tests/mpi/overlap_test.cc: gradients of a model of several rounds leave while the backward pass still runs, with the
// bits of one process, and an error in that pass ends all ranks.
#include "mpi/counted.h"
#include "mpi/watched.h"
#include "mpi/world.h"

#include "model/small_training.h"

#include <functional>
#include <new>

namespace attn::testing {
namespace {

/// Half a million parameters: three rounds on two ranks.
TrainOptions of_several_rounds(std::int64_t parts, Dtype dtype = Dtype::f32) {
  TrainOptions o = training_in_parts(6, parts, dtype);
  o.model.layers = 3, o.model.width = 128, o.model.mlp_width = 500;
  o.steps = 3, o.eval_every = 100;
  return o;
}

std::int64_t rounds_of(const Trainer& trainer, std::int64_t ranks) {
  const std::int64_t round = ranks * 131072;
  return (trainer.parameters() + round - 1) / round;
}

TEST(Overlap, HasTheBitsOfOneProcess) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t parts : {5, 6}) {
      const TrainOptions o = of_several_rounds(parts, dtype);
      const Trainer alone = trained(2, o);
      ASSERT_EQ(rounds_of(alone, 2), 3);
      on_each_number([&](const Ranks& ranks) {
        const auto watched = std::make_shared<Watched>(ranks);
        watched->tests = dtype == Dtype::f32;
        Trainer shared(training_ids(), o, Ranks(watched));
        while (shared.step() < 2) shared.advance();
        EXPECT_TRUE(same_weights(shared, alone)) << parts << " parts, " << name_of(dtype);
      });
    }
}

TEST(Overlap, TheFileHasNoRankInIt) {
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const TrainOptions o = of_several_rounds(6, dtype);
    const SharedFolder one(world);
    if (world.rank() == 0) trained(2, o).save(one.path());
    world.agree();
    const Trainer end = trained(3, o);
    on_each_number(
        [&](const Ranks& ranks) {
          const SharedFolder many(ranks);
          Trainer resumed = Trainer::resume(one.path(), training_ids(), ranks);
          resumed.save(many.path());
          if (ranks.rank() == 0) {
            EXPECT_TRUE(content_of(one.path() + "/train_state.safetensors") ==
                        content_of(many.path() + "/train_state.safetensors"));
          }
          resumed.advance();
          EXPECT_TRUE(same_weights(resumed, end));
          ranks.agree();
        },
        2);
  }
}

TEST(Overlap, GradientsLeaveBeforeTheBackwardPassHasEnded) {
  on_each_number(
      [](const Ranks& ranks) {
        const auto watched = std::make_shared<Watched>(ranks);
        Trainer trainer(training_ids(), of_several_rounds(ranks.size()), Ranks(watched));
        bool sent = false;
        std::int64_t looks_between = 0;  // only a rank that computes looks after its messages
        watched->on_send = [&](int, int) { sent = true; };
        watched->on_progress = [&] { looks_between += sent ? 1 : 0; };
        trainer.advance();
        if (rounds_of(trainer, ranks.size()) > 1) {
          EXPECT_GT(looks_between, 0);
          EXPECT_GT(trainer.exchange_seconds(), 0);
        }
      },
      2);
}

TEST(Overlap, SendsWhatTheDocumentsCount) {
  on_each_number(
      [](const Ranks& ranks) {
        const std::int64_t r = ranks.size();
        TrainOptions o = of_several_rounds(r);
        o.batch = 2 * r;
        Trainer trainer(training_ids(), o, ranks);
        counted = {};
        trainer.advance();
        const Counted mine = counted;
        std::int64_t blocks = 0;
        for (const Tensor& x : trainer.model().parameters()) blocks += (x.numel() + 4095) / 4096;
        const std::int64_t bytes = sum_over(ranks, mine.bytes), messages = sum_over(ranks, mine.messages);
        EXPECT_EQ(bytes, (r - 1) * (8 * trainer.parameters() + 8 * r + 4 * o.batch * o.model.context + 4 * blocks));
        EXPECT_EQ(messages, r * (r - 1) * (2 * rounds_of(trainer, r) + 1));
        EXPECT_EQ(mine.gathers, 3);
      },
      2);
}

TEST(Overlap, AnErrorInTheBackwardPassOfOneEndsAll) {
  on_each_number(
      [](const Ranks& ranks) {
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          const auto watched = std::make_shared<Watched>(ranks);
          TrainOptions o = of_several_rounds(2 * ranks.size());
          o.batch = o.parts;
          Trainer trainer(training_ids(), o, Ranks(watched));
          bool fails = ranks.rank() == guilty;
          watched->on_send = [&](int, int) {
            if (std::exchange(fails, false)) throw std::bad_alloc();
          };
          EXPECT_EQ(rank_error(ranks, [&] { trainer.advance(); }),
                    "rank " + std::to_string(guilty) + ": not enough memory");
          EXPECT_FALSE(fails);
          EXPECT_EQ(trainer.step(), 0);
        }
      },
      2);
}

}  // namespace
}  // namespace attn::testing
