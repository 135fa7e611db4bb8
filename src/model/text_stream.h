// src/model/text_stream.h: bytes that arrive piece by piece as text: whole characters, and nothing that what follows
// may take back.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn {

class TextStream {
 public:
  /// With `strip_space` a space at the very begin is left out.
  explicit TextStream(std::vector<std::string> stop, bool strip_space = false)
      : stop_(std::move(stop)), strip_space_(strip_space) {}

  /// What is certain now. After a stop text nothing more comes. A run of lone bytes (tokens as <0xE4>) is text when it
  /// is UTF-8 as a whole; else each of them is U+FFFD, as in Hugging Face's library, so that it is held back until it
  /// ends.
  std::string add(std::string_view bytes, bool lone_byte = false);
  /// What was held back, at the end.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  void end_run();
  /// Characters of `bytes_` that are whole, or all; U+FFFD for what is none.
  void take_characters(bool all);
  /// Text up to a stop, or to where one may begin.
  std::string release(bool all);

  std::vector<std::string> stop_;
  bool strip_space_;
  std::string run_;    // lone bytes
  std::string bytes_;  // not yet characters
  std::string text_;   // not yet certain
  bool stopped_ = false;
};

}  // namespace attn
