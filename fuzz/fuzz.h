// fuzz/fuzz.h: what fuzzers share: an answer is a result or an attn::Error of clean text, everything else a finding.
#pragma once
#include <attn/attn.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <new>
#include <string>

namespace attn::fuzz {

/// Nothing catches it but the program that replays tests/attacks/, so a fuzzer ends with it.
struct Finding {
  std::string what;
};

[[noreturn]] inline void finding(const std::string& what) {
  std::fprintf(stderr, "FINDING: %s\n", what.c_str());
  throw Finding{what};
}
inline void check(bool holds, const std::string& what) {
  if (!holds) finding(what);
}

/// UTF-8 without control characters; lines where `lines` says so.
inline void check_clean(const std::string& text, bool lines) {
  check(!text::invalid_utf8(text).has_value(), "bytes that are not UTF-8 in: " + text);
  for (const unsigned char byte : text)
    check((byte >= 0x20 && byte != 0x7F) || (lines && byte == '\n'), "a control byte in: " + text);
}

/// Whether f() came through; false when it said, in a clean text, what was wrong.
template <typename F>
bool answers(F&& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    const std::string text = error.what();
    check(!text.empty() && text.size() <= 4000,
          "an error of " + std::to_string(text.size()) + " bytes: " + text.substr(0, 200));
    check_clean(text, /*lines=*/true);  // below an error of a mask stand its pictures
  } catch (const std::bad_alloc&) { finding("std::bad_alloc"); } catch (const std::exception& error) {
    finding(std::string("an exception that is not attn's: ") + error.what());
  }
  return false;
}

/// An input as a row of choices; 0 behind its end.
class Choices {
 public:
  Choices(const std::uint8_t* data, std::size_t size) : at_(data), end_(data + size) {}
  bool empty() const { return at_ == end_; }
  std::int64_t below(int n) { return empty() ? 0 : *at_++ % n; }
  std::int64_t between(int least, int most) { return least + below(most - least + 1); }
  bool coin() { return below(2) != 0; }
  template <typename T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[below(static_cast<int>(values.size()))];
  }
  std::string rest() {
    const std::string text(reinterpret_cast<const char*>(at_), static_cast<std::size_t>(end_ - at_));
    at_ = end_;
    return text;
  }

 private:
  const std::uint8_t *at_, *end_;
};

}  // namespace attn::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
