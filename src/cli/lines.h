// src/cli/lines.h: reads the lines of a file or of stdin one by one, whatever their number.
#pragma once
#include <cstdint>
#include <string>

namespace attn::cli {

class Lines {
 public:
  /// Opens the file; "-" is stdin. Throws an IoError with the path and the reason.
  explicit Lines(const std::string& path);
  ~Lines();
  Lines(const Lines&) = delete;
  Lines& operator=(const Lines&) = delete;
  /// Reads the next line, without its line end; the last may lack it. A byte order mark before the first is left out.
  /// Returns false at the end, and, once the descriptor `stop` can be read (StopSignals), where it would have to read
  /// more; a line that is half read is then lost. Throws an IoError if the file cannot be read.
  bool next(std::string& line, int stop = -1);
  std::int64_t count() const { return count_; }  ///< lines so far
  /// The path as errors name it: "stdin" for "-".
  const std::string& name() const { return name_; }

 private:
  /// Reads more into the empty buffer; returns false at the end and if it is to stop.
  bool fill(int stop);
  [[noreturn]] void fail() const;
  std::string name_;
  int file_;
  std::string buffer_;  // what was read
  std::size_t at_ = 0;  // where its next line begins
  bool ended_ = false;
  std::int64_t count_ = 0;
};

}  // namespace attn::cli
