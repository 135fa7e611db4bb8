// include/attn/mpi.h: makes Ranks from an MPI communicator. The only header that needs mpi.h; attn.h does not include
// it.
#pragma once
#include <mpi.h>

#include <attn/ranks.h>

// The definition of this header is in the library attn::mpi, which is built against one MPI.
namespace attn::mpi {

/// The processes of a communicator. MPI is initialised by the caller, with MPI_THREAD_FUNNELED or more: only this
/// thread calls MPI; other threads compute.
class ATTN_API Ranks : public attn::Ranks {
 public:
  /// Duplicates the communicator, so that its messages cannot match the caller's. Collective. All copies must be gone
  /// before MPI_Finalize.
  /// Errors   RankError when the ranks have another version of attn.
  explicit Ranks(MPI_Comm communicator);
};

}  // namespace attn::mpi
