// src/cli/vectors_file.cc: writes rows to FILE.part and renames it when it is complete.
#include "cli/vectors_file.h"

#include <attn/error.h>
#include <attn/ops.h>

#include "io/checksum.h"
#include "io/npy_header.h"

#include "runtime/format.h"
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <span>

namespace attn::cli {
namespace {

namespace fs = std::filesystem;

// The header of a NumPy file with two dims: it fits any sizes, and the format requires a multiple of 64.
constexpr std::size_t header_bytes = 128;

/// Returns the line that takes the place of the header while the file is incomplete.
std::string state_line(std::int64_t rows, std::int64_t columns, std::uint64_t mark) {
  const std::string facts = runtime::format("attn vectors {} of {} after {:016x}", rows, columns, mark);
  std::string line = runtime::format("{} {:016x}\n", facts, io::xxh64(std::as_bytes(std::span(facts))));
  line.resize(header_bytes, ' ');
  return line;
}

}  // namespace

VectorsFile::VectorsFile(const std::string& file, std::int64_t columns, Dtype dtype)
    : file_(file), columns_(columns), dtype_(dtype) {
  std::error_code unknown;
  if (fs::is_symlink(file_, unknown)) file_ = fs::weakly_canonical(file_, unknown).string();  // a link stays a link
  if (fs::exists(file_, unknown) && !fs::is_regular_file(file_, unknown))
    throw ValueError(runtime::format("{} is there and is no file; vectors need a file", file));
  part_ = file_ + ".part";
  handle_ = ::open(part_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (handle_ < 0) fail();
  if (::flock(handle_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(handle_);
    throw ValueError(runtime::format("{}: another attn embed is at work there", part_));
  }
  struct stat facts = {};
  const bool fresh = ::fstat(handle_, &facts) == 0 && facts.st_size == 0;
  if (fresh) save_state();
  if (fresh || read_state() || read_header()) return;
  ::close(handle_);
  throw ValueError(runtime::format(
      "{} is not the beginning of a file of vectors of {} numbers; remove it to begin anew", part_, columns));
}

VectorsFile::~VectorsFile() {
  if (handle_ >= 0) ::close(handle_);
}

void VectorsFile::fail() const { throw IoError(runtime::format("{}: {}", part_, std::strerror(errno))); }

std::uint64_t VectorsFile::row_bytes() const { return static_cast<std::uint64_t>(columns_) * size_of(dtype_); }

void VectorsFile::write(const void* data, std::size_t bytes, std::uint64_t at) const {
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t more =
        ::pwrite(handle_, static_cast<const char*>(data) + done, bytes - done, static_cast<off_t>(at + done));
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) fail();
    done += static_cast<std::size_t>(more);
  }
}

void VectorsFile::save_state() const {
  const std::string line = state_line(rows_, columns_, *mark_);
  write(line.data(), line.size(), 0);
}

bool VectorsFile::read_state() {
  std::string line(header_bytes, '\0');
  if (::pread(handle_, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size())) return false;
  std::int64_t rows = 0, columns = 0;
  std::uint64_t mark = 0;
  if (std::sscanf(line.c_str(), "attn vectors %" SCNd64 " of %" SCNd64 " after %" SCNx64, &rows, &columns, &mark) != 3)
    return false;
  struct stat facts = {};
  if (line != state_line(rows, columns, mark) || columns != columns_ || rows < 0 || ::fstat(handle_, &facts) != 0)
    return false;
  const std::uint64_t room = static_cast<std::uint64_t>(facts.st_size) - header_bytes;
  if (static_cast<std::uint64_t>(rows) > room / row_bytes()) return false;
  rows_ = rows, mark_ = mark;
  return true;
}

bool VectorsFile::read_header() {
  struct stat facts = {};
  if (::fstat(handle_, &facts) != 0 || static_cast<std::uint64_t>(facts.st_size) < header_bytes) return false;
  const std::uint64_t room = static_cast<std::uint64_t>(facts.st_size) - header_bytes;
  const auto rows = static_cast<std::int64_t>(room / row_bytes());
  std::string header(header_bytes, '\0');
  if (room % row_bytes() != 0 || ::pread(handle_, header.data(), header.size(), 0) != header_bytes ||
      header != io::make_npy_header({rows, columns_}, dtype_))
    return false;
  rows_ = rows, mark_ = std::nullopt;
  return true;
}

Tensor VectorsFile::row(std::int64_t index) const {
  const Tensor result = empty({1, columns_}, dtype_);
  const auto at = header_bytes + static_cast<std::uint64_t>(index) * row_bytes();
  if (::pread(handle_, result.data(), row_bytes(), static_cast<off_t>(at)) != static_cast<ssize_t>(row_bytes())) fail();
  return result;
}

void VectorsFile::append(const Tensor& rows, std::uint64_t mark) {
  const Tensor whole = rows.contiguous();
  const std::uint64_t bytes = static_cast<std::uint64_t>(whole.size(0)) * row_bytes();
  write(whole.data(), bytes, header_bytes + static_cast<std::uint64_t>(rows_) * row_bytes());
  if (::fdatasync(handle_) != 0) fail();  // first the rows, then that they are there
  rows_ += whole.size(0);
  mark_ = mark;
  save_state();
}

void VectorsFile::finish() {
  const std::string header = io::make_npy_header({rows_, columns_}, dtype_);
  if (header.size() != header_bytes)
    throw ValueError(runtime::format("{}: {} rows do not fit into the header of a NumPy file", part_, rows_));
  const std::uint64_t bytes = header_bytes + static_cast<std::uint64_t>(rows_) * row_bytes();
  if (::ftruncate(handle_, static_cast<off_t>(bytes)) != 0) fail();  // half a row that a killed run left
  write(header.data(), header.size(), 0);
  if (::fsync(handle_) != 0 || std::rename(part_.c_str(), file_.c_str()) != 0) fail();
  const fs::path folder = fs::path(file_).has_parent_path() ? fs::path(file_).parent_path() : fs::path(".");
  if (const int at = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); at >= 0) {
    ::fsync(at);  // where a folder cannot be synced, the name may come a little later
    ::close(at);
  }
}

void VectorsFile::drop_if_empty() {
  if (rows_ == 0) ::unlink(part_.c_str());
}

}  // namespace attn::cli
