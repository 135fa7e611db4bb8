// include/attn/error.h: defines the exceptions of the library. Every text names the function, what was given and what
// is needed.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace attn {

/// The base of every exception that the library throws on purpose. The text is one line that is safe to print: a
/// control character or a byte that is not UTF-8 is written as an escape (\x1B), and a text above 1000 bytes is
/// shortened in the middle. The error for a mask without an alignment adds two pictures below that line.
class ATTN_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  Error(const std::string& text, const std::string& picture);
};

/// Sizes do not match each other.
class ATTN_API ShapeError : public Error {
 public:
  using Error::Error;
};

/// An element type is not supported, or types differ that must agree.
class ATTN_API DtypeError : public Error {
 public:
  using Error::Error;
};

/// A value is out of range or unknown (a probability of 1.5, an unknown word, a negative length).
class ATTN_API ValueError : public Error {
 public:
  using Error::Error;
};

/// A file is not in the format that it should be in; `offset` is the first wrong byte.
class ATTN_API FormatError : public Error {
 public:
  FormatError(const std::string& text, std::uint64_t offset) : Error(text), offset_(offset) {}
  std::uint64_t offset() const { return offset_; }

 private:
  std::uint64_t offset_;
};

/// The operating system reported an error: no such file, no space, no permission.
class ATTN_API IoError : public Error {
 public:
  using Error::Error;
};

}  // namespace attn
