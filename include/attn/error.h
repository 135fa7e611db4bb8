// include/attn/error.h: what a user's mistake is called; every text names the function, what was given and what is
// needed.
#pragma once
#include <attn/export.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace attn {

/// Everything the library throws on purpose. The text is one line that is safe to print: a control character or a byte
/// that is not UTF-8 is written as \x1B, and of more than 1000 bytes the middle is left out. A mask that does not say
/// how rows stand against keys adds the two pictures below it.
class ATTN_API Error : public std::runtime_error {
 public:
  explicit Error(const std::string& text);
  Error(const std::string& text, const std::string& picture);
};

/// Sizes that do not fit together.
class ATTN_API ShapeError : public Error {
 public:
  using Error::Error;
};

/// An element type that is not supported there, or types that differ where they must agree.
class ATTN_API DtypeError : public Error {
 public:
  using Error::Error;
};

/// A value outside what is meaningful (a probability of 1.5, an unknown word, a negative length).
class ATTN_API ValueError : public Error {
 public:
  using Error::Error;
};

/// A file that is not what it says; `offset` is the first byte that is wrong.
class ATTN_API FormatError : public Error {
 public:
  FormatError(const std::string& text, std::uint64_t offset) : Error(text), offset_(offset) {}
  std::uint64_t offset() const { return offset_; }

 private:
  std::uint64_t offset_;
};

/// The operating system refused: no such file, no space, no permission.
class ATTN_API IoError : public Error {
 public:
  using Error::Error;
};

}  // namespace attn
