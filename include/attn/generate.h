// include/attn/generate.h: continues ids or texts with a language model: sampling, stopping, streaming.
#pragma once
#include <attn/model.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The declarations of this header are in the library attn::model, as those of model.h.
namespace attn {

/// How the next token is chosen. Order: repetition penalty, temperature, top_k, top_p, one random draw.
struct SampleOptions {
  double temperature = 1;  ///< logits are divided by it; 0: always the most likely token, the first of equals
  std::int64_t top_k = 0;  ///< keep only the k most likely tokens, the first of equals; 0: all
  /// Keep only the smallest set of most likely tokens with at least this total probability. Source: Holtzman 2019
  /// (1904.09751).
  double top_p = 1;
  /// Divides the positive logits of tokens that have occurred and multiplies their negative ones. Source: Keskar 2019
  /// (1909.05858).
  double repetition_penalty = 1;
};

/// Returns the next token from logits [V] of any floating dtype, computed in f64. `before`: the tokens so far. Draws
/// one uniform_f64 unless the temperature is 0.
/// Errors   ValueError for an option out of range, and for logits that contain NaN or have none above -inf
ATTN_API std::int64_t sample(const Tensor& logits, const std::vector<std::int64_t>& before,
                             const SampleOptions& options, Generator& generator);

/// Why a text ended.
enum class Finish {
  length,   ///< the requested number of tokens is reached
  end,      ///< an end token; it is not part of the result
  stop,     ///< a stop text; it is not part of the result
  stopped,  ///< the caller's function returned false
};

struct GenerateOptions {
  std::int64_t tokens = 100;  ///< at most this many new tokens
  SampleOptions sample = {};
  /// Seeds each prompt's own generator, so that a prompt gives the same text alone and with others.
  std::uint64_t seed = 0;
  std::optional<std::vector<std::int64_t>> end_tokens = std::nullopt;  ///< default: those of the model's config
  /// use a KV cache; without it each token recomputes the whole text, with the same tokens as result
  bool cache = true;
  /// Called for each new token of each prompt; returning false ends that prompt's text after this token.
  std::function<bool(std::size_t prompt, std::int64_t token)> on_token = {};
};

struct Generated {
  std::vector<std::int64_t> tokens;  ///< the new tokens
  Finish finish = Finish::length;
};

/// Continues each prompt; the prompts run together, their next tokens as one batch.
///  When a text has more tokens than the context, its oldest tokens are dropped, half a context at a time; positions
/// then count from the first remaining token.
/// Threads  any number at once with a model in eval mode; a model in training mode is switched to eval meanwhile
/// Errors   ValueError for a prompt without tokens, an id outside the vocabulary, options out of range
/// Bits     the tokens do not depend on the use of a cache, the other prompts or the threads
ATTN_API std::vector<Generated> generate(const LanguageModel& model,
                                         const std::vector<std::vector<std::int64_t>>& prompts,
                                         const GenerateOptions& options = {});

struct GenerateTextOptions {
  GenerateOptions tokens = {};
  std::vector<std::string> stop = {};  ///< the text ends before the first of these; none may be empty
  /// Called with each piece of each prompt's text as soon as it is final: whole characters, and nothing that may be the
  /// beginning of a stop text. Returning false ends that prompt's text.
  std::function<bool(std::size_t prompt, std::string_view piece)> on_text = {};
};

struct GeneratedText {
  std::string text;  ///< the new text, without the prompt
  std::vector<std::int64_t> tokens;
  Finish finish = Finish::length;
};

/// Encodes each prompt (special tokens included), calls `generate` and decodes the result. Bytes that are not UTF-8
/// become U+FFFD; an id that no token has decodes to nothing. Throws what `generate` throws, and a ValueError that
/// names a token of a prompt if the model does not have its id.
ATTN_API std::vector<GeneratedText> generate_text(const LanguageModel& model, const Tokenizer& tokenizer,
                                                  const std::vector<std::string>& prompts,
                                                  const GenerateTextOptions& options = {});

}  // namespace attn
