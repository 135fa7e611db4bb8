// tests/mpi/world.h: a test on each number of ranks that the launched processes can be.
#pragma once
#include <attn/mpi.h>

#include "support/folder.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace attn::testing {

inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// Calls `test` with the first ranks of the world; the others wait.
inline void on_first(int count, const std::function<void(const Ranks&)>& test) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm some = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < count ? 0 : MPI_UNDEFINED, 0, &some);
  if (some != MPI_COMM_NULL) {
    SCOPED_TRACE(std::to_string(count) + " ranks");
    test(mpi::Ranks(some));
    MPI_Comm_free(&some);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// The same with 1, 2, 3 ... of them.
inline void on_each_number(const std::function<void(const Ranks&)>& test, int least = 1) {
  for (int count = least; count <= world_size(); ++count) on_first(count, test);
}

/// Returns the sum of a number that each rank has.
inline std::int64_t sum_over(const Ranks& ranks, std::int64_t mine) {
  std::int64_t sum = 0;
  for (const std::string& each : ranks.gather(std::to_string(mine))) sum += std::stoll(each);
  return sum;
}

/// Returns the seed of a sample of cases, the same at every rank, and prints it: ATTN_TEST_SEED repeats it.
inline std::uint64_t sample_seed(const Ranks& world) {
  const char* const given = std::getenv("ATTN_TEST_SEED");
  const std::uint64_t seed =
      std::stoull(world.from_first(given != nullptr ? given : std::to_string(std::random_device()())));
  if (world.rank() == 0) std::printf("ATTN_TEST_SEED=%llu\n", static_cast<unsigned long long>(seed));
  return seed;
}

/// A folder whose path every rank has.
class SharedFolder {
 public:
  explicit SharedFolder(const Ranks& ranks) : path_(ranks.from_first(own_.path())) {}
  const std::string& path() const { return path_; }

 private:
  Folder own_;
  std::string path_;
};

/// Returns the text of the RankError that `work` throws; every rank must throw the same.
inline std::string rank_error(const Ranks& ranks, const std::function<void()>& work) {
  std::string text;
  try {
    work();
  } catch (const RankError& error) { text = error.what(); } catch (const std::exception& other) {
    text = std::string("no RankError: ") + other.what();
  }
  for (const std::string& each : ranks.gather(text)) EXPECT_EQ(each, text);
  return text;
}

}  // namespace attn::testing
