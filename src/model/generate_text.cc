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
  const auto beyond = std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) { return id >= vocab_size; });
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

std::vector<GeneratedText> generate_text_of_ids(const LanguageModel& model, const Tokenizer& tokenizer,
                                                const std::vector<std::vector<std::int64_t>>& prompts,
                                                const GenerateTextOptions& options) {
  for (std::size_t i = 0; i < prompts.size(); ++i)
    check_tokens(prompts.size() == 1 ? "generate: the prompt" : "generate: prompt " + std::to_string(i), prompts[i],
                 tokenizer, model.config.vocab_size);
  for (const std::string& stop : options.stop)
    if (stop.empty()) throw ValueError("generate: a stop text is empty; each must have a character");
  const auto samples = static_cast<std::size_t>(std::max<std::int64_t>(options.tokens.samples, 0));
  std::vector<GeneratedText> result(prompts.size() * samples);
  const Tokenizer::State& state = state_of(tokenizer);
  std::vector<TextStream> streams;
  for (const std::vector<std::int64_t>& prompt : prompts) {
    // decode() of the prompt with the new text would strip the first space of the whole. So a space is stripped from
    // the new text only if the prompt has no text.
    const bool begins = std::all_of(prompt.begin(), prompt.end(), [&](std::int64_t id) {
      return !state.has(id) || state.special[static_cast<std::size_t>(id)];
    });
    for (std::size_t n = 0; n < samples; ++n) streams.emplace_back(options.stop, state.strip_space && begins);
  }
  const auto say = [&](std::size_t i, const std::string& piece) {
    result[i].text += piece;
    return piece.empty() || !options.on_text || options.on_text(i, piece);
  };
  GenerateOptions by_token = options.tokens;
  by_token.on_token = [&](std::size_t i, std::int64_t token) {
    const bool own = !options.tokens.on_token || options.tokens.on_token(i, token);
    // A model may have more ids than its tokenizer, because its table may be rounded up to a larger size. As with an id
    // that the tokenizer left out, such an id has no text.
    const bool go_on = !state.has(token) ||
                       say(i, streams[i].add(tokenizer.bytes(token), state.lone_byte[static_cast<std::size_t>(token)]));
    return own && go_on && !streams[i].stopped();
  };
  const std::vector<Generated> generated = generate(model, prompts, by_token);
  for (std::size_t i = 0; i < generated.size(); ++i) {
    say(i, streams[i].finish());
    static_cast<Generated&>(result[i]) = generated[i];
    if (streams[i].stopped()) result[i].finish = Finish::stop;
  }
  return result;
}

}  // namespace attn
