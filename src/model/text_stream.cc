// src/model/text_stream.cc: decodes bytes into characters, and holds back the end of the text while it may begin a stop
// text.
#include "model/text_stream.h"

#include <attn/text.h>

#include <algorithm>

namespace attn {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

/// Returns the length in bytes of a UTF-8 character with this first byte; 0: no character begins with it.
std::size_t length_of(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xC2 ? 0 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : lead < 0xF5 ? 4 : 0;
}

/// Returns whether `c` may be the next byte of a character that begins with `lead`. As the second byte it must not make
/// an overlong form, a surrogate or a code point above U+10FFFF. So each U+FFFD replaces as many bytes as in Hugging
/// Face's library and in Python.
bool continues(unsigned char lead, char c, bool second) {
  const auto byte = static_cast<unsigned char>(c);
  const int least = !second        ? 0x80
                    : lead == 0xE0 ? 0xA0
                    : lead == 0xF0 ? 0x90
                                   : 0x80,
            most = !second        ? 0xBF
                   : lead == 0xED ? 0x9F
                   : lead == 0xF4 ? 0x8F
                                  : 0xBF;
  return byte >= least && byte <= most;
}

}  // namespace

void TextStream::take_characters(bool all) {
  std::size_t at = 0;
  while (at < bytes_.size()) {
    const auto lead = static_cast<unsigned char>(bytes_[at]);
    const std::size_t length = length_of(lead);
    std::size_t there = 1;
    while (there < length && at + there < bytes_.size() && continues(lead, bytes_[at + there], there == 1)) ++there;
    if (there < length && at + there == bytes_.size() && !all) break;  // the missing bytes may still arrive
    if (there == length) text_.append(bytes_, at, there);
    else text_ += replacement;
    at += there;
  }
  bytes_.erase(0, at);
  if (strip_space_ && !text_.empty()) {
    text_.erase(0, text_[0] == ' ');
    strip_space_ = false;
  }
}

void TextStream::end_run() {
  if (!text::invalid_utf8(run_)) bytes_ += run_;
  else
    for (std::size_t i = 0; i < run_.size(); ++i) bytes_ += replacement;
  run_.clear();
}

std::string TextStream::release(bool all) {
  // of several stop texts the one that is complete first counts, whatever the pieces in which the text arrived
  std::size_t end = text_.size(), complete = std::string::npos;
  for (const std::string& stop : stop_) {
    const std::size_t found = stop.empty() ? std::string::npos : text_.find(stop);
    if (found == std::string::npos || found + stop.size() > complete) continue;
    end = found + stop.size() < complete ? found : std::min(end, found);
    complete = found + stop.size();
    stopped_ = true;
  }
  for (const std::string& stop : stop_) {
    if (stop.empty() || stopped_ || all) continue;
    // the last n bytes may be the beginning of a stop text
    for (std::size_t n = std::min(stop.size() - 1, text_.size()); n > 0; --n)
      if (text_.ends_with(std::string_view(stop).substr(0, n))) {
        end = std::min(end, text_.size() - n);
        break;
      }
  }
  std::string result = text_.substr(0, end);
  text_ = stopped_ ? "" : text_.substr(end);
  return result;
}

std::string TextStream::add(std::string_view bytes, bool lone_byte) {
  if (stopped_) return {};
  if (lone_byte) {
    run_ += bytes;
    return {};
  }
  end_run();
  bytes_ += bytes;
  take_characters(false);
  return release(false);
}

std::string TextStream::finish() {
  if (stopped_) return {};
  end_run();
  take_characters(true);
  return release(true);
}

}  // namespace attn
