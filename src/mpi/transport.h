// src/mpi/transport.h: carries bytes by MPI.
#pragma once
#include <mpi.h>

#include <attn/ranks.h>

#include <vector>

namespace attn::mpi {

/// Uses a duplicate of the communicator. An error of MPI ends all processes, as MPI's own default does.
class MpiTransport : public Transport {
 public:
  explicit MpiTransport(MPI_Comm communicator);
  ~MpiTransport() override;
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_gather(const void* mine, std::size_t bytes, void* all) override;
  Request send(int to, int channel, const void* data, std::size_t bytes) override;
  Request receive(int from, int channel, void* data, std::size_t bytes) override;
  std::size_t wait(Request request) override;
  void cancel(Request request) override;
  std::size_t discard(int from, int channel) override;
  bool done(Request request) override;
  void progress() override;
  [[noreturn]] void abort(int code) noexcept override;

 private:
  void reserve_one();
  Request keep(MPI_Request request) noexcept;
  MPI_Comm communicator_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  std::vector<MPI_Request> requests_;
  std::vector<Request> free_;  // numbers of requests that are done
};

}  // namespace attn::mpi
