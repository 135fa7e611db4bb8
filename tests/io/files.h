// tests/io/files.h: files of the golden table, and damaged copies of them.
#pragma once
#include "support/errors.h"
#include "support/folder.h"
#include "support/golden.h"

#include <attn/error.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace attn::testing {

using Bytes = std::vector<std::byte>;

inline Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline Bytes golden_file(const std::string& name) {
  const std::string hex = golden("io/files.json").at(name).get<std::string>();
  Bytes bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline Bytes read_file(const std::string& path) { return bytes_of(content_of(path)); }
inline void write_file(const std::string& path, const Bytes& bytes) {
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

/// Parses every beginning of `whole`, and copies with a few random bytes changed, inserted or removed: each gives a
/// result or an error of the library, nothing else. Returns how many were refused.
template <typename Parse>
int attack(const Bytes& whole, int rounds, Parse parse) {
  int refused = 0;
  const auto attempt = [&](const Bytes& bytes) {
    try {
      parse(std::span<const std::byte>(bytes));
    } catch (const FormatError& error) {
      EXPECT_LE(error.offset(), bytes.size()) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      ++refused;
    } catch (const DtypeError&) { ++refused; }
  };
  for (std::size_t length = 0; length < whole.size(); ++length)
    attempt(Bytes(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length)));
  std::mt19937 random(7);
  for (int round = 0; round < rounds; ++round) {
    Bytes bytes = whole;
    for (std::uint32_t changes = 1 + random() % 3; changes > 0 && !bytes.empty(); --changes) {
      const auto at = bytes.begin() + static_cast<std::ptrdiff_t>(random() % bytes.size());
      switch (random() % 4) {
        case 0: *at ^= static_cast<std::byte>(1u << random() % 8); break;
        case 1: *at = static_cast<std::byte>("0123456789{}[]\",:-e"[random() % 19]); break;
        case 2: bytes.insert(at, static_cast<std::byte>(random() % 256)); break;
        default: bytes.erase(at);
      }
    }
    attempt(bytes);
  }
  return refused;
}

}  // namespace attn::testing
