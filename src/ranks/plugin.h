// src/ranks/plugin.h: the functions of attn's library for one MPI, which programs load that are not linked with MPI.
#pragma once
#include <attn/ranks.h>

namespace attn::mpi {

/// Rises whenever Transport or these functions change: a program and a library of different builds do not fit.
inline constexpr int plugin_interface = 4;

/// Whether MPI's functions can be called.
enum class State : int { not_initialised, running, finalised };

}  // namespace attn::mpi

extern "C" {
__attribute__((visibility("default"))) int attn_mpi_interface();
/// Initialises MPI and returns the transport of all processes; null if MPI cannot be initialised.
__attribute__((visibility("default"))) attn::Transport* attn_mpi_begin();
/// Called by every rank: deletes the transport and finalises MPI.
__attribute__((visibility("default"))) void attn_mpi_end(attn::Transport* transport);

// For a program that initialises MPI itself.
__attribute__((visibility("default"))) int attn_mpi_state();
/// Returns what MPI_Get_library_version writes.
__attribute__((visibility("default"))) const char* attn_mpi_version();
/// Returns the family whose mpi.h the library was built with: "openmpi" or "mpich".
__attribute__((visibility("default"))) const char* attn_mpi_family();
/// Returns the transport of a communicator, given as Fortran's handle; null if it is not a communicator, or is one
/// between two groups. Collective.
__attribute__((visibility("default"))) attn::Transport* attn_mpi_over(int communicator);
__attribute__((visibility("default"))) void attn_mpi_close(attn::Transport* transport);
}
