// src/cli/output.h: prints results to stdout, remarks to stderr, reads whole files, and formats errors as one line.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace attn::cli {

/// Thrown when the program that reads stdout has ended (| head). The command then ends quietly with exit code 0.
struct ReaderGone {};

/// Thrown for a wrong call of the command. `text` is one line that says what is wrong; the exit code is 2.
struct UsageError {
  std::string text;
};

/// Writes the whole text to stdout. Throws ReaderGone if the pipe is closed, IoError for other failures.
void print(std::string_view text);
/// Writes the text to stderr, which has no buffer.
void say(std::string_view text);

/// The file name "-": stdout for an output file, stdin for an input file.
constexpr std::string_view standard_stream = "-";
/// Throws a UsageError if `file`, given with `option`, is stdout and --json also prints there.
void check_apart(const char* option, std::string_view file, bool json);

/// Returns the content of the file; "-" reads stdin. Throws an IoError with the path and the reason.
std::string read_file(const std::string& path);

/// Removes the byte order mark (U+FEFF) that some editors write at the start of a UTF-8 text; it is no part of the
/// text.
std::string without_mark(std::string text);

/// Replaces line ends and control characters, so that the text fits on one line.
std::string one_line(std::string_view text);
/// Cuts the middle out of a text that is longer than `most` bytes, because the beginning of an error names its source
/// and its end often says what is needed.
std::string shortened(std::string text, std::size_t most);

/// Returns "1 token", "3 tokens".
std::string counted(std::int64_t n, std::string_view what);

}  // namespace attn::cli
