// tests/mpi/alone/other_build.cc: a rank of another build of attn, for a launch beside others: what ranks tell each
// other of their version is compiled once more, with other numbers. It writes the error that it gets to FILE.
//
//   other_build version|numerics|same FILE
#include <attn/runtime.h>

#include "mpi/transport.h"

#include <cstring>
#include <fstream>
#include <memory>
#include <string>

namespace attn {

int numerics_of_build = numerics_version;
std::string version_of_build;

}  // namespace attn

// The whole file, with these two in place of the library's.
#define numerics_version numerics_of_build
#define version() version_of_build
#include "ranks/ranks.cc"  // NOLINT: its other build
#undef version
#undef numerics_version

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  attn::version_of_build = std::strcmp(argv[1], "version") == 0 ? std::string("0.0.0") : attn::version();
  if (std::strcmp(argv[1], "numerics") == 0) ++attn::numerics_of_build;
  int provided = 0, code = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  {
    std::ofstream file(argv[2]);
    try {
      const attn::Ranks ranks(std::make_shared<attn::mpi::MpiTransport>(MPI_COMM_WORLD));
      ranks.same("the command", "attn train");
      ranks.agree(std::make_exception_ptr(attn::Error("no difference")));
    } catch (const attn::RankError& error) {
      file << error.what() << "\n";
      code = 1;
    }
  }
  MPI_Finalize();
  return code;
}
