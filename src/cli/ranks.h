// src/cli/ranks.h: the command as several processes that a launcher (mpirun, srun) has started.
#pragma once
#include <attn/ranks.h>

#include <functional>
#include <string>

namespace attn::cli {

/// What the environment says of the launcher.
struct Launch {
  std::string family;  // of the MPI: "openmpi" or "mpich"; empty: no launcher
  int rank = 0;
  int size = 1;  // 0: not known before MPI is initialised
  bool several() const { return !family.empty() && size != 1; }
};
const Launch& launch();

/// Throws a UsageError if a launcher has started several processes, for a verb that runs as one process: they would do
/// the same work and overwrite each other's files.
void one_process(const std::string& verb);

/// Runs `work` with the ranks that there are. If it throws at any of them, all throw: a RankError if there are several.
/// `command`: the verb with the options that decide what ranks do together; it must be the same at all of them.
void with_ranks(const std::string& command, const std::function<void(const Ranks& ranks)>& work, double timeout);
/// Tells the other ranks that this rank's command line is wrong (`error`), before with_ranks is called. Throws a
/// RankError unless all ranks have the same error. Without this, with MPICH the others would wait in MPI's
/// initialisation for a rank that has exited.
void refuse_together(const std::string& error);
/// Finalises MPI, if with_ranks has begun it: at the end, after what rank 0 has to say. A launcher kills the ranks that
/// are left when the first has failed, and no rank leaves MPI before all do.
void leave_ranks();
/// Runs `work` at rank 0, or at every rank. If it fails anywhere, every rank throws.
void at_first(const Ranks& ranks, const std::function<void()>& work);
void everywhere(const Ranks& ranks, const std::function<void()>& work);

/// What `complain` needs of a RankError: the text without "rank 0: ", and whether it was a UsageError.
struct Complaint {
  std::string text;
  bool usage = false;
};
Complaint complaint_of(const RankError& error);

}  // namespace attn::cli
