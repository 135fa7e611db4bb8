// src/text/tokenizer/unigram.cc: finds the tokens with the greatest sum of scores, from left to right (Viterbi).
#include "text/tokenizer/unigram.h"

#include <attn/error.h>

#include "runtime/format.h"
#include "text/tokenizer/byte_level.h"
#include "text/error_text.h"
#include "text/unicode.h"

#include <algorithm>
#include <limits>

namespace attn::text {
namespace {

constexpr double unknown_penalty = 10;  // what an unknown character scores below the worst token

}  // namespace

Unigram::Unigram(const std::vector<std::string>& tokens, std::vector<double> scores, Options options)
    : scores_(std::move(scores)), options_(options) {
  std::vector<std::pair<std::string_view, std::int32_t>> named;
  for (std::size_t id = 0; id < scores_.size(); ++id) named.emplace_back(tokens[id], static_cast<std::int32_t>(id));
  trie_ = Trie(std::move(named));
  double least = std::numeric_limits<double>::infinity();
  for (const double score : scores_) least = std::min(least, score);
  unknown_score_ = least - unknown_penalty;
}

void Unigram::encode(std::string_view text, std::vector<std::int64_t>& ids) const {
  /// The best tokens up to a position: the last of them, where it begins, and the sum of their scores.
  struct Best {
    double sum = 0;
    std::int64_t id = 0;
    std::size_t begin = std::string_view::npos;
  };
  std::vector<Best> best(text.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, double score, std::int64_t id) {
    const double sum = score + best[begin].sum;
    if (best[end].begin != std::string_view::npos && !(sum > best[end].sum)) return;
    best[end] = {sum, id, begin};
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + code_point_at(text, at).bytes;
    bool alone = false;  // whether the character is a token
    Trie::Node node = Trie::root;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.child(node, static_cast<unsigned char>(text[end++]));
      if (node == Trie::none) break;
      const std::int32_t id = trie_.id(node);
      if (id < 0) continue;
      offer(at, end, scores_[static_cast<std::size_t>(id)], id);
      alone = alone || end == next;
    }
    if (!alone) offer(at, next, unknown_score_, options_.unknown.value_or(-1));
    at = next;
  }

  // Backwards, then in order. Unknown parts side by side are one.
  std::vector<std::string_view> parts;
  bool joins = false;
  for (std::size_t end = text.size(); end > 0;) {
    const auto [sum, id, begin] = best[end];
    const bool unknown = id == options_.unknown.value_or(-1);
    if (unknown && joins) parts.back() = text.substr(begin, end - begin + parts.back().size());
    else parts.push_back(text.substr(begin, end - begin));
    joins = unknown;
    end = begin;
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) look_up(*part, ids);
}

void Unigram::look_up(std::string_view part, std::vector<std::int64_t>& ids) const {
  const auto id_of = [&](std::string_view token) {
    const Trie::Node node = trie_.child(Trie::root, token);
    return node == Trie::none ? -1 : trie_.id(node);
  };
  if (const std::int32_t id = id_of(part); id >= 0) return ids.push_back(id);
  if (options_.byte_fallback) {
    const std::size_t before = ids.size();
    for (const char byte : part) {
      const std::int32_t id = id_of(name_of_byte(byte));
      if (id < 0) break;
      ids.push_back(id);
    }
    if (ids.size() == before + part.size()) return;
    ids.resize(before);
  }
  if (!options_.unknown)
    throw ValueError(runtime::format("encode: the tokenizer has no token for \"{}\" or for what is unknown",
                                     error_text(beginning(part, 40))));
  ids.push_back(*options_.unknown);
}

}  // namespace attn::text
