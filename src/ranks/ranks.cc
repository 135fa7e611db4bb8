// src/ranks/ranks.cc: ranks agree on errors, compare what must be equal, and notice when one of them is lost.
#include <attn/ranks.h>
#include <attn/runtime.h>

#include "ranks/failure.h"
#include "ranks/messages.h"
#include "text/error_text.h"

#include "runtime/format.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>

namespace attn {
namespace {

/// A job of one process.
class Alone final : public Transport {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    if (bytes != 0) std::memcpy(all, mine, bytes);
  }
  Request send(int, int, const void*, std::size_t) override { return 0; }
  Request receive(int, int, void*, std::size_t) override { return 0; }
  std::size_t wait(Request) override { return 0; }
  void cancel(Request) override {}
  std::size_t discard(int, int) override { return 0; }
  [[noreturn]] void abort(int code) noexcept override { ::_exit(code); }
};

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) { return "not enough memory"; } catch (const std::exception& known) {
    const std::string_view text = known.what();
    return std::string(text.substr(0, text.find('\n')));  // without the picture that some errors have
  } catch (...) { return "failed"; }
}

}  // namespace

RankError::RankError(int rank, const std::string& text)
    : Error(runtime::format("rank {}: {}", rank, text)), rank_(rank) {}

/// A thread that ends the process when nothing has been heard for too long.
struct Ranks::Watch {
  using Clock = std::chrono::steady_clock;
  Watch(double seconds, int rank) : limit(seconds), own(rank), thread([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard guard(lock);
      over = true;
    }
    wake.notify_one();
    thread.join();
  }
  void run() {
    std::unique_lock guard(lock);
    while (!over) {
      const Clock::time_point end = heard + std::chrono::duration_cast<Clock::duration>(limit);
      if (wake.wait_until(guard, end) == std::cv_status::timeout && Clock::now() >= heard + limit && !over) {
        const std::string line = runtime::format(
            "attn: rank {}: nothing was heard of the other ranks for {:g} s (--rank-timeout): one is lost, frozen or "
            "too slow\n",
            own, limit.count());
        std::fwrite(line.data(), 1, line.size(), stderr);
        std::fflush(stderr);
        ::_exit(1);  // another thread waits inside the transport, which cannot be called from here
      }
    }
  }

  const std::chrono::duration<double> limit;
  const int own;
  std::mutex lock;
  std::condition_variable wake;
  Clock::time_point heard = Clock::now();
  bool over = false;
  std::thread thread;
};

Ranks::Ranks() : transport_(std::make_shared<Alone>()) {}

Ranks::Ranks(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {
  same("attn", runtime::format("version {}, numerics version {}", version(), numerics_version));
}

int Ranks::rank() const { return transport_->rank(); }
int Ranks::size() const { return transport_->size(); }

void Ranks::set_timeout(double seconds) {
  watch_.reset();
  if (seconds > 0 && size() > 1) watch_ = std::make_shared<Watch>(seconds, rank());
}

void Ranks::heard() const {
  if (!watch_) return;
  const std::lock_guard guard(watch_->lock);
  watch_->heard = Watch::Clock::now();
}

void Ranks::agree(const std::exception_ptr& mine) const { any(false, mine); }

bool Ranks::any(bool flag, const std::exception_ptr& mine) const {
  if (size() == 1) {
    if (mine) std::rethrow_exception(mine);
    return flag;
  }
  constexpr std::uint32_t flag_bit = 1, error_bit = 2;
  const std::uint32_t own = (flag ? flag_bit : 0) | (mine ? error_bit : 0);
  std::vector<std::uint32_t> all(static_cast<std::size_t>(size()));
  transport_->all_gather(&own, sizeof own, all.data());
  heard();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((all[i] & error_bit) == 0) continue;
    const std::string text = mine ? text_of(mine) : "";
    throw RankError(static_cast<int>(i), gather(text)[i]);
  }
  for (const std::uint32_t each : all) flag = flag || (each & flag_bit) != 0;
  return flag;
}

/// Calls `allocate` before messages of that many bytes. A single rank may lack the memory for large ones.
void Ranks::make_room(std::uint64_t bytes, const std::function<void()>& allocate) const {
  constexpr std::uint64_t large = 1 << 20;
  if (bytes < large) return allocate();
  agree(failure_of(allocate));
}

std::vector<std::string> Ranks::gather(std::string_view mine) const {
  if (size() == 1) return {std::string(mine)};
  const auto ranks = static_cast<std::size_t>(size());
  const std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(ranks);
  transport_->all_gather(&length, sizeof length, lengths.data());
  heard();
  std::vector<std::string> all(ranks);
  const std::uint64_t most = *std::max_element(lengths.begin(), lengths.end());
  make_room(most, [&] {
    for (std::size_t i = 0; i < ranks; ++i)
      if (static_cast<int>(i) != rank()) all[i].resize(lengths[i]);
  });
  Messages messages(*transport_);
  for (int other = 0; other < size(); ++other) {
    std::string& theirs = all[static_cast<std::size_t>(other)];
    if (other == rank()) {
      theirs = mine;
      continue;
    }
    messages.receive(other, theirs.data(), theirs.size());
    messages.send(other, mine.data(), mine.size());
  }
  messages.wait();
  return all;
}

std::string Ranks::from_first(std::string_view mine) const {
  std::uint64_t length = mine.size();
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size()));
  transport_->all_gather(&length, sizeof length, lengths.data());
  std::string result;
  make_room(lengths[0], [&] {
    if (rank() == 0) result = mine;
    result.resize(lengths[0]);
  });
  Messages messages(*transport_);
  messages.from_first(result.data(), result.size());
  messages.wait();
  return result;
}

void Ranks::same(std::string_view what, std::string_view value) const {
  const std::vector<std::string> all = gather(value);
  for (std::size_t i = 1; i < all.size(); ++i)
    if (all[i] != all[0])
      throw RankError(static_cast<int>(i), text::error_text(runtime::format("{} is {}, but {} at rank 0; all ranks "
                                                                            "must have the same",
                                                                            what, all[i], all[0])));
}

}  // namespace attn
