// include/attn/generate.h: a language model goes on with ids or texts: sampling, stopping, streaming.
#pragma once
#include <attn/model.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What this header declares is in attn::model, as the model itself.
namespace attn {

/// How the next token is chosen. In this order: repetition penalty, temperature, top_k, top_p, one draw.
struct SampleOptions {
  double temperature = 1;  ///< logits are divided by it; 0: always the likeliest, of equals the first
  std::int64_t top_k = 0;  ///< only the k likeliest, of equals the first; 0: all
  /// only the fewest likeliest that together have this probability. Source: Holtzman 2019 (1904.09751)
  double top_p = 1;
  /// divides positive logits of tokens that are there already, multiplies negative. Source: Keskar 2019 (1909.05858)
  double repetition_penalty = 1;
};

/// The next token from logits [V] of any floating dtype, computed in f64; `before`: the tokens so far. Draws one
/// uniform_f64 unless the temperature is 0.
/// Errors   ValueError for an option out of its range, and for logits of which one is NaN or none is above -inf
ATTN_API std::int64_t sample(const Tensor& logits, const std::vector<std::int64_t>& before,
                             const SampleOptions& options, Generator& generator);

/// Why a text ended.
enum class Finish {
  length,   ///< as many tokens as were asked for
  end,      ///< a token that ends texts; it is not part of the result
  stop,     ///< a stop text; it is not part of the result
  stopped,  ///< the caller's function said so
};

struct GenerateOptions {
  std::int64_t tokens = 100;  ///< at most so many new ones
  SampleOptions sample = {};
  /// of each prompt's own generator, so that a prompt's text is the same alone and beside others
  std::uint64_t seed = 0;
  std::optional<std::vector<std::int64_t>> end_tokens = std::nullopt;  ///< default: those of the model's config
  bool cache = true;  ///< keys and values are kept; without, each token runs the whole text: the same tokens
  /// Called for each new token of each prompt; false ends that prompt's text after it.
  std::function<bool(std::size_t prompt, std::int64_t token)> on_token = {};
};

struct Generated {
  std::vector<std::int64_t> tokens;  ///< the new ones
  Finish finish = Finish::length;
};

/// Goes on with each prompt; prompts run side by side, their next tokens as one batch.
///  Longer than the context: when the text has more tokens than fit, its oldest are forgotten half a context at a time;
/// positions then count from the first that is left.
/// Threads  any number at once with a model in eval mode; one in training mode is switched meanwhile
/// Errors   ValueError for a prompt without tokens, an id that is not in the vocabulary, options out of their range
/// Bits     the tokens depend neither on the cache, nor on the other prompts, nor on the threads
ATTN_API std::vector<Generated> generate(const LanguageModel& model,
                                         const std::vector<std::vector<std::int64_t>>& prompts,
                                         const GenerateOptions& options = {});

struct GenerateTextOptions {
  GenerateOptions tokens = {};
  std::vector<std::string> stop = {};  ///< the text ends before the first of these; none may be empty
  /// Called with each piece of each prompt's text as soon as it is certain: whole characters, and nothing that may be
  /// the begin of a stop text; false ends that prompt's text.
  std::function<bool(std::size_t prompt, std::string_view piece)> on_text = {};
};

struct GeneratedText {
  std::string text;  ///< without the prompt
  std::vector<std::int64_t> tokens;
  Finish finish = Finish::length;
};

/// `generate` on texts, each with what the tokenizer's post-processor puts around it. Bytes that are no UTF-8 become
/// U+FFFD. Errors as it; ValueError too when the tokenizer has more ids than the model.
ATTN_API std::vector<GeneratedText> generate_text(const LanguageModel& model, const Tokenizer& tokenizer,
                                                  const std::vector<std::string>& prompts,
                                                  const GenerateTextOptions& options = {});

}  // namespace attn
