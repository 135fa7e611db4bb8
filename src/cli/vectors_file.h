// src/cli/vectors_file.h: writes a NumPy file row by row. Until it is complete its name is FILE.part, which a later run
// continues.
#pragma once
#include <attn/tensor.h>

#include <cstdint>
#include <optional>
#include <string>

namespace attn::cli {

/// Rows of f32 or f64 numbers. FILE.part holds the rows. In the place of the header of a NumPy file it has the number
/// of complete rows, and a number that the caller chose for them. A killed run leaves it. It is locked, so that two
/// runs do not write one file. Just before FILE.part is renamed, it has the NumPy header instead.
class VectorsFile {
 public:
  /// Opens FILE.part, or makes it. Throws an IoError; a ValueError if another run writes it, if it is no such file or
  /// has rows of another size, or if FILE is there and is no file (a pipe, a device).
  VectorsFile(const std::string& file, std::int64_t columns, Dtype dtype);
  ~VectorsFile();
  VectorsFile(const VectorsFile&) = delete;
  VectorsFile& operator=(const VectorsFile&) = delete;

  std::int64_t rows() const { return rows_; }
  /// Returns the number that was saved with the rows, 0 without rows; nullopt if the run was killed just before the
  /// rename.
  std::optional<std::uint64_t> mark() const { return mark_; }
  const std::string& part() const { return part_; }
  /// Returns a row, [1, columns].
  Tensor row(std::int64_t index) const;
  /// Appends rows [n, columns], and keeps the number with them.
  void append(const Tensor& rows, std::uint64_t mark);
  /// Writes the header, syncs FILE.part and renames it to FILE.
  void finish();
  /// Removes FILE.part if it has no row: nothing is lost with it.
  void drop_if_empty();

 private:
  [[noreturn]] void fail() const;
  void write(const void* data, std::size_t bytes, std::uint64_t at) const;
  void save_state() const;
  bool read_state();
  bool read_header();
  std::uint64_t row_bytes() const;
  std::string file_, part_;
  const std::int64_t columns_;
  const Dtype dtype_;
  int handle_ = -1;
  std::int64_t rows_ = 0;
  std::optional<std::uint64_t> mark_ = 0;
};

}  // namespace attn::cli
