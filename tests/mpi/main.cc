// tests/mpi/main.cc: runs the tests of all ranks; the program fails at every rank if one of them has failed.
#include "mpi/world.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace {

/// Says at which rank a check has failed.
class Failures final : public ::testing::EmptyTestEventListener {
 public:
  explicit Failures(int rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (result.failed())
      std::printf("rank %d: %s:%d: %s\n", rank_, result.file_name(), result.line_number(), result.message());
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, rank = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (rank != 0) delete listeners.Release(listeners.default_result_printer());
  if (rank != 0) listeners.Append(new Failures(rank));
  const int mine = RUN_ALL_TESTS();
  std::vector<int> all(static_cast<std::size_t>(attn::testing::world_size()));
  MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD);
  int failed = 0;
  for (const int each : all) failed |= each;
  MPI_Finalize();
  return failed;
}
