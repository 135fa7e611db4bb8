// src/ranks/messages.h: messages of any length that are under way together.
#pragma once
#include <attn/ranks.h>

#include <algorithm>
#include <vector>

namespace attn {

/// Starts messages, cut into pieces that every transport takes. `wait` must be called before the memory goes.
class Messages {
 public:
  explicit Messages(Transport& transport) : transport_(transport) {}
  void send(int to, const void* data, std::size_t bytes) {
    in_pieces(bytes, [&](std::size_t at, std::size_t count) {
      requests_.push_back(transport_.send(to, channel, static_cast<const char*>(data) + at, count));
    });
  }
  void receive(int from, void* data, std::size_t bytes) {
    in_pieces(bytes, [&](std::size_t at, std::size_t count) {
      requests_.push_back(transport_.receive(from, channel, static_cast<char*>(data) + at, count));
    });
  }
  /// Rank 0 sends to all others, which receive.
  void from_first(void* data, std::size_t bytes) {
    if (transport_.rank() != 0) return receive(0, data, bytes);
    for (int other = 1; other < transport_.size(); ++other) send(other, data, bytes);
  }
  void wait() {
    for (const Transport::Request request : requests_) transport_.wait(request);
    requests_.clear();
  }

 private:
  template <typename F>
  static void in_pieces(std::size_t bytes, const F& f) {
    constexpr std::size_t piece = std::size_t{64} << 20;
    for (std::size_t at = 0; at < bytes; at += piece) f(at, std::min(piece, bytes - at));
  }
  static constexpr int channel = 0;
  Transport& transport_;
  std::vector<Transport::Request> requests_;
};

}  // namespace attn
