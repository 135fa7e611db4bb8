// tests/mpi/alone/leaves.cc: a training whose last rank leaves without a word after three steps, as a crash would, and
// without MPI_Finalize. The others must not wait for ever.
#include <attn/mpi.h>
#include <attn/train.h>

#include <unistd.h>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const attn::mpi::Ranks ranks(MPI_COMM_WORLD);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 2000; ++i) ids.push_back(i * i % 31);
  attn::TrainOptions options{.model = attn::ModelConfig::nano(31), .steps = 1'000'000, .batch = 4, .parts = 4};
  options.model.layers = 1, options.model.width = 32, options.model.heads = 2, options.model.context = 16;
  attn::Trainer trainer(ids, options, ranks);
  while (!trainer.done()) {
    trainer.advance();
    if (trainer.step() == 3 && ranks.rank() == ranks.size() - 1) ::_exit(3);
  }
}
