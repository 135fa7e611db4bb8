// tests/mpi/watched.h: a transport in front of that of some ranks, which tells of what they do.
#pragma once
#include <attn/ranks.h>

#include <cstdlib>
#include <functional>

namespace attn::testing {

/// Passes on what ranks send, and tells of it.
class Watched final : public Transport {
 public:
  explicit Watched(const Ranks& over) : over_(over) {}
  std::function<void(int to, int channel)> on_send = [](int, int) {};
  std::function<void()> on_progress = [] {};
  std::function<void()> after_wait = [] {};
  std::function<void()> on_gather = [] {};
  bool tests = true;  // else it is a transport that has no `done`

  int rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    on_gather();
    over_.transport().all_gather(mine, bytes, all);
  }
  Request send(int to, int channel, const void* data, std::size_t bytes) override {
    on_send(to, channel);
    return over_.transport().send(to, channel, data, bytes);
  }
  Request receive(int from, int channel, void* data, std::size_t bytes) override {
    return over_.transport().receive(from, channel, data, bytes);
  }
  std::size_t wait(Request request) override {
    const std::size_t bytes = over_.transport().wait(request);
    after_wait();
    return bytes;
  }
  void cancel(Request request) override { over_.transport().cancel(request); }
  std::size_t discard(int from, int channel) override { return over_.transport().discard(from, channel); }
  bool done(Request request) override { return tests ? over_.transport().done(request) : Transport::done(request); }
  void progress() override {
    on_progress();
    over_.transport().progress();
  }
  [[noreturn]] void abort(int code) noexcept override {
    over_.transport().abort(code);
    std::abort();
  }

 private:
  const Ranks over_;
};

}  // namespace attn::testing
