// src/mpi/ranks.cc: makes ranks of the processes of an MPI communicator.
#include <attn/mpi.h>

#include "mpi/transport.h"

#include <memory>

namespace attn::mpi {

Ranks::Ranks(MPI_Comm communicator) : attn::Ranks(std::make_shared<MpiTransport>(communicator)) {}

}  // namespace attn::mpi
