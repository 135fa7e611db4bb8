// include/attn/generate.h: continues ids or texts with a language model: sampling, stopping, streaming.
#pragma once
#include <attn/model.h>
#include <attn/tokenizer.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The declarations of this header are in the library attn::model, as those of model.h.
namespace attn {

/// How the next token is chosen. Order: repetition penalty, temperature, top_k, top_p, min_p, one random draw.
struct SampleOptions {
  double temperature = 1;  ///< logits are divided by it; 0: always the most likely token, the first of equals
  std::int64_t top_k = 0;  ///< keep only the k most likely tokens, the first of equals; 0: all
  /// Keep only the smallest set of most likely tokens with at least this total probability. Source: Holtzman 2019
  /// (1904.09751).
  double top_p = 1;
  /// Divides the positive logits of tokens that have occurred and multiplies their negative ones. Source: Keskar 2019
  /// (1909.05858).
  double repetition_penalty = 1;
  /// Keep only tokens that are at least min_p times as probable as the most likely one; 0: all. Source: Nguyen 2024
  /// (2407.01082).
  double min_p = 0;
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

/// Speculative decoding: cheap guesses of the next tokens, which the model then computes in one pass. A guess counts if
/// the model chooses the same token, so the text is the one without a draft, token for token: greedy, and sampled with
/// the same random numbers. Source: Leviathan 2023 (2211.17192); here exact, because a row's bits do not depend on how
/// many are computed together.
struct Draft {
  /// A smaller model with the same tokens; ids that only one of the two has are never guessed. It chooses with the
  /// options and the random numbers of the text.
  const LanguageModel* model = nullptr;
  /// Above 0: guess the tokens that followed an earlier occurrence of the last `ngram` tokens (then fewer, down to 1).
  /// If there is none, `model` guesses, if given.
  std::int64_t ngram = 0;
  std::int64_t tokens = 7;  ///< maximum number of guesses at a time; fewer after wrong ones
};

struct GenerateOptions {
  std::int64_t tokens = 100;  ///< at most this many new tokens
  SampleOptions sample = {};
  /// Seeds each prompt's own generator, so that a prompt gives the same text alone and with others.
  std::uint64_t seed = 0;
  /// Texts of each prompt, whose tokens are computed once. Text n is the one of `seed` + n. Where a text is named by an
  /// index, below and in the result, text n of prompt p is p * samples + n. Prompts times samples are at most
  /// ModelCacheOptions::most_sequences.
  std::int64_t samples = 1;
  std::optional<std::vector<std::int64_t>> end_tokens = std::nullopt;  ///< default: those of the model's config
  /// use a KV cache; without it each token recomputes the complete text, and the result is the same
  bool cache = true;
  /// Continue with this cache, which has a sequence for each text: tokens of the text that it holds are not computed
  /// again, and tokens that do not match the text's beginning are removed. Afterwards it holds each text without its
  /// last token. Its storage (int8), its window and its sinks apply.
  ModelCache* model_cache = nullptr;
  Draft draft = {};
  /// Return the log-probability of each new token: log softmax(logits), in f32 (f64 for f64), before everything that
  /// SampleOptions and on_logits do. The bits are those of LanguageModel::log_probabilities.
  bool log_probabilities = false;
  /// Called with the logits [V] of each text's next token, which it may change in place, before the token is chosen.
  /// `text`: prompt and new tokens.
  std::function<void(std::size_t index, const std::vector<std::int64_t>& text, const Tensor& logits)> on_logits = {};
  /// Called for each new token of each text; returning false ends that text after this token.
  std::function<bool(std::size_t index, std::int64_t token)> on_token = {};
  /// Called before each pass of the model: with a cache, a long text is computed in passes of 256 tokens. An exception
  /// that it throws ends the call, as with the other functions: check here whether the user has interrupted.
  std::function<void()> on_pass = {};
};

struct Generated {
  std::vector<std::int64_t> tokens;  ///< the new tokens
  Finish finish = Finish::length;
  std::vector<double> log_probabilities;        ///< of the new tokens, if log_probabilities is set
  std::int64_t guessed = 0, guessed_right = 0;  ///< tokens that the draft guessed, and those that the model chose too
};

/// Continues each prompt; the prompts run together, their next tokens as one batch.
///  When a text has more tokens than the context, its oldest tokens are dropped, half a context at a time; positions
/// then count from the first remaining token.
/// Threads  any number at once with a model in eval mode; a model in training mode is switched to eval meanwhile
/// Errors   ValueError for a prompt without tokens, an id outside the vocabulary, options out of range
/// Bits     the tokens do not depend on the use of a cache (in the model's dtype, without a window), a draft, the other
///          prompts or the threads
ATTN_API std::vector<Generated> generate(const LanguageModel& model,
                                         const std::vector<std::vector<std::int64_t>>& prompts,
                                         const GenerateOptions& options = {});

struct GenerateTextOptions {
  GenerateOptions tokens = {};
  std::vector<std::string> stop = {};  ///< the text ends before the first of these; none may be empty
  /// Called with each piece of each text as soon as it is final: whole characters, and nothing that may be the
  /// beginning of a stop text. Returning false ends that text.
  std::function<bool(std::size_t index, std::string_view piece)> on_text = {};
};

struct GeneratedText : Generated {
  std::string text = {};  ///< the new text, without the prompt
};

/// Encodes each prompt (special tokens included), calls `generate` and decodes the result. Bytes that are not UTF-8
/// become U+FFFD; an id that no token has decodes to nothing. Throws what `generate` throws, and a ValueError that
/// names a token of a prompt if the model does not have its id.
ATTN_API std::vector<GeneratedText> generate_text(const LanguageModel& model, const Tokenizer& tokenizer,
                                                  const std::vector<std::string>& prompts,
                                                  const GenerateTextOptions& options = {});

/// generate_text in steps, for prompts as ids: for a program that takes a text piece by piece, and may stop early.
///
///   TextGeneration run(model, tokenizer, prompts, options);
///   while (run.step()) {}
///   run.texts();
///  The texts are those of generate_text, with its calls of the options' functions. A step that throws may be repeated:
/// no token is lost or generated twice, unless on_token or on_text threw, which were then called for it. After a step
/// that ran out of memory, later tokens may differ.
/// Errors   as generate_text, all but those of a step when it is constructed
class ATTN_API TextGeneration {
 public:
  /// `model`, and what the options point to, must live as long as this. An empty tokenizer has no text for any token.
  TextGeneration(const LanguageModel& model, Tokenizer tokenizer, const std::vector<std::vector<std::int64_t>>& prompts,
                 GenerateTextOptions options = {});
  TextGeneration(TextGeneration&&) noexcept;
  TextGeneration& operator=(TextGeneration&&) noexcept;
  ~TextGeneration();

  /// Adds the next token to each text that is not over; with a draft several. Returns whether any is not over then.
  bool step();
  /// Returns the texts so far, in the order of generate_text; `finish` of a text that is not over is Finish::stopped.
  std::vector<GeneratedText> texts() const;

 private:
  struct State;
  State& state() const;  // ValueError if it was moved from
  std::unique_ptr<State> state_;
};

/// Throws a ValueError if an id that both tokenizers have stands for different bytes: the guesses of such a draft would
/// be wrong. `draft` is what the error calls the draft.
ATTN_API void check_draft_tokens(const Tokenizer& tokens, const Tokenizer& draft_tokens, const std::string& draft);

}  // namespace attn
