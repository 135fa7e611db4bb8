// tests/mpi/counted.h: how many messages and bytes this process has sent, counted where MPI is called (PMPI).
#pragma once
#include <cstdint>

namespace attn::testing {

struct Counted {
  std::int64_t messages = 0, bytes = 0, gathers = 0;
};
inline Counted counted;

}  // namespace attn::testing
