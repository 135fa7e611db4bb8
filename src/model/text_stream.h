// src/model/text_stream.h: decodes bytes that arrive piece by piece as text. It returns only complete characters, and
// only text that later bytes cannot change.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn {

class TextStream {
 public:
  /// With `strip_space` a space at the very beginning is removed.
  explicit TextStream(std::vector<std::string> stop, bool strip_space = false)
      : stop_(std::move(stop)), strip_space_(strip_space) {}

  /// Adds bytes and returns the text that is now final; after a stop text it returns nothing more. A run of single-byte
  /// tokens (such as <0xE4>) is held back until it ends. If the whole run is UTF-8 it becomes text, else each byte
  /// becomes U+FFFD, as in Hugging Face's library.
  std::string add(std::string_view bytes, bool lone_byte = false);
  /// Must be called at the end; returns the text that is still held back.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  void end_run();
  /// Moves the complete characters of `bytes_` (with `all`: all bytes) to `text_`; invalid bytes become U+FFFD.
  void take_characters(bool all);
  /// Returns the final part of `text_` and removes it: up to a stop text, or up to where a stop text may begin.
  std::string release(bool all);

  std::vector<std::string> stop_;
  bool strip_space_;
  std::string run_;    // the bytes of the current run of single-byte tokens
  std::string bytes_;  // bytes of a character that is not complete yet
  std::string text_;   // text that is not final yet
  bool stopped_ = false;
};

}  // namespace attn
