// bench/ranks/recorded.h: a transport in front of another one, which can leave out the large messages of a job, so that
// its computing is measured alone, and repeat them without the computing.
#pragma once
#include <attn/ranks.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

namespace attn::bench {

class Recorded final : public Transport {
 public:
  enum class Mode { pass, note, leave_out };
  explicit Recorded(const Ranks& over) : ranks_(over), over_(over.transport()) {}

  void set(Mode mode) {
    mode_ = mode;
    if (mode == Mode::note) log_.clear(), waiting_ = 0;
  }
  /// From now on messages of lower channels are not large ones: 8 leaves those of the gradients of a training.
  void set_least_channel(int channel) { least_channel_ = channel; }
  /// Returns the bytes that this rank has sent since it began to note.
  std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Entry& entry : log_)
      if (entry.kind == Kind::send) sum += static_cast<std::int64_t>(entry.bytes);
    return sum;
  }
  /// Returns the seconds that this rank has done nothing but wait since it began to note.
  double waiting() const { return waiting_; }
  /// Sends and receives as the log says, waiting where the job did.
  void repeat();

  int rank() const override { return over_.rank(); }
  int size() const override { return over_.size(); }
  void all_gather(const void* mine, std::size_t bytes, void* all) override {
    if (mode_ == Mode::note) log_.push_back({Kind::gather, 0, 0, bytes, 0});
    const double begin = seconds();
    over_.all_gather(mine, bytes, all);
    waiting_ += seconds() - begin;
  }
  Request send(int to, int channel, const void* data, std::size_t bytes) override {
    return keep(Kind::send, to, channel, bytes, [&] { return over_.send(to, channel, data, bytes); });
  }
  Request receive(int from, int channel, void* data, std::size_t bytes) override {
    return keep(Kind::receive, from, channel, bytes, [&] { return over_.receive(from, channel, data, bytes); });
  }
  std::size_t wait(Request request) override {
    const Open open = open_[request];
    const double begin = seconds();
    const std::size_t bytes = open.left_out ? open.bytes : over_.wait(open.request);
    waiting_ += seconds() - begin;
    close(request);
    return bytes;
  }
  void cancel(Request request) override {
    if (!open_[request].left_out) over_.cancel(open_[request].request);
    close(request);
  }
  std::size_t discard(int from, int channel) override { return over_.discard(from, channel); }
  bool done(Request request) override {
    if (!open_[request].left_out && !over_.done(open_[request].request)) return false;
    close(request);
    return true;
  }
  void progress() override { over_.progress(); }
  [[noreturn]] void abort(int code) noexcept override {
    over_.abort(code);
    std::abort();
  }

 private:
  static constexpr std::size_t large = 65536;  // smaller ones tell the ranks what they agree on
  enum class Kind { send, receive, gather, wait };
  struct Entry {
    Kind kind;
    int peer, channel;
    std::size_t bytes;
    std::size_t of;  // the entry that is waited for
  };
  struct Open {
    Request request = 0;
    bool left_out = false;
    std::size_t entry = 0, bytes = 0;
  };

  template <typename F>
  Request keep(Kind kind, int peer, int channel, std::size_t bytes, const F& start) {
    const bool counts = channel >= least_channel_;
    Open open{.left_out = mode_ == Mode::leave_out && counts && bytes >= large, .entry = none, .bytes = bytes};
    if (!open.left_out) open.request = start();
    if (mode_ == Mode::note && counts) open.entry = log_.size(), log_.push_back({kind, peer, channel, bytes, 0});
    if (free_.empty()) {
      open_.push_back(open);
      return open_.size() - 1;
    }
    const Request number = free_.back();
    free_.pop_back();
    open_[number] = open;
    return number;
  }
  void close(Request request) {
    if (mode_ == Mode::note && open_[request].entry != none)
      log_.push_back({Kind::wait, 0, 0, 0, open_[request].entry});
    free_.push_back(request);
  }

  static double seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }

  static constexpr std::size_t none = ~std::size_t{0};
  const Ranks ranks_;
  Transport& over_;
  Mode mode_ = Mode::pass;
  int least_channel_ = 0;
  double waiting_ = 0;
  std::vector<Entry> log_;
  std::vector<Open> open_;
  std::vector<Request> free_;
};

inline void Recorded::repeat() {
  std::size_t most = 0;
  for (const Entry& entry : log_) most = std::max(most, entry.bytes);
  std::vector<char> sent(most), gathered(most * static_cast<std::size_t>(size()));
  std::vector<std::vector<char>> unused;
  std::vector<std::pair<Request, std::vector<char>>> open(log_.size());
  for (std::size_t i = 0; i < log_.size(); ++i) {
    const Entry& entry = log_[i];
    switch (entry.kind) {
      case Kind::gather: over_.all_gather(sent.data(), entry.bytes, gathered.data()); break;
      case Kind::send: open[i].first = over_.send(entry.peer, entry.channel, sent.data(), entry.bytes); break;
      case Kind::receive:
        if (unused.empty()) unused.emplace_back(most);
        open[i].second = std::move(unused.back());
        unused.pop_back();
        open[i].first = over_.receive(entry.peer, entry.channel, open[i].second.data(), entry.bytes);
        break;
      case Kind::wait:
        over_.wait(open[entry.of].first);
        if (log_[entry.of].kind == Kind::receive) unused.push_back(std::move(open[entry.of].second));
        break;
    }
  }
}

}  // namespace attn::bench
