// bench/ranks/attention.cc: attention in stripes against one process: the least time of a call, forward and backward.
#include <attn/mpi.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/rank_attention.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace {

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
    constexpr auto layout = attn::RankLayout::stripes;
    const auto own = static_cast<std::int64_t>(attn::rank_rows(ranks, layout, length).size());
    const attn::Tensor q = attn::randn({1, heads, own, 64}), k = attn::randn({1, heads, own, 64}),
                       v = attn::randn({1, heads, own, 64});
    for (const bool causal : {false, true}) {
      attn::AttentionOptions options;
      if (causal) options.mask = attn::Mask::causal();
      attn::AttentionSaved saved;
      const double forward =
          time_of([&] { attn::rank_attention_forward(q, k, v, length, layout, ranks, options, saved); });
      const double backward = time_of(
          [&] { attn::rank_attention_backward(q, k, v, length, layout, ranks, options, saved, {.grad_output = q}); });
      if (ranks.rank() == 0)
        std::printf("%d ranks, T %lld, %lld heads, %s: forward %.2f ms, backward %.2f ms\n", ranks.size(),
                    static_cast<long long>(length), static_cast<long long>(heads), causal ? "causal" : "full", forward,
                    backward);
      if (ranks.size() > 1) continue;
      const double alone = time_of([&] { attn::attention_forward(q, k, v, options, saved); });
      const double back = time_of([&] { attn::attention_backward(q, k, v, options, saved, {.grad_output = q}); });
      std::printf("  attention() in one process: forward %.2f ms, backward %.2f ms\n", alone, back);
    }
  }
  MPI_Finalize();
}
