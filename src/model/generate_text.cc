// src/model/generate_text.cc: continues texts, and decodes tokens into characters as they are generated.
#include <attn/generate.h>

#include "io/source.h"
#include "model/generate_internal.h"
#include "model/text_stream.h"
#include "model/tokenizer_state.h"
#include "runtime/format.h"

#include <algorithm>

namespace attn {

void check_tokens(const std::string& text, const std::vector<std::int64_t>& ids, const Tokenizer& tokenizer,
                  std::int64_t vocab_size) {
  const auto beyond = std::find_if(ids.begin(), ids.end(),
                                   [&](std::int64_t id) { return id >= vocab_size && state_of(tokenizer).has(id); });
  if (beyond != ids.end())
    throw ValueError(runtime::format(
        "{} has the token \"{}\", whose id is {}; the model knows ids below {} (vocab_size in config.json)", text,
        io::one_line(tokenizer.bytes(*beyond)), *beyond, vocab_size));
}

std::vector<GeneratedText> generate_text(const LanguageModel& model, const Tokenizer& tokenizer,
                                         const std::vector<std::string>& prompts, const GenerateTextOptions& options) {
  std::vector<std::vector<std::int64_t>> ids;
  for (const std::string& prompt : prompts) {
    try {
      ids.push_back(tokenizer.encode(prompt, /*add_special=*/true));
    } catch (const ValueError& error) {
      if (prompts.size() == 1) throw;
      throw ValueError("generate: prompt " + std::to_string(ids.size()) + ": " + error.what());
    }
  }
  return generate_text_of_ids(model, tokenizer, ids, options);
}

struct TextGeneration::State {
  const Tokenizer tokenizer;
  const GenerateTextOptions options;
  Generation run;
  std::vector<TextStream> streams;
  std::vector<std::string> said;
  bool over = false;

  State(const LanguageModel& model, Tokenizer of_model, const std::vector<std::vector<std::int64_t>>& prompts,
        GenerateTextOptions given)
      : tokenizer(std::move(of_model)), options(std::move(given)), run(model, prompts, by_token()),
        streams(streams_for(prompts)), said(streams.size()) {}

  std::vector<TextStream> streams_for(const std::vector<std::vector<std::int64_t>>& prompts) const {
    for (const std::string& stop : options.stop)
      if (stop.empty()) throw ValueError("generate: a stop text is empty; each must have a character");
    const Tokenizer::State& state = state_of(tokenizer);
    std::vector<TextStream> all;
    for (const std::vector<std::int64_t>& prompt : prompts) {
      // decode() of the prompt with the new text would strip the first space of the whole. So a space is stripped from
      // the new text only if the prompt has no text.
      const bool begins = std::all_of(prompt.begin(), prompt.end(), [&](std::int64_t id) {
        return !state.has(id) || state.special[static_cast<std::size_t>(id)];
      });
      for (std::int64_t n = 0; n < options.tokens.samples; ++n)
        all.emplace_back(options.stop, state.strip_space && begins);
    }
    return all;
  }

  GenerateOptions by_token() {
    GenerateOptions result = options.tokens;
    result.on_token = [this](std::size_t i, std::int64_t token) {
      const bool own = !options.tokens.on_token || options.tokens.on_token(i, token);
      // A model may have more ids than its tokenizer, because its table may be rounded up to a larger size. As with an
      // id that the tokenizer left out, such an id has no text.
      const Tokenizer::State& state = state_of(tokenizer);
      const bool go_on = !state.has(token) || say(i, streams[i].add(tokenizer.bytes(token),
                                                                    state.lone_byte[static_cast<std::size_t>(token)]));
      return own && go_on && !streams[i].stopped();
    };
    return result;
  }

  bool say(std::size_t i, const std::string& piece) {
    said[i] += piece;
    return piece.empty() || !options.on_text || options.on_text(i, piece);
  }
};

TextGeneration::TextGeneration(const LanguageModel& model, Tokenizer tokenizer,
                               const std::vector<std::vector<std::int64_t>>& prompts, GenerateTextOptions options) {
  for (std::size_t i = 0; i < prompts.size(); ++i)
    check_tokens(prompts.size() == 1 ? "generate: the prompt" : "generate: prompt " + std::to_string(i), prompts[i],
                 tokenizer, model.config.vocab_size);
  state_ = std::make_unique<State>(model, std::move(tokenizer), prompts, std::move(options));
}
TextGeneration::TextGeneration(TextGeneration&&) noexcept = default;
TextGeneration& TextGeneration::operator=(TextGeneration&&) noexcept = default;
TextGeneration::~TextGeneration() = default;

TextGeneration::State& TextGeneration::state() const {
  if (!state_) throw ValueError("TextGeneration: it is empty (moved from)");
  return *state_;
}

bool TextGeneration::step() {
  State& one = state();
  if (one.over) return false;
  if (one.run.step()) return true;
  one.over = true;
  for (std::size_t i = 0; i < one.streams.size(); ++i) one.say(i, one.streams[i].finish());
  return false;
}

std::vector<GeneratedText> TextGeneration::texts() const {
  std::vector<GeneratedText> result;
  State& all = state();
  for (const Generated& one : all.run.texts()) {
    const std::size_t i = result.size();
    result.push_back({one, all.said[i]});
    if (all.streams[i].stopped()) result[i].finish = Finish::stop;
  }
  return result;
}

std::vector<GeneratedText> generate_text_of_ids(const LanguageModel& model, const Tokenizer& tokenizer,
                                                const std::vector<std::vector<std::int64_t>>& prompts,
                                                const GenerateTextOptions& options) {
  TextGeneration run(model, tokenizer, prompts, options);
  while (run.step()) {}
  return run.texts();
}

void check_draft_tokens(const Tokenizer& tokens, const Tokenizer& draft_tokens, const std::string& draft) {
  for (std::int64_t id = 0; id < std::min(tokens.size(), draft_tokens.size()); ++id) {
    if (!state_of(tokens).has(id) || !state_of(draft_tokens).has(id)) continue;
    const std::string &one = tokens.bytes(id), &other = draft_tokens.bytes(id);
    if (one != other)
      throw ValueError(
          runtime::format("generate: the draft {} has other tokens: {} is \"{}\" there and \"{}\" in the model; both "
                          "must have the same",
                          draft, id, io::one_line(other), io::one_line(one)));
  }
}

}  // namespace attn
