// src/cli/lines.h: reads the lines of a file or of stdin one by one, whatever their number.
#pragma once
#include <cstdint>
#include <fstream>
#include <istream>
#include <string>

namespace attn::cli {

class Lines {
 public:
  /// Opens the file; "-" is stdin. Throws an IoError with the path and the reason.
  explicit Lines(const std::string& path);
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  /// Reads the next line, without its line end; the last may lack it. A byte order mark before the first is left out.
  /// Returns false at the end; throws an IoError if the file cannot be read.
  bool next(std::string& line);
  std::int64_t count() const { return count_; }  ///< lines so far
  /// The path as errors name it: "stdin" for "-".
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::ifstream file_;
  std::istream* from_;
  std::int64_t count_ = 0;
};

}  // namespace attn::cli
