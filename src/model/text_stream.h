// src/model/text_stream.h: bytes that arrive piece by piece as text: whole characters, and nothing that a stop text may take back.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace attn {

class TextStream {
 public:
  explicit TextStream(std::vector<std::string> stop) : stop_(std::move(stop)) {}

  /// What is certain now. After a stop text nothing more comes.
  std::string add(std::string_view bytes);
  /// What was held back, at the end.
  std::string finish();
  bool stopped() const { return stopped_; }

 private:
  /// Characters of `bytes_` that are whole, or all; U+FFFD for what is none.
  void take_characters(bool all);
  /// Text up to a stop, or to where one may begin.
  std::string release(bool all);

  std::vector<std::string> stop_;
  std::string bytes_;  // not yet characters
  std::string text_;   // not yet certain
  bool stopped_ = false;
};

}  // namespace attn
