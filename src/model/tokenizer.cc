// src/model/tokenizer.cc: a text to ids and back.
#include <attn/error.h>
#include <attn/tokenizer.h>

#include "io/source.h"
#include "model/tokenizer_state.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/nfc.h"
#include "text/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace attn {
namespace {

using State = Tokenizer::State;

/// The ids of bytes between added tokens; pieces that came before are not computed again.
class Encoder {
 public:
  Encoder(const State& state, std::vector<std::int64_t>& ids) : state_(state), ids_(ids) {}

  void run(std::string_view part) {
    for (std::size_t at = 0; at < part.size();) {
      const std::size_t end = text::piece_end(state_.cut, part, at);
      const std::string_view piece = part.substr(at, end - at);
      state_.kind == Tokenizer::Kind::bpe ? merged(piece) : looked_up(piece);
      at = end;
    }
  }

 private:
  void looked_up(std::string_view piece) {
    if (const auto found = state_.ids.find(std::string(piece)); found != state_.ids.end()) return ids_.push_back(found->second);
    if (state_.kind == Tokenizer::Kind::characters)
      throw ValueError(fmt::format("encode: \"{}\" is not among the {} characters of the tokenizer", io::one_line(piece), state_.ids.size()));
    ids_.push_back(state_.ids.at(unknown_word));
  }

  void merged(std::string_view piece) {
    const auto [known, is_new] = known_.try_emplace(piece, ids_.size(), 0);
    auto& [begin, count] = known->second;
    if (!is_new) {
      for (std::size_t i = 0; i < count; ++i) ids_.push_back(ids_[begin + i]);
      return;
    }
    const auto whole = state_.whole_first ? state_.ids.find(std::string(piece)) : state_.ids.end();
    // What is spelled in other than byte characters is never met: of a text only those are looked up.
    if (whole != state_.ids.end() && state_.names[static_cast<std::size_t>(whole->second)] == text::to_byte_characters(piece)) {
      ids_.push_back(whole->second);
    } else {
      symbols_.clear();
      for (const char c : piece) {
        const std::int64_t id = state_.byte_ids[static_cast<unsigned char>(c)];
        if (id < 0) throw ValueError(fmt::format("encode: the tokenizer has no token for byte 0x{:02X}", static_cast<unsigned char>(c)));
        symbols_.push_back(static_cast<std::int32_t>(id));
      }
      state_.bpe.merge(symbols_);
      ids_.insert(ids_.end(), symbols_.begin(), symbols_.end());
    }
    count = ids_.size() - begin;
  }

  const State& state_;
  std::vector<std::int64_t>& ids_;
  std::vector<std::int32_t> symbols_;
  std::unordered_map<std::string_view, std::pair<std::size_t, std::size_t>> known_;  // where in ids_, how many
};

/// The added tokens of a text, found as its longest match from the left: in the order of their bytes, each with the longest that it begins with.
class AddedTokens {
 public:
  AddedTokens(const std::vector<AddedToken>& tokens, bool normalized) {
    for (const AddedToken& token : tokens)
      if (token.normalized == normalized) sorted_.push_back({&token, nullptr});
    std::sort(sorted_.begin(), sorted_.end(), [](const Entry& a, const Entry& b) { return a.token->content < b.token->content; });
    for (std::size_t i = 0; i < sorted_.size(); ++i) {
      const std::string& content = sorted_[i].token->content;
      begins_[static_cast<unsigned char>(content[0])] = true;
      const Entry* shorter = i == 0 ? nullptr : &sorted_[i - 1];
      while (shorter != nullptr && !content.starts_with(shorter->token->content)) shorter = shorter->shorter;
      sorted_[i].shorter = shorter;
    }
  }
  /// Calls between(part) for what lies before, between and after the tokens, found(id) for each of them, in the order of the text.
  template <typename Between, typename Found>
  void split(std::string_view text, Between&& between, Found&& found) const {
    std::size_t begin = 0;
    for (std::size_t at = 0; at < text.size();) {
      const AddedToken* token = first_of(text.substr(at));
      if (token == nullptr) {
        ++at;
        continue;
      }
      between(text.substr(begin, at - begin));
      found(token->id);
      begin = at += token->content.size();
    }
    between(text.substr(begin));
  }

 private:
  struct Entry {
    const AddedToken* token;
    const Entry* shorter;
  };

