// src/mpi/plugin.cc: what the command loads when a launcher of this MPI has started it; it needs nothing of attn but
// the interface of Transport.
#include "mpi/plugin.h"
#include "mpi/transport.h"

namespace attn::mpi {
namespace {

/// All processes of the job, from MPI_Init to MPI_Finalize.
class World final : public MpiTransport {
 public:
  World() : MpiTransport(MPI_COMM_WORLD) {}
};

}  // namespace
}  // namespace attn::mpi

int attn_mpi_interface() { return attn::mpi::plugin_interface; }

attn::Transport* attn_mpi_begin() {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return nullptr;
  return new attn::mpi::World;
}

void attn_mpi_end(attn::Transport* transport) {
  delete transport;
  MPI_Finalize();
}
