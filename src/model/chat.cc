// src/model/chat.cc: keeps a conversation in a cache, and answers its messages.
#include <attn/chat.h>
#include <attn/error.h>

#include "model/generate_internal.h"
#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr const char* blanks = " \t\r\n";

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(blanks);
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(blanks) + 1 - first);
}

std::unique_ptr<ModelCache> cache_for(const LanguageModel& model, ModelCacheOptions options) {
  options.sequences = 1;
  options.dtype = model.dtype();
  return std::make_unique<ModelCache>(model.config, options);
}

}  // namespace

struct Chat::Open {
  std::vector<Exchange> before;  // the conversation without the message
  Ids ids;                       // of the whole conversation, up to the answer
  std::int64_t known;            // how many of these the cache has
  TextGeneration run;
};

Chat::Chat(const LanguageModel& model, Tokenizer tokenizer, ChatFormat format, const ChatOptions& options)
    : model_(model), tokenizer_(std::move(tokenizer)), format_(std::move(format)), options_(options),
      cache_(cache_for(model, options.cache)) {
  if (!options_.system) options_.system = format_.system;
  if (!tokenizer_.find(format_.begin)) format_.begin.clear();
  Ids end = model.config.end_tokens;
  if (const auto id = tokenizer_.find(format_.end_token)) end.push_back(*id);
  else if (!format_.end_token.empty()) stop_.push_back(format_.end_token);
  options_.generate.end_tokens = std::move(end);
  options_.generate.samples = 1;
  options_.generate.cache = true;
}

Ids Chat::encoded() const {
  const bool system = options_.system.has_value(), inside = format_.system_in_message;
  const std::string system_text =
      system ? format_.system_begin + (format_.trimmed && !inside ? trimmed(*options_.system) : *options_.system) +
                   format_.system_end
             : "";
  Ids ids;
  std::string text = format_.begin + (inside ? "" : system_text);
  for (const Exchange& one : exchanges_) {
    text += format_.user_begin;
    if (inside && &one == &exchanges_.front()) text += system_text;
    text += (format_.trimmed ? trimmed(one.message) : one.message) + format_.user_end + format_.answer_begin;
    // The text after an answer is encoded together with the next message, as when the complete text is encoded.
    const Ids next = tokenizer_.encode(text);
    ids.insert(ids.end(), next.begin(), next.end());
    ids.insert(ids.end(), one.answer.begin(), one.answer.end());
    text = format_.end_token + format_.answer_end;
  }
  return ids;
}

Chat::Chat(Chat&&) noexcept = default;
Chat::~Chat() = default;

void Chat::ask(const std::string& message, std::function<bool(std::string_view)> on_text) {
  if (!cache_) throw ValueError("chat: it is empty (moved from)");
  if (open_) answer();
  const std::int64_t context = model_.config.context, wanted = options_.generate.tokens;
  std::vector<Exchange> before = exchanges_;
  try {
    exchanges_.push_back({.message = message, .answer = {}});
    Ids ids = encoded();
    // an answer should have a quarter of the context
    const std::int64_t room = std::min(wanted, std::max<std::int64_t>(context / 4, 1));
    while (std::ssize(ids) + room > context && exchanges_.size() > 1) {
      exchanges_.erase(exchanges_.begin());
      ids = encoded();
    }
    if (std::ssize(ids) >= context)
      throw ValueError(runtime::format(
          "chat: the message has {} tokens with what stands around it; the context holds {}", ids.size(), context));
    GenerateTextOptions options{.tokens = options_.generate, .stop = stop_};
    options.tokens.tokens = std::min(wanted, context - std::ssize(ids));
    options.tokens.model_cache = cache_.get();
    options.tokens.seed += static_cast<std::uint64_t>(answers_);
    // blanks before the first word are not shown
    options.on_text = [begun = false, on_text = std::move(on_text)](std::size_t, std::string_view piece) mutable {
      if (!begun) piece.remove_prefix(std::min(piece.find_first_not_of(blanks), piece.size()));
      begun = begun || !piece.empty();
      return piece.empty() || !on_text || on_text(piece);
    };
    const std::int64_t known = ids.empty() ? 0 : cache_->keep_common(0, std::span(ids).first(ids.size() - 1));
    TextGeneration run(model_, tokenizer_, {ids}, std::move(options));
    open_.reset(new Open{std::move(before), std::move(ids), known, std::move(run)});
  } catch (...) {
    if (!open_) exchanges_ = std::move(before);
    throw;
  }
}

Chat::Open& Chat::open() const {
  if (!open_) throw ValueError("chat: there is no answer to go on with; ask() begins one");
  return *open_;
}

bool Chat::step() { return open().run.step(); }

GeneratedText Chat::answer() {
  Open& one = open();
  GeneratedText answer = one.run.texts()[0];
  answer.text.erase(0, std::min(answer.text.find_first_not_of(blanks), answer.text.size()));
  // a text that ended the answer is written again in front of the next message
  Ids said = answer.finish == Finish::stop ? tokenizer_.encode(answer.text) : answer.tokens, tokens = one.ids;
  tokens.insert(tokens.end(), answer.tokens.begin(), answer.tokens.end());
  // nothing below throws, so an answer that lacked memory leaves the chat unchanged
  exchanges_.back().answer = std::move(said);
  left_out_ += std::ssize(one.before) + 1 - std::ssize(exchanges_);
  computed_ = std::ssize(one.ids) - one.known;
  tokens_ = std::move(tokens);
  ++answers_;
  open_.reset();
  return answer;
}

void Chat::forget() {
  if (!open_) return;
  exchanges_ = std::move(open_->before);
  open_.reset();
}

GeneratedText Chat::say(const std::string& message, const std::function<bool(std::string_view)>& on_text) {
  ask(message, on_text);
  try {
    while (step()) {}
    return answer();
  } catch (...) {
    forget();
    throw;
  }
}

}  // namespace attn
