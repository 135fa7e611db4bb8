// fuzz/fuzz.h: declares what fuzzers share: a call must return a result or throw an attn::Error with clean text;
// everything else is a finding.
#pragma once
#include <attn/attn.h>

#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <new>
#include <string>

namespace attn::fuzz {

/// Only the program that replays tests/attacks/ catches this, so it ends a fuzzer.
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

/// Checks that the text is UTF-8 without ASCII control characters; line ends are allowed if `lines`.
inline void check_clean(const std::string& text, bool lines) {
  check(!text::invalid_utf8(text).has_value(), "bytes that are not UTF-8 in: " + text);
  for (const unsigned char byte : text)
    check((byte >= 0x20 && byte != 0x7F) || (lines && byte == '\n'), "a control byte in: " + text);
}

/// Returns whether f() succeeded; false if it threw an error with clean text.
template <typename F>
bool answers(F&& f) {
  try {
    f();
    return true;
  } catch (const Error& error) {
    const std::string text = error.what();
    check(!text.empty() && text.size() <= 4000,
          "an error of " + std::to_string(text.size()) + " bytes: " + text.substr(0, 200));
    check_clean(text, /*lines=*/true);  // an error of a mask has pictures below its text
  } catch (const std::bad_alloc&) { finding("std::bad_alloc"); } catch (const std::exception& error) {
    finding(std::string("an exception that is not attn's: ") + error.what());
  }
  return false;
}

/// Reads an input as a sequence of choices; gives 0 after its end.
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
