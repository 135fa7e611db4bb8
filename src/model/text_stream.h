// src/model/text_stream.h: turns bytes that arrive piece by piece into text: returns whole characters only, and only
// text that later bytes cannot change.
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

  /// Returns the text that is now final. After a stop text it returns nothing more. A run of single-byte tokens (such
  /// as <0xE4>) is held back until it ends: if the whole run is UTF-8 it becomes text, else each byte becomes U+FFFD,
  /// as in Hugging Face's library.
  std::string add(std::string_view bytes, bool lone_byte = false);
  /// Returns the text that is still held back, at the end.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  void end_run();
  /// Moves the complete characters of `bytes_` (with `all`: all bytes) to `text_`; invalid bytes become U+FFFD.
  void take_characters(bool all);
  /// Takes the text up to a stop text, or up to where one may begin.
  std::string release(bool all);

  std::vector<std::string> stop_;
  bool strip_space_;
  std::string run_;    // bytes of single-byte tokens
  std::string bytes_;  // not yet complete characters
  std::string text_;   // not yet final
  bool stopped_ = false;
};

}  // namespace attn
