// src/io/source.h: declares sources of bytes, a file or memory, and the errors that name them.
#pragma once
#include <attn/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace attn::io {

/// Makes text from a file fit into one line of an error: writes ASCII control characters, and all bytes from 0x80 if
/// the text is not UTF-8, as escapes such as \x0A.
std::string one_line(std::string_view text);

/// Throws ValueError for a path with a zero byte, at which the system would end the path.
void check_path(const char* function, const std::string& path);

/// A sequence of bytes of known size that can be read at any offset. `name` starts every error text: "load_npy:
/// weights.npy".
class Source {
 public:
  virtual ~Source() = default;
  std::uint64_t size() const { return size_; }
  /// Reads exactly `bytes` bytes; throws FormatError if the source ends earlier.
  void read(std::uint64_t offset, void* to, std::uint64_t bytes) const;
  /// Throws FormatError "name: text (byte offset)"; `text` may quote the file, so it is escaped.
  [[noreturn]] void fail(const std::string& why, std::uint64_t offset) const;
  const std::string& name() const { return name_; }
  /// Returns the first of its bytes if they stay where they are as long as somebody has this pointer, else null.
  virtual std::shared_ptr<const std::byte> kept() const { return nullptr; }

 protected:
  Source(std::string name, std::uint64_t size) : name_(std::move(name)), size_(size) {}
  /// Reads at most `bytes` bytes and returns how many; 0 at the end.
  virtual std::size_t read_some(std::uint64_t offset, void* to, std::size_t bytes) const = 0;

  std::string name_;
  std::uint64_t size_;
};

class FileSource : public Source {
 public:
  /// Throws IoError if the file cannot be opened or is not a regular file.
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
  /// Bytes that `owner` keeps, as those of a mapped file: tensors are not copied from there.
  MemorySource(std::string name, std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : Source(std::move(name), bytes.size()), bytes_(bytes), owner_(std::move(owner)) {}
  std::shared_ptr<const std::byte> kept() const override {
    return owner_ ? std::shared_ptr<const std::byte>(owner_, bytes_.data()) : nullptr;
  }

 private:
  std::size_t read_some(std::uint64_t offset, void* to, std::size_t bytes) const override;
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

/// Returns the number of bytes of a tensor. Throws FormatError at `offset` if the product of the sizes (zeros left out)
/// overflows.
std::uint64_t checked_bytes(const Source& source, const Dims& sizes, Dtype dtype, std::uint64_t offset);

/// Returns a contiguous tensor read from `offset`, or the bytes themselves if they stay and are aligned; throws
/// FormatError if the source ends earlier or a bool is neither 0 nor 1.
Tensor read_tensor(const Source& source, const Dims& sizes, Dtype dtype, std::uint64_t offset);

}  // namespace attn::io
