// tests/mpi/ranks_test.cc: ranks agree on errors, whichever has them, and the ordered sum has the bits of one process.
#include "mpi/counted.h"
#include "mpi/world.h"

#include "support/golden.h"

#include <attn/ops.h>
#include <attn/random.h>

#include <cmath>

namespace attn {
namespace {

using testing::bits_equal;
using testing::on_each_number;
using testing::rank_error;

TEST(Ranks, AnErrorOfOneReachesAll) {
  on_each_number(
      [](const Ranks& ranks) {
        EXPECT_NO_THROW(ranks.agree());
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          const auto mine = [&](int from) {
            return ranks.rank() >= from ? std::make_exception_ptr(ValueError("ids: 70000 is not below 65")) : nullptr;
          };
          // the lowest of several speaks
          EXPECT_EQ(rank_error(ranks, [&] { ranks.agree(mine(guilty)); }),
                    "rank " + std::to_string(guilty) + ": ids: 70000 is not below 65");
        }
        EXPECT_FALSE(ranks.any(false));
        for (int one = 0; one < ranks.size(); ++one) EXPECT_TRUE(ranks.any(ranks.rank() == one));
      },
      2);
}

TEST(Ranks, AnErrorOfMpiIsFatalWhateverTheCommunicatorDoes) {
  MPI_Comm returning = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &returning);
  MPI_Comm_set_errhandler(returning, MPI_ERRORS_RETURN);  // as mpi4py does
  {
    const mpi::Ranks ranks(returning);
    ASSERT_NE(testing::last_duplicate, returning);
    MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
    MPI_Comm_get_errhandler(testing::last_duplicate, &handler);
    EXPECT_EQ(handler, MPI_ERRORS_ARE_FATAL);
    MPI_Errhandler_free(&handler);
  }
  MPI_Comm_free(&returning);
}

TEST(Ranks, DifferencesAreNamed) {
  on_each_number(
      [](const Ranks& ranks) {
        EXPECT_NO_THROW(ranks.same("the text", "x"));
        const int last = ranks.size() - 1;
        EXPECT_EQ(rank_error(ranks, [&] { ranks.same("the text", ranks.rank() == last ? "y" : "x"); }),
                  "rank " + std::to_string(last) + ": the text is y, but x at rank 0; all ranks must have the same");
      },
      2);
}

TEST(Ranks, BytesOfAnyLengthReachAll) {
  on_each_number([](const Ranks& ranks) {
    const auto text = [](int rank) {
      return std::string(static_cast<std::size_t>(rank) * 70001, static_cast<char>('a' + rank));
    };
    const std::vector<std::string> all = ranks.gather(text(ranks.rank()));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(ranks.size()));
    for (int r = 0; r < ranks.size(); ++r) EXPECT_EQ(all[static_cast<std::size_t>(r)], text(r));
    EXPECT_EQ(ranks.from_first(text(ranks.rank() + 1)), text(1));
  });
}

Tensor part(std::int64_t number, const Dims& sizes, Dtype dtype) {
  Generator generator(static_cast<std::uint64_t>(number) + 5);
  return (randn(sizes, generator, Dtype::f64) * std::pow(4.0, static_cast<double>(number % 5))).to(dtype);
}

std::vector<Tensor> parts(std::int64_t begin, std::int64_t end, const Dims& sizes, Dtype dtype) {
  std::vector<Tensor> result;
  for (std::int64_t i = begin; i < end; ++i) result.push_back(part(i, sizes, dtype));
  return result;
}

TEST(SumOrdered, HasTheBitsOfOneProcess) {
  for (const Dims& sizes : {Dims{}, Dims{63}, Dims{3, 4096}, Dims{4097}, Dims{140, 1001}, Dims{0}})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
      const std::vector<Tensor> all = parts(0, 12, sizes, dtype);
      for (const std::int64_t count : {5, 8, 12}) {
        const auto some = [&](std::int64_t begin, std::int64_t end) {
          return std::vector<Tensor>(all.begin() + begin, all.begin() + end);
        };
        const Tensor expected = sum_ordered(some(0, count), count, Ranks());
        on_each_number([&](const Ranks& ranks) {
          const std::int64_t r = ranks.rank(), n = ranks.size();
          EXPECT_TRUE(bits_equal(sum_ordered(some(count * r / n, count * (r + 1) / n), count, ranks), expected))
              << to_string(sizes) << " " << name_of(dtype) << ", " << count << " parts";
        });
      }
    }
}

TEST(SumOrdered, FollowsTheTree) {
  const std::vector<Tensor> p = parts(0, 7, {1000}, Dtype::f32);
  EXPECT_TRUE(bits_equal(sum_ordered(p, 7, Ranks()), ((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + p[6])));
}

TEST(SumOrdered, WrongPartsAtOneRankAreAnErrorAtAll) {
  on_each_number(
      [](const Ranks& ranks) {
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          const bool mine = ranks.rank() == guilty;
          const std::string who = "rank " + std::to_string(guilty) + ": ";
          EXPECT_EQ(
              rank_error(ranks, [&] { sum_ordered(parts(0, mine ? 2 : 1, {5}, Dtype::f32), ranks.size(), ranks); }),
              who + "sum_ordered: 2 parts are given; of " + std::to_string(ranks.size()) + " on " +
                  std::to_string(ranks.size()) + " ranks this one must have 1");
          EXPECT_EQ(rank_error(ranks,
                               [&] { sum_ordered({mine ? Tensor() : part(0, {5}, Dtype::f32)}, ranks.size(), ranks); }),
                    who + "sum_ordered: a part must be a tensor of f32, f64, bf16 or f16");
          EXPECT_NE(rank_error(
                        ranks,
                        [&] {
                          sum_ordered(parts(0, 1, {mine ? 6 : 5}, Dtype::f32), ranks.size(), ranks);
                        }).find("sum_ordered: a part is f32 of [5], but f32 of [6] at rank 0") == 0,
                    true);
        }
      },
      2);
}

}  // namespace
}  // namespace attn
