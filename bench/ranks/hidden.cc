// bench/ranks/hidden.cc: which part of the transfer is hidden behind computing: the time of a job, that of computing
// with the large messages left out, and that of its messages alone. bench/ranks/link runs it over a slow link.
#include <attn/mpi.h>
#include <attn/train.h>

#include "recorded.h"
#include "stripes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

using attn::bench::Recorded;
using attn::bench::Stripes;

/// Returns the time of `work` between barriers, in seconds.
double time_of(const std::function<void()>& work) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double begin = MPI_Wtime();
  work();
  MPI_Barrier(MPI_COMM_WORLD);
  return MPI_Wtime() - begin;
}

double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

/// Measures a job in turns. `job` does it once.
void measure(const std::string& name, Recorded& messages, int times, const std::function<void(Recorded::Mode)>& job) {
  std::vector<double> total, computing, transfer, waiting;
  for (int i = 0; i <= times; ++i) {
    const auto timed = [&](Recorded::Mode mode) {
      messages.set(mode);
      const double seconds = time_of([&] { job(mode); });
      messages.set(Recorded::Mode::pass);
      return seconds;
    };
    const double without = timed(Recorded::Mode::leave_out), with = timed(Recorded::Mode::note),
                 waited = messages.waiting(), alone = time_of([&] { messages.repeat(); });
    if (i == 0) continue;  // the first one warms up
    total.push_back(with), computing.push_back(without), transfer.push_back(alone), waiting.push_back(waited);
  }
  if (messages.rank() != 0) return;
  const double t = median(total), c = median(computing), m = median(transfer);
  std::printf(
      "%s: total %.3f s, of it waiting %.3f s; computing alone %.3f s, transfer alone %.3f s (%.1f MB sent); "
      "hidden %.0f %%\n",
      name.c_str(), t, median(waiting), c, m, static_cast<double>(messages.bytes()) / 1e6, 100 * (1 - (t - c) / m));
  std::fflush(stdout);
}

void attention(const attn::Ranks& ranks, Recorded& messages, std::int64_t length, std::int64_t heads, int times) {
  const Stripes x(ranks, length, heads);
  for (const bool causal : {false, true}) {
    const attn::AttentionOptions options = attn::bench::masked(causal);
    attn::AttentionSaved saved;
    const std::string name = "stripes, T " + std::to_string(length) + ", " + std::to_string(heads) +
                             (causal ? " heads, causal" : " heads, full");
    measure(name + ", forward", messages, times, [&](Recorded::Mode) {
      attn::rank_attention_forward(x.q, x.k, x.v, length, Stripes::layout, ranks, options, saved);
    });
    attn::rank_attention_forward(x.q, x.k, x.v, length, Stripes::layout, ranks, options, saved);
    measure(name + ", backward", messages, times, [&](Recorded::Mode) {
      attn::rank_attention_backward(x.q, x.k, x.v, length, Stripes::layout, ranks, options, saved,
                                    {.grad_output = x.q});
    });
  }
}

void training(const attn::Ranks& ranks, Recorded& messages, std::int64_t batch, std::int64_t context, int times) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 20000; ++i) ids.push_back(i * i % 61);
  attn::TrainOptions options{
      .model = attn::ModelConfig::baby(61), .steps = 1000, .batch = batch, .parts = ranks.size()};
  options.eval_every = options.steps;
  options.model.context = context;
  const std::string name = "training baby, " + std::to_string(batch) + " x " + std::to_string(context) + " tokens, ";
  // Without the large messages weights are wrong: that training is another one.
  attn::Trainer whole(ids, options, ranks), without(ids, options, ranks);
  for (const auto& [channel, what] : {std::pair{0, "all messages"}, {8, "gradients"}}) {
    messages.set_least_channel(channel);
    measure(name + what, messages, times,
            [&](Recorded::Mode mode) { (mode == Recorded::Mode::leave_out ? without : whole).advance(); });
  }
  if (ranks.rank() == 0)
    std::printf("  the trainer's own figures: %.2f s exchanging, %.2f s hidden\n", whole.exchange_seconds(),
                whole.hidden_seconds());
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string what = argc > 1 ? argv[1] : "";
  const std::int64_t first = argc > 2 ? std::atoll(argv[2]) : 0, second = argc > 3 ? std::atoll(argv[3]) : 0;
  const int times = argc > 4 ? std::atoi(argv[4]) : 5;
  if ((what != "attention" && what != "training") || first < 1 || second < 1 || times < 1) {
    std::fprintf(stderr, "bench_hidden attention LENGTH HEADS [TIMES] | training BATCH CONTEXT [TIMES]\n");
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  {
    const attn::mpi::Ranks world(MPI_COMM_WORLD);
    const auto messages = std::make_shared<Recorded>(world);
    const attn::Ranks ranks(messages);
    if (what == "attention") attention(ranks, *messages, first, second, times);
    else training(ranks, *messages, first, second, times);
  }
  MPI_Finalize();
}
