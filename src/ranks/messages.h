// src/ranks/messages.h: messages of any length that are in flight at the same time.
#pragma once
#include <attn/ranks.h>

#include <algorithm>
#include <vector>

namespace attn {

/// Starts messages, cut into segments that every transport takes. `wait` must be called before the memory goes.
class Messages {
 public:
  static constexpr int channel = 0;
  explicit Messages(Transport& transport) : transport_(transport) {}
  /// Allocates memory for that many messages of at most that many bytes, so that starting them cannot fail.
  void reserve(std::size_t messages, std::size_t bytes) { requests_.reserve(messages * (bytes / segment + 1)); }
  void send(int to, const void* data, std::size_t bytes) {
    in_segments(bytes, [&](std::size_t at, std::size_t count) {
      requests_.push_back({transport_.send(to, channel, static_cast<const char*>(data) + at, count), sent});
    });
  }
  void receive(int from, void* data, std::size_t bytes) {
    in_segments(bytes, [&](std::size_t at, std::size_t count) {
      requests_.push_back({transport_.receive(from, channel, static_cast<char*>(data) + at, count), from});
    });
  }
  /// Rank 0 sends to all others, which receive.
  void from_first(void* data, std::size_t bytes) {
    if (transport_.rank() != 0) return receive(0, data, bytes);
    for (int other = 1; other < transport_.size(); ++other) send(other, data, bytes);
  }
  /// Waits for all. When one comes without a byte, it calls empty(from) and gives up what else is expected of that
  /// rank.
  template <typename F>
  void wait(const F& empty) {
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      const Open& open = requests_[i];
      if (open.from == given_up) {
        transport_.cancel(open.request);
      } else if (transport_.wait(open.request) == 0 && open.from != sent) {
        empty(open.from);
        for (std::size_t later = requests_.size() - 1; later > i; --later)
          if (requests_[later].from == open.from) requests_[later].from = given_up;
      }
    }
    requests_.clear();
  }
  void wait() {
    wait([](int) {});
  }

 private:
  static constexpr std::size_t segment = std::size_t{64} << 20;
  static constexpr int sent = -1, given_up = -2;
  struct Open {
    Transport::Request request;
    int from;  // or one of these
  };
  template <typename F>
  static void in_segments(std::size_t bytes, const F& f) {
    for (std::size_t at = 0; at < bytes; at += segment) f(at, std::min(segment, bytes - at));
  }
  Transport& transport_;
  std::vector<Open> requests_;
};

}  // namespace attn
