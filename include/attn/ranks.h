// include/attn/ranks.h: several processes that share one job: what carries their bytes, how they agree, and a sum whose
// bits do not depend on how many they are.
#pragma once
#include <attn/error.h>
#include <attn/tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

// The definitions of this header are in the library attn::model. <attn/mpi.h> makes Ranks from an MPI communicator.
namespace attn {

/// Carries bytes between the ranks of a job. It moves them and never adds: a sum of floating-point numbers in the order
/// of a network has other bits for another number of ranks.
///  Messages from one rank to another with the same channel arrive in the order in which they were sent. All functions
/// are called from one thread.
class Transport {
 public:
  using Request = std::size_t;
  virtual ~Transport() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Writes `bytes` bytes of every rank to `all`, in the order of the ranks. Called by all ranks, with the same number.
  virtual void all_gather(const void* mine, std::size_t bytes, void* all) = 0;
  /// Start a message of less than 2^31 bytes. The memory must stay until `wait` has returned for the request.
  virtual Request send(int to, int channel, const void* data, std::size_t bytes) = 0;
  virtual Request receive(int from, int channel, void* data, std::size_t bytes) = 0;
  /// Waits until a message is sent or received. Returns the number of bytes received, at most those of its buffer; any
  /// number for a message that was sent.
  virtual std::size_t wait(Request request) = 0;
  /// Cancels the request of a message that will not arrive.
  virtual void cancel(Request request) = 0;
  /// Waits for the next message, discards it, and returns its number of bytes.
  virtual std::size_t discard(int from, int channel) = 0;
  /// Returns, without waiting, whether the message is sent or received. If so the request is complete, as after `wait`.
  virtual bool done(Request) { return false; }
  /// Progresses messages in flight without waiting; called regularly while this rank computes.
  virtual void progress() {}
  /// Ends the processes of all ranks.
  [[noreturn]] virtual void abort(int code) noexcept = 0;
};

/// attn's library for one MPI, loaded by a program that has initialised that MPI and is not linked with it, such as
/// Python. C++ programs that are linked with MPI use <attn/mpi.h>.
class ATTN_API MpiLibrary {
 public:
  /// files    where the library may be: libattn_mpi_openmpi.so or libattn_mpi_mpich.so
  /// version  what MPI_Get_library_version writes in the program
  /// Errors   ValueError when no file can be loaded, when it is of another build or for another MPI, or when MPI is not
  ///          running.
  MpiLibrary(const std::vector<std::string>& files, const std::string& version);
  /// Returns the transport of a communicator, given as Fortran's handle (MPI_Comm_c2f). It duplicates it. Collective.
  /// ValueError if it is null, or between two groups. Afterwards an agreement is a ValueError once MPI is finalised.
  std::shared_ptr<Transport> open(int communicator) const;

 private:
  struct Loaded;
  std::shared_ptr<const Loaded> loaded_;
};

/// An error that every rank throws, with the same text, although it occurred at one of them.
class ATTN_API RankError : public Error {
 public:
  RankError(int rank, const std::string& text);
  /// Returns the rank at which it occurred, the lowest if there are several; the text begins with it: "rank 2: ...".
  int rank() const { return rank_; }

 private:
  int rank_;
};

/// The ranks of a job, as one of them sees it. Copies share the same transport.
///  The functions are collective: every rank calls them, in the same order. Before others wait for a rank, it tells
/// them by `agree` whether it has failed, so that an error ends all of them and no rank waits for ever.
class ATTN_API Ranks {
 public:
  /// A single rank: nothing is sent.
  Ranks();
  /// Compares version and numerics version of all ranks: RankError when they differ.
  explicit Ranks(std::shared_ptr<Transport> transport);

  int rank() const;
  int size() const;
  Transport& transport() const { return *transport_; }

  /// Throws a RankError at every rank if any of them gives an exception; alone, throws that exception itself.
  void agree(const std::exception_ptr& mine = nullptr) const;
  /// The same, and returns whether `flag` is true at any rank.
  bool any(bool flag, const std::exception_ptr& mine = nullptr) const;
  /// Throws a RankError at every rank unless all give the same value; the text names the rank that differs.
  void same(std::string_view what, std::string_view value) const;
  /// Returns the bytes of every rank, of any lengths.
  std::vector<std::string> gather(std::string_view mine) const;
  /// Returns the bytes of rank 0.
  std::string from_first(std::string_view mine) const;

  /// From now on ends this process, with one line and exit status 1, when no `agree`, `any`, `same` or `gather` has
  /// received from the others for that many seconds: the only way out when a rank is frozen or cut off. 0: wait for
  /// ever.
  void set_timeout(double seconds);
  /// Notes that a message from other ranks arrived, for the timeout.
  void heard() const;

 private:
  struct Watch;
  void make_room(std::uint64_t bytes, const std::function<void()>& allocate) const;
  std::shared_ptr<Transport> transport_;
  std::shared_ptr<Watch> watch_;
};

/// Adds the parts that the ranks have, by the pairwise tree of docs/numerics.md section 5.2 over all parts: its left
/// side holds the largest power of two below their number. The bits depend on the parts, not on which rank has them.
///
/// Shapes   each part has the same shape at every rank; the result has it too, at every rank.
/// Dtypes   f32, f64, bf16, f16; sums of the last two are in f32 and rounded once.
/// parts    those of rank r, in order, are number n r / R to before n (r + 1) / R of all n; `count` is n, at least R.
/// Errors   RankError, at every rank, when a rank's parts are not those.
ATTN_API Tensor sum_ordered(const std::vector<Tensor>& parts, std::int64_t count, const Ranks& ranks);

}  // namespace attn
