// tests/mpi/counted.h: how many messages and bytes this process has sent, counted where MPI is called (PMPI), and the
// last communicator that was duplicated.
#pragma once
#include <mpi.h>

#include <cstdint>

namespace attn::testing {

struct Counted {
  std::int64_t messages = 0, bytes = 0, gathers = 0;
};
inline Counted counted;
inline MPI_Comm last_duplicate = MPI_COMM_NULL;

}  // namespace attn::testing
