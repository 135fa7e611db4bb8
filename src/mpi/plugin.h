// src/mpi/plugin.h: the three functions by which the command uses an MPI that it is not linked with.
#pragma once
#include <attn/ranks.h>

namespace attn::mpi {

/// Rises whenever Transport or these functions change: a command and a library of different builds do not fit.
inline constexpr int plugin_interface = 1;

}  // namespace attn::mpi

extern "C" {
__attribute__((visibility("default"))) int attn_mpi_interface();
/// Initialises MPI and returns the transport of all processes; null if MPI cannot be initialised.
__attribute__((visibility("default"))) attn::Transport* attn_mpi_begin();
/// Called by every rank: deletes the transport and finalises MPI.
__attribute__((visibility("default"))) void attn_mpi_end(attn::Transport* transport);
}
