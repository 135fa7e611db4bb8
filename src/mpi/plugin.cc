// src/mpi/plugin.cc: the library that programs load that are not linked with MPI: the command, when a launcher of this
// MPI has started it, and Python. Of attn it needs only the interface of Transport.
#include "ranks/plugin.h"

#include "mpi/transport.h"

#include <string>

namespace attn::mpi {
namespace {

/// All processes of the job, from MPI_Init to MPI_Finalize.
class World final : public MpiTransport {
 public:
  World() : MpiTransport(MPI_COMM_WORLD) {}
};

std::string read_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;  // the length counts a closing 0 in some versions
}

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

int attn_mpi_state() {
  using attn::mpi::State;
  int begun = 0, over = 0;
  MPI_Initialized(&begun);
  MPI_Finalized(&over);
  return static_cast<int>(over != 0 ? State::finalised : begun != 0 ? State::running : State::not_initialised);
}

const char* attn_mpi_version() {
  static const std::string text = attn::mpi::read_version();
  return text.c_str();
}

const char* attn_mpi_family() {
#ifdef OPEN_MPI
  return "openmpi";
#else
  return "mpich";
#endif
}

attn::Transport* attn_mpi_over(int communicator) {
  const MPI_Comm given = MPI_Comm_f2c(communicator);
  if (given == MPI_COMM_NULL) return nullptr;
  int between = 0;
  const bool known = MPI_Comm_test_inter(given, &between) == MPI_SUCCESS;  // mpi4py's communicators return errors
  return !known || between != 0 ? nullptr : new attn::mpi::MpiTransport(given);
}

void attn_mpi_close(attn::Transport* transport) { delete transport; }
