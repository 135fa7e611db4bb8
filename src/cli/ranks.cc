// src/cli/ranks.cc: recognises launchers, and loads the library of the MPI to which they belong.
#include "cli/ranks.h"

#include "cli/output.h"

#include "ranks/load_plugin.h"
#include "runtime/environment.h"
#include "runtime/format.h"

#include <attn/error.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

namespace attn::cli {
namespace {

constexpr std::string_view usage_mark = "usage: ";

/// Returns the number that a launcher has set in the environment; nullopt for a text that is not a number.
std::optional<int> number_of_launcher(const char* name) {
  try {
    const auto value = runtime::environment_integer(name, 0, std::numeric_limits<int>::max());
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  } catch (const ValueError&) { return std::nullopt; }
}

Launch read_launch() {
  if (const auto size = number_of_launcher("OMPI_COMM_WORLD_SIZE"))  // Open MPI's mpirun
    return {"openmpi", number_of_launcher("OMPI_COMM_WORLD_RANK").value_or(0), *size};
  if (const auto size = number_of_launcher("PMI_SIZE"))  // MPICH's, Intel's, and Slurm's srun --mpi=pmi2
    return {"mpich", number_of_launcher("PMI_RANK").value_or(0), *size};
  if (const auto rank = number_of_launcher("PMIX_RANK")) return {"openmpi", *rank, 0};  // srun --mpi=pmix
  return {};
}

/// Returns the paths at which attn's library for an MPI may be.
std::vector<std::string> places_of(const std::string& name) {
  if (const auto chosen = runtime::environment("ATTN_MPI_LIBRARY")) return {*chosen};
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::read_symlink("/proc/self/exe", unknown).parent_path();
  return {(folder / name).string(), (folder / ATTN_LIBRARIES / name).lexically_normal().string()};
}

std::shared_ptr<Transport> open_transport() {
  const std::string name = runtime::format("libattn_mpi_{}.so", launch().family);
  const mpi::Plugin plugin = mpi::load_plugin(places_of(name));
  if (!plugin.found)
    throw UsageError{runtime::format(
        "{} started several processes, and {} cannot be loaded: build attn with -DATTN_WITH_MPI=ON, or start one",
        launch().family == "openmpi" ? "Open MPI" : "MPICH", name)};
  if (!plugin.fits) throw UsageError{runtime::format("{} is not of this build of attn", name)};
  Transport* transport = plugin.begin();
  if (transport == nullptr) throw UsageError{runtime::format("{} cannot initialise MPI", name)};
  return {transport, plugin.end};
}

// leave_ranks drops the last reference, which finalises MPI. So rank 0 prints the error before another rank exits with
// a status that makes the launcher end all of them.
std::shared_ptr<Transport> joined;

}  // namespace

const Launch& launch() {
  static const Launch found = read_launch();
  return found;
}

void one_process(const std::string& verb) {
  if (launch().several())
    throw UsageError{runtime::format("several processes were started, and attn {} knows one: start it alone", verb)};
}

void with_ranks(const std::string& command, const std::function<void(const Ranks& ranks)>& work, double timeout) {
  if (!launch().several()) return work(Ranks());
  joined = open_transport();
  Ranks ranks(joined);
  ranks.set_timeout(timeout);
  ranks.same("the command", "attn " + command);
  try {
    work(ranks);
  } catch (const RankError&) { throw; } catch (const ReaderGone&) {
    throw;
  } catch (const UsageError& error) {
    ranks.agree(std::make_exception_ptr(Error(std::string(usage_mark) + error.text)));
    throw;
  } catch (...) {
    ranks.agree(std::current_exception());
    throw;
  }
}

void refuse_together(const std::string& error) {
  if (!launch().several() || joined) return;
  try {
    joined = open_transport();
  } catch (const UsageError&) { return; }  // there is no such library: `error` says what is wrong as well
  Ranks(joined).same("the command", "wrong: " + error);
}

void leave_ranks() { joined.reset(); }

void everywhere(const Ranks& ranks, const std::function<void()>& work) {
  if (ranks.size() == 1) return work();
  std::exception_ptr failure;
  try {
    work();
  } catch (const ReaderGone&) {  // nobody reads what rank 0 prints, which is no error
  } catch (const UsageError& error) {
    failure = std::make_exception_ptr(Error(std::string(usage_mark) + error.text));
  } catch (...) { failure = std::current_exception(); }
  ranks.agree(failure);
}

void at_first(const Ranks& ranks, const std::function<void()>& work) {
  everywhere(ranks, [&] {
    if (ranks.rank() == 0) work();
  });
}

Complaint complaint_of(const RankError& error) {
  std::string_view text = error.what();
  const std::string prefix = runtime::format("rank {}: ", error.rank());
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  const bool usage = text.starts_with(usage_mark);
  if (usage) text.remove_prefix(usage_mark.size());
  return {(error.rank() == 0 ? "" : prefix) + std::string(text), usage};
}

}  // namespace attn::cli