  /// Whatever the text begins with stands before it in the order, or is what that begins with.
  const AddedToken* first_of(std::string_view rest) const {
    if (!begins_[static_cast<unsigned char>(rest[0])]) return nullptr;
    const auto before = [](std::string_view text, const Entry& entry) { return text < entry.token->content; };
    const auto after = std::upper_bound(sorted_.begin(), sorted_.end(), rest, before);
    const Entry* entry = after == sorted_.begin() ? nullptr : &*std::prev(after);
    while (entry != nullptr && !rest.starts_with(entry->token->content)) entry = entry->shorter;
    return entry == nullptr ? nullptr : entry->token;
  }

  std::vector<Entry> sorted_;
  std::array<bool, 256> begins_{};
};

[[noreturn]] void no_such_id(std::int64_t id, std::int64_t size) {
  throw ValueError(fmt::format("decode: id {} is not there; the tokenizer has {} tokens", id, size));
}

}  // namespace

Tokenizer::Tokenizer() : state_(std::make_shared<State>()) {}
Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Kind Tokenizer::kind() const { return state_->kind; }
std::int64_t Tokenizer::size() const { return static_cast<std::int64_t>(state_->names.size()); }

bool Tokenizer::State::index() {
  bytes.assign(names.size(), {});
  byte_ids.fill(-1);
  ids.clear();
  std::vector<bool> from_text(names.size(), false);  // ids that bytes and their merges become
  for (std::size_t id = 0; id < names.size(); ++id) {
    if (names[id].empty()) continue;
    const auto decoded = kind == Kind::bpe ? text::from_byte_characters(names[id]) : std::nullopt;
    bytes[id] = decoded.value_or(names[id]);
    if (!ids.emplace(bytes[id], static_cast<std::int64_t>(id)).second) return false;
    if (!decoded || bytes[id].size() != 1) continue;
    byte_ids[static_cast<unsigned char>(bytes[id][0])] = static_cast<std::int64_t>(id);
    from_text[id] = true;
  }
  for (const text::Merge& merge : bpe.merges()) from_text[static_cast<std::size_t>(merge.result)] = true;
  special.assign(names.size(), false);
  for (const AddedToken& token : added) {
    const auto id = static_cast<std::size_t>(token.id);
    names[id] = token.content;
    if (!from_text[id]) bytes[id] = token.content;
    special[id] = token.special;
  }
  return true;
}

std::vector<std::int64_t> Tokenizer::encode(std::string_view text, bool add_special) const {
  if (kind() != Kind::bpe) text::check_utf8("encode", text);
  std::vector<std::int64_t> ids;
  if (add_special) ids = state_->before;
  Encoder encoder(*state_, ids);
  std::deque<std::string> changed;  // parts with a space before them or in form C, in place as long as the encoder knows their pieces
  const auto normalized = [&](std::string_view part) { return state_->nfc ? std::string_view(changed.emplace_back(text::nfc(part))) : part; };
  const auto encode_part = [&](std::string_view part) {
    if (part.empty()) return;
    if (!state_->add_prefix_space || part[0] == ' ') return encoder.run(part);
    changed.emplace_back(1, ' ').append(part);
    encoder.run(changed.back());
  };
  if (state_->added.empty()) {
    encode_part(normalized(text));
  } else {
    const AddedTokens first(state_->added, false), then(state_->added, true);
    const auto found = [&](std::int64_t id) { ids.push_back(id); };
    first.split(text, [&](std::string_view part) { then.split(normalized(part), encode_part, found); }, found);
  }
  if (add_special) ids.insert(ids.end(), state_->after.begin(), state_->after.end());
  return ids;
}

const std::string& Tokenizer::bytes(std::int64_t id) const {
  if (id < 0 || id >= size() || state_->names[static_cast<std::size_t>(id)].empty()) no_such_id(id, size());
  return state_->bytes[static_cast<std::size_t>(id)];
}

std::string Tokenizer::decode(const std::vector<std::int64_t>& ids, bool skip_special) const {
  std::string text;
  for (const std::int64_t id : ids) {
    const std::string& token = bytes(id);
    if (!skip_special || !state_->special[static_cast<std::size_t>(id)]) text += token;
  }
  return text;
}

std::optional<std::int64_t> Tokenizer::find(std::string_view bytes) const {
  for (const AddedToken& token : state_->added)
    if (token.content == bytes) return token.id;
  const auto found = state_->ids.find(std::string(bytes));
  return found == state_->ids.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace attn
