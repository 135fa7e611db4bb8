// bench/ranks/sum.cc: the ordered sum against MPI's own, whose bits follow the number of ranks.
#include <attn/mpi.h>
#include <attn/ops.h>
#include <attn/random.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

/// Returns the median and the least of the times of `work`, in milliseconds, between barriers.
template <typename F>
std::pair<double, double> time_of(const F& work) {
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    MPI_Barrier(MPI_COMM_WORLD);
    const double begin = MPI_Wtime();
    work();
    MPI_Barrier(MPI_COMM_WORLD);
    times.push_back((MPI_Wtime() - begin) * 1e3);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times[0]};
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::int64_t elements = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
  {
    const attn::mpi::Ranks ranks(MPI_COMM_WORLD);
    attn::Generator generator(static_cast<std::uint64_t>(ranks.rank()));
    const attn::Tensor mine = attn::randn({elements}, generator), total = attn::empty({elements});
    for (int round = 0; round < 3; ++round) {
      const auto ordered = time_of([&] { attn::sum_ordered({mine}, ranks.size(), ranks); });
      const auto others = time_of([&] {
        MPI_Allreduce(mine.data<float>(), total.data<float>(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM,
                      MPI_COMM_WORLD);
      });
      if (ranks.rank() == 0)
        std::printf("%d ranks, %.1f M floats: ordered %.1f ms (least %.1f), MPI_Allreduce %.1f ms (least %.1f)\n",
                    ranks.size(), static_cast<double>(elements) / 1e6, ordered.first, ordered.second, others.first,
                    others.second);
    }
  }
  MPI_Finalize();
}
