// src/cli/output.h: results to stdout, whole files read, one line of error to stderr.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace attn::cli {

/// The reader of stdout has gone (| head): the command ends quietly.
struct ReaderGone {};

/// A wrong call: one line that says what was wrong; exit 2.
struct UsageError {
  std::string text;
};

/// Writes all of it to stdout. ReaderGone for a closed pipe, IoError otherwise.
void print(std::string_view text);

/// The name that stands for stdout where a file is written, for stdin where one is read.
constexpr std::string_view standard_stream = "-";
/// UsageError where `file`, given with `option`, is stdout and --json goes there too.
void check_apart(const char* option, std::string_view file, bool json);

/// The file's content, of "-" what stands on stdin. IoError names the path and the reason.
std::string read_file(const std::string& path);

/// Without the mark (U+FEFF) that some editors put before a text in UTF-8; in what a user writes it is no character.
std::string without_mark(std::string text);

/// Without line ends and control characters.
std::string one_line(std::string_view text);
/// At most `most` bytes, cut in its middle: an error opens with who speaks and often closes with what is needed.
std::string shortened(std::string text, std::size_t most);

/// "1 token", "3 tokens".
std::string counted(std::int64_t n, std::string_view what);

}  // namespace attn::cli
