// src/text/tokenizer/text_index.h: the ids of texts, such as the tokens of a vocabulary.
#pragma once
#include "text/tokenizer/index_table.h"

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace attn::text {

/// Ids by text. The texts are one after another in one string. With the hash table, each takes 16 to 20 bytes in
/// addition to its own.
class TextIndex {
 public:
  TextIndex() = default;
  /// Makes room for that many texts, which is also the maximum.
  explicit TextIndex(std::size_t count) : table_(count) {
    ends_.reserve(count);
    ids_.reserve(count);
  }

  /// Sets the id of a text. Returns whether it had none.
  bool put(std::string_view text, std::int64_t id) {
    const std::uint64_t hash = hash_of(text);
    if (const std::int32_t at = entry_of(text, hash); at >= 0) {
      ids_[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(id);
      return false;
    }
    table_.put(hash, static_cast<std::int32_t>(ids_.size()), [](std::int32_t) { return false; });
    texts_ += text;
    ends_.push_back(texts_.size());
    ids_.push_back(static_cast<std::int32_t>(id));
    return true;
  }
  std::optional<std::int64_t> find(std::string_view text) const {
    const std::int32_t at = entry_of(text, hash_of(text));
    return at < 0 ? std::nullopt : std::optional<std::int64_t>(ids_[static_cast<std::size_t>(at)]);
  }
  bool contains(std::string_view text) const { return find(text).has_value(); }
  std::size_t size() const { return ids_.size(); }

 private:
  static std::uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>()(text); }
  std::int32_t entry_of(std::string_view text, std::uint64_t hash) const {
    return table_.find(hash, [&](std::int32_t at) {
      const auto n = static_cast<std::size_t>(at);
      const std::size_t begin = n == 0 ? 0 : ends_[n - 1];
      return std::string_view(texts_).substr(begin, ends_[n] - begin) == text;
    });
  }

  std::string texts_;
  std::vector<std::size_t> ends_;  // of each text in texts_
  std::vector<std::int32_t> ids_;
  IndexTable table_;
};

}  // namespace attn::text
