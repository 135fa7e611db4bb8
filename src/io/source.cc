// src/io/source.cc: reads bytes and elements from files and memory.
#include "io/source.h"

#include <attn/error.h>
#include <attn/ops.h>
#include <attn/text.h>
#include <fcntl.h>
#include "runtime/format.h"
#include "text/error_text.h"
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace attn::io {

static_assert(std::endian::native == std::endian::little, "files hold little-endian values");

std::string one_line(std::string_view text) {
  const bool utf8 = !text::invalid_utf8(text);
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) result += runtime::format("\\x{:02X}", byte);
    else result += c;
  }
  return result;
}

void check_path(const char* function, const std::string& path) {
  if (const std::size_t at = path.find('\0'); at != std::string::npos)
    throw ValueError(runtime::format("{}: the path {} has a zero byte at {}; no file has such a name", function,
                                     one_line(path), at));
}

void Source::fail(const std::string& why, std::uint64_t offset) const {
  constexpr std::size_t most = 500;  // limits the error text: a name in a file may be as long as the header
  std::string shown = one_line(text::beginning(why, most));
  if (why.size() > most) shown += "...";
  throw FormatError(runtime::format("{}: {} (byte {})", name_, shown, offset), offset);
}

void Source::read(std::uint64_t offset, void* to, std::uint64_t bytes) const {
  const std::uint64_t there = size_ - std::min(offset, size_);
  if (bytes > there) fail(runtime::format("the file ends here; {} more bytes are needed", bytes - there), size_);
  constexpr std::uint64_t at_once = 1 << 30;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t got = read_some(offset + done, static_cast<char*>(to) + done,
                                      static_cast<std::size_t>(std::min(bytes - done, at_once)));
    if (got == 0) fail("the file has become shorter", offset + done);
    done += got;
  }
}

FileSource::FileSource(const char* function, const std::string& path)
    : Source(runtime::format("{}: {}", function, path), 0) {
  check_path(function, path);
  file_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // open() must not wait for the writer of a pipe
  struct stat facts{};
  if (file_ < 0 || fstat(file_, &facts) != 0) {
    const int error = errno;
    if (file_ >= 0) close(file_);
    throw IoError(runtime::format("{}: {}", name_, std::generic_category().message(error)));
  }
  if (!S_ISREG(facts.st_mode)) {
    close(file_);
    throw IoError(runtime::format("{}: {}", name_, S_ISDIR(facts.st_mode) ? "Is a directory" : "Not a regular file"));
  }
  size_ = static_cast<std::uint64_t>(facts.st_size);
}

FileSource::~FileSource() { close(file_); }

std::size_t FileSource::read_some(std::uint64_t offset, void* to, std::size_t bytes) const {
  for (;;) {
    const ssize_t got = pread(file_, to, bytes, static_cast<off_t>(offset));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) throw IoError(runtime::format("{}: {}", name_, std::generic_category().message(errno)));
  }
}

std::size_t MemorySource::read_some(std::uint64_t offset, void* to, std::size_t bytes) const {
  std::memcpy(to, bytes_.data() + offset, bytes);
  return bytes;
}

std::uint64_t checked_bytes(const Source& source, const Dims& sizes, Dtype dtype, std::uint64_t offset) {
  std::int64_t product = static_cast<std::int64_t>(size_of(dtype));
  bool empty = false;
  for (std::int64_t size : sizes) {
    if (size == 0) empty = true;
    else if (__builtin_mul_overflow(product, size, &product))
      source.fail(runtime::format("shape {} has more elements than can be counted", to_string(sizes)), offset);
  }
  return empty ? 0 : static_cast<std::uint64_t>(product);
}

Tensor read_tensor(const Source& source, const Dims& sizes, Dtype dtype, std::uint64_t offset) {
  const std::uint64_t bytes = checked_bytes(source, sizes, dtype, offset);
  // This check comes before the allocation, so that a file cannot request more memory than it has data.
  if (offset > source.size() || bytes > source.size() - offset)
    source.fail(runtime::format("shape {} needs {} bytes from byte {}", to_string(sizes), bytes, offset),
                source.size());
  if (const auto first = source.kept(); first && dtype != Dtype::boolean && bytes > 0) {
    const std::byte* const data = first.get() + offset;
    if (reinterpret_cast<std::uintptr_t>(data) % size_of(dtype) == 0)
      return Tensor::from_blob(const_cast<std::byte*>(data), sizes, dtype, {}, [first](void*) {});
  }
  Tensor tensor = empty(sizes, dtype);
  source.read(offset, tensor.data(), bytes);
  if (dtype == Dtype::boolean) {
    const auto* first = static_cast<const unsigned char*>(tensor.data());
    const auto* wrong = std::find_if(first, first + bytes, [](unsigned char value) { return value > 1; });
    if (wrong != first + bytes)
      source.fail(runtime::format("a bool is {}; it must be 0 or 1", *wrong),
                  offset + static_cast<std::uint64_t>(wrong - first));
  }
  return tensor;
}

}  // namespace attn::io
