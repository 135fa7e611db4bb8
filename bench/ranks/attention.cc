// bench/ranks/attention.cc: attention in stripes against one process: the least time of a call, forward and backward.
#include <attn/mpi.h>

#include "stripes.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

using attn::bench::Stripes;

/// Returns the least time of `work` between barriers, in milliseconds.
template <typename F>
double time_of(const F& work) {
  double least = 1e9;
  for (int i = 0; i < 11; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    work();
    MPI_Barrier(MPI_COMM_WORLD);
    if (i > 0) least = std::min(least, (MPI_Wtime() - begin) * 1e3);
  }
  return least;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::int64_t length = argc > 1 ? std::atoll(argv[1]) : 4096, heads = argc > 2 ? std::atoll(argv[2]) : 4;
  {
    const attn::mpi::Ranks ranks(MPI_COMM_WORLD);
    const Stripes x(ranks, length, heads);
    for (const bool causal : {false, true}) {
      const attn::AttentionOptions options = attn::bench::masked(causal);
      attn::AttentionSaved saved;
      const double forward =
          time_of([&] { attn::rank_attention_forward(x.q, x.k, x.v, length, Stripes::layout, ranks, options, saved); });
      const double backward = time_of([&] {
        attn::rank_attention_backward(x.q, x.k, x.v, length, Stripes::layout, ranks, options, saved,
                                      {.grad_output = x.q});
      });
      if (ranks.rank() == 0)
        std::printf("%d ranks, T %lld, %lld heads, %s: forward %.2f ms, backward %.2f ms\n", ranks.size(),
                    static_cast<long long>(length), static_cast<long long>(heads), causal ? "causal" : "full", forward,
                    backward);
      if (ranks.size() > 1) continue;
      const double alone = time_of([&] { attn::attention_forward(x.q, x.k, x.v, options, saved); });
      const double back =
          time_of([&] { attn::attention_backward(x.q, x.k, x.v, options, saved, {.grad_output = x.q}); });
      std::printf("  attention() in one process: forward %.2f ms, backward %.2f ms\n", alone, back);
    }
  }
  MPI_Finalize();
}
