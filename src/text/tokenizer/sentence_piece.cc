// src/text/tokenizer/sentence_piece.cc: normalizes a text and finds its pieces with the greatest sum of scores, with
// the order of sums, in f32, of SentencePiece.
#include "text/tokenizer/sentence_piece.h"

#include <attn/error.h>

#include "runtime/format.h"
#include "text/unicode.h"

#include <algorithm>
#include <limits>

namespace attn::text {
namespace {

using Type = SentencePieceFile::Type;

constexpr float penalty_of_unknown = 10;

}  // namespace

SentencePiece::SentencePiece(const SentencePieceFile& file, const std::string& name)
    : dummy_prefix_(file.dummy_prefix), remove_spaces_(file.remove_spaces), escape_spaces_(file.escape_spaces),
      space_behind_(file.space_behind) {
  if (file.model_type != 1)
    throw ValueError(runtime::format("{}: its model_type is {}; it must be 1, Unigram", name, file.model_type));
  if (file.byte_fallback) throw ValueError(runtime::format("{}: byte_fallback is not supported", name));
  if (!file.charsmap.empty()) {
    charsmap_ = std::make_unique<const Charsmap>(file.charsmap);
    if (!charsmap_->damage().empty())
      throw ValueError(runtime::format("{}: precompiled_charsmap is damaged: {}", name, charsmap_->damage()));
  }
  float least = std::numeric_limits<float>::max();
  greatest_ = std::numeric_limits<float>::min();  // as there: scores are below 0
  std::vector<std::pair<std::string_view, std::int32_t>> named;
  for (const SentencePieceFile::Piece& piece : file.pieces) {
    if (piece.type == Type::normal) {
      least = std::min(least, piece.score);
      greatest_ = std::max(greatest_, piece.score);
    }
    if (piece.type != Type::normal && piece.type != Type::user_defined && piece.type != Type::unused) continue;
    has_user_defined_ = has_user_defined_ || piece.type == Type::user_defined;
    named.emplace_back(piece.text, static_cast<std::int32_t>(known_.size()));
    known_.push_back({piece.score, piece.type});
  }
  if (known_.empty()) throw ValueError(runtime::format("{}: it has no pieces", name));
  unknown_score_ = least - penalty_of_unknown;
  trie_ = Trie(std::move(named));
}

std::size_t SentencePiece::user_defined_at(std::string_view text) const {
  std::size_t longest = 0;
  Trie::Node node = Trie::root;
  for (std::size_t end = 0; end < text.size();) {
    node = trie_.child(node, static_cast<unsigned char>(text[end++]));
    if (node == Trie::none) break;
    const std::int32_t id = trie_.id(node);
    if (id >= 0 && known_[static_cast<std::size_t>(id)].type == Type::user_defined) longest = end;
  }
  return longest;
}

std::pair<std::string_view, std::size_t> SentencePiece::normalized_beginning(std::string_view text) const {
  if (has_user_defined_)
    if (const std::size_t bytes = user_defined_at(text); bytes > 0) return {text.substr(0, bytes), bytes};
  if (charsmap_)
    if (const auto found = charsmap_->longest(text)) return *found;
  const std::size_t bytes = code_point_at(text, 0).bytes;
  return {text.substr(0, bytes), bytes};
}

std::string SentencePiece::normalized(std::string_view text) const {
  if (remove_spaces_)
    while (!text.empty()) {
      const auto [by, bytes] = normalized_beginning(text);
      if (by != " ") break;
      text.remove_prefix(bytes);
    }
  if (text.empty()) return {};
  const std::string_view space = escape_spaces_ ? piece_space : " ";
  std::string result(dummy_prefix_ && !space_behind_ ? space : std::string_view());
  bool after_space = remove_spaces_;
  while (!text.empty()) {
    auto [by, bytes] = normalized_beginning(text);
    text.remove_prefix(bytes);
    while (after_space && by.starts_with(' ')) by.remove_prefix(1);
    if (by.empty()) continue;
    for (const char c : by)
      if (c == ' ') result.insert(result.end(), space.begin(), space.end());
      else result.push_back(c);
    after_space = remove_spaces_ && by.ends_with(' ');
  }
  if (remove_spaces_)
    while (result.ends_with(space)) result.erase(result.size() - space.size());
  if (dummy_prefix_ && space_behind_) result.insert(result.end(), space.begin(), space.end());
  return result;
}

std::vector<std::string> SentencePiece::encode(std::string_view given) const {
  const std::string text = normalized(given);
  /// The best pieces up to a position: where the last of them begins, whether it is known, and the sum of their scores.
  struct Best {
    float sum = 0;
    std::size_t begin = std::string_view::npos;
    bool known = false;
  };
  std::vector<Best> best(text.size() + 1);
  const auto offer = [&](std::size_t begin, std::size_t end, float score, bool known) {
    const float sum = score + best[begin].sum;
    if (best[end].begin == std::string_view::npos || sum > best[end].sum) best[end] = {sum, begin, known};
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t next = at + code_point_at(text, at).bytes;
    bool alone = false;  // whether the character is a piece
    Trie::Node node = Trie::root;
    for (std::size_t end = at; end < text.size();) {
      node = trie_.child(node, static_cast<unsigned char>(text[end++]));
      if (node == Trie::none) break;
      const std::int32_t id = trie_.id(node);
      if (id < 0 || known_[static_cast<std::size_t>(id)].type == Type::unused) continue;
      const Known& piece = known_[static_cast<std::size_t>(id)];
      // what a user defines is chosen whatever it is made of
      const float defined = static_cast<float>(end - at) * greatest_ - 0.1F;
      offer(at, end, piece.type == Type::user_defined ? defined : piece.score, true);
      alone = alone || end == next;
    }
    if (!alone) offer(at, next, unknown_score_, false);
    at = next;
  }
  std::vector<std::pair<std::size_t, std::size_t>> places;  // from the last to the first
  bool joins = false;
  for (std::size_t end = text.size(); end > 0; end = best[end].begin) {
    const Best& piece = best[end];
    if (!piece.known && joins) places.back().first = piece.begin;
    else places.emplace_back(piece.begin, end);
    joins = !piece.known;
  }
  std::vector<std::string> pieces;
  for (auto place = places.rbegin(); place != places.rend(); ++place)
    pieces.emplace_back(text, place->first, place->second - place->first);
  return pieces;
}

}  // namespace attn::text
