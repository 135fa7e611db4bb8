// src/cli/train_texts.cc: reads the texts and pairs of a training.
#include "cli/train_texts.h"

#include "cli/output.h"

#include <attn/error.h>
#include <attn/text.h>

#include "runtime/format.h"

namespace attn::cli {
namespace {

std::string read_utf8(const std::string& path, bool any_bytes) {
  std::string text = read_file(path);
  if (const auto wrong = any_bytes ? std::nullopt : text::invalid_utf8(text))
    throw ValueError(
        runtime::format("{}: the byte at offset {} is not UTF-8; --tokens bpe takes any bytes", path, *wrong));
  return without_mark(std::move(text));
}

}  // namespace

std::string read_texts(const std::vector<std::string>& paths, bool any_bytes) {
  std::string all;
  for (const std::string& path : paths) all += read_utf8(path, any_bytes);
  if (all.empty()) throw ValueError(runtime::format("{}: there is no text", runtime::join(paths, ", ")));
  return all;
}

std::vector<TextPair> read_pairs(const std::string& path, bool any_bytes) {
  const std::string text = read_utf8(path, any_bytes);
  std::vector<TextPair> pairs;
  std::size_t number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    at = end + 1;
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty()) continue;
    const std::size_t tab = line.find('\t');
    if (tab == line.npos || line.find('\t', tab + 1) != line.npos)
      throw ValueError(runtime::format("{}: line {} has {}; a line is a source, one tab and a target", path, number,
                                       tab == line.npos ? "no tab" : "more than one tab"));
    if (tab == 0 || tab + 1 == line.size())
      throw ValueError(runtime::format("{}: line {} has no {}; a line is a source, one tab and a target", path, number,
                                       tab == 0 ? "source" : "target"));
    pairs.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  if (pairs.size() < 2)
    throw ValueError(runtime::format("{}: {} there; at least 2 are needed, one of them for validation", path,
                                     pairs.empty() ? "no pair is" : "one pair is"));
  return pairs;
}

}  // namespace attn::cli
