// src/mpi/transport.cc: implements the transport with MPI's messages of bytes.
#include "mpi/transport.h"

#include <unistd.h>

namespace attn::mpi {

MpiTransport::MpiTransport(MPI_Comm communicator) {
  MPI_Comm_dup(communicator, &communicator_);
  // A duplicate has the handler of its original, and mpi4py's returns errors; no call here looks at what it returns.
  MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_ARE_FATAL);
  MPI_Comm_rank(communicator_, &rank_);
  MPI_Comm_size(communicator_, &size_);
}

MpiTransport::~MpiTransport() {
  int over = 0;
  MPI_Finalized(&over);
  if (over == 0) MPI_Comm_free(&communicator_);
}

void MpiTransport::all_gather(const void* mine, std::size_t bytes, void* all) {
  const int count = static_cast<int>(bytes);
  MPI_Allgather(mine, count, MPI_BYTE, all, count, MPI_BYTE, communicator_);
}

/// Makes room for one more request, so that none is lost for want of memory after it has begun.
void MpiTransport::reserve_one() {
  if (!free_.empty()) return;
  if (requests_.size() == requests_.capacity()) requests_.reserve(2 * requests_.size() + 16);
  free_.reserve(requests_.capacity());
}

Transport::Request MpiTransport::keep(MPI_Request request) noexcept {
  if (free_.empty()) {
    requests_.push_back(request);
    return requests_.size() - 1;
  }
  const Request number = free_.back();
  free_.pop_back();
  requests_[number] = request;
  return number;
}

Transport::Request MpiTransport::send(int to, int channel, const void* data, std::size_t bytes) {
  reserve_one();
  MPI_Request request;
  MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, channel, communicator_, &request);
  return keep(request);
}

Transport::Request MpiTransport::receive(int from, int channel, void* data, std::size_t bytes) {
  reserve_one();
  MPI_Request request;
  MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, channel, communicator_, &request);
  return keep(request);
}

std::size_t MpiTransport::wait(Request request) {
  MPI_Status status;
  int bytes = 0;
  MPI_Wait(&requests_[request], &status);
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  free_.push_back(request);
  return static_cast<std::size_t>(bytes);
}

void MpiTransport::cancel(Request request) {
  MPI_Cancel(&requests_[request]);
  MPI_Wait(&requests_[request], MPI_STATUS_IGNORE);
  free_.push_back(request);
}

std::size_t MpiTransport::discard(int from, int channel) {
  MPI_Status status;
  int bytes = 0;
  MPI_Probe(from, channel, communicator_, &status);
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  std::vector<char> unused(static_cast<std::size_t>(bytes));
  MPI_Recv(unused.data(), bytes, MPI_BYTE, from, channel, communicator_, MPI_STATUS_IGNORE);
  return unused.size();
}

bool MpiTransport::done(Request request) {
  int over = 0;
  MPI_Test(&requests_[request], &over, MPI_STATUS_IGNORE);
  if (over != 0) free_.push_back(request);
  return over != 0;
}

void MpiTransport::progress() {
  int there = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &there, MPI_STATUS_IGNORE);
}

void MpiTransport::abort(int code) noexcept {
  MPI_Abort(communicator_, code);
  ::_exit(code);
}

}  // namespace attn::mpi
