// tests/mpi/counted.cc: stands in front of the functions of MPI that attn calls.
#include "mpi/counted.h"

extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag, MPI_Comm communicator,
                         MPI_Request* request) {
  int size = 0;
  PMPI_Type_size(type, &size);
  ++attn::testing::counted.messages;
  attn::testing::counted.bytes += std::int64_t{count} * size;
  return PMPI_Isend(data, count, type, to, tag, communicator, request);
}

extern "C" int MPI_Allgather(const void* mine, int count, MPI_Datatype type, void* all, int counts, MPI_Datatype types,
                             MPI_Comm communicator) {
  ++attn::testing::counted.gathers;
  return PMPI_Allgather(mine, count, type, all, counts, types, communicator);
}

extern "C" int MPI_Comm_dup(MPI_Comm communicator, MPI_Comm* duplicate) {
  const int result = PMPI_Comm_dup(communicator, duplicate);
  attn::testing::last_duplicate = *duplicate;
  return result;
}
