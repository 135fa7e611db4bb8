// src/io/source.h: bytes to read, from a file or from memory, and the errors that name them.
#pragma once
#include <attn/tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace attn::io {

/// Text out of a file, fit for an error's one line: control characters, and bytes that are not UTF-8, as \x0A.
std::string one_line(std::string_view text);

/// ValueError for a path with a zero byte, where the system would take it to end.
void check_path(const char* function, const std::string& path);

/// Something of known size that can be read anywhere. `name` opens every error text: "load_npy: weights.npy".
class Source {
 public:
  virtual ~Source() = default;
  std::uint64_t size() const { return size_; }
  /// Exactly `bytes` bytes; FormatError where they end too early.
  void read(std::uint64_t offset, void* to, std::uint64_t bytes) const;
  /// FormatError "name: text (byte offset)"; what `text` quotes from the file is escaped here.
  [[noreturn]] void fail(const std::string& text, std::uint64_t offset) const;
  const std::string& name() const { return name_; }

 protected:
  Source(std::string name, std::uint64_t size) : name_(std::move(name)), size_(size) {}
  /// Reads what is there, at most `bytes`; 0 at the end.
  virtual std::size_t read_some(std::uint64_t offset, void* to, std::size_t bytes) const = 0;

  std::string name_;
  std::uint64_t size_;
};

class FileSource : public Source {
 public:
  /// IoError when it cannot be opened or is no regular file.
  FileSource(const char* function, const std::string& path);
  ~FileSource() override;
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

 private:
  std::size_t read_some(std::uint64_t offset, void* to, std::size_t bytes) const override;
  int file_ = -1;
};

class MemorySource : public Source {
 public:
  MemorySource(const char* function, std::span<const std::byte> bytes)
      : Source(function, bytes.size()), bytes_(bytes) {}

 private:
  std::size_t read_some(std::uint64_t offset, void* to, std::size_t bytes) const override;
  std::span<const std::byte> bytes_;
};

/// Bytes of `numel` elements; FormatError at `offset` when the product of the sizes (zeros left out) cannot be counted.
std::uint64_t checked_bytes(const Source& source, const Dims& sizes, Dtype dtype, std::uint64_t offset);

/// A new contiguous tensor filled from `offset`; a bool that is neither 0 nor 1 is a FormatError.
Tensor read_tensor(const Source& source, const Dims& sizes, Dtype dtype, std::uint64_t offset);

}  // namespace attn::io
