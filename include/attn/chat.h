// include/attn/chat.h: talks with a language model in the chat format that it was trained on.
#pragma once
#include <attn/generate.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The declarations of this header are in the library attn::model, as those of model.h.
namespace attn {

/// How a conversation is written as one text: the texts before and after a system text, a message and an answer.
/// Special tokens are written as their texts.
///
///   begin  system_begin system system_end  user_begin message user_end  answer_begin answer end_token answer_end  ...
struct ATTN_API ChatFormat {
  std::string name;
  std::string begin = {};  ///< left out if the tokenizer has no such token
  std::string system_begin = {}, system_end = {};
  bool system_in_message = false;  ///< the system text is inside the first message, after user_begin
  std::string user_begin = {}, user_end = {}, answer_begin = {};
  std::string end_token = {};  ///< ends an answer; a text, if the tokenizer has no such token
  std::string answer_end = {};
  bool trimmed = false;                              ///< messages without the blanks around them
  std::optional<std::string> system = std::nullopt;  ///< the system text of a conversation that names none

  static ChatFormat chatml();   ///< Qwen, SmolLM 2 and many others: <|im_start|>user ... <|im_end|>
  static ChatFormat llama3();   ///< Llama 3: <|start_header_id|>user<|end_header_id|> ... <|eot_id|>
  static ChatFormat gemma();    ///< Gemma 2 and 3: <start_of_turn>user ... <end_of_turn>
  static ChatFormat mistral();  ///< Mistral: [INST] ... [/INST]
  /// Returns the format of this name: chatml, llama3, gemma or mistral. ValueError lists them.
  static ChatFormat named(std::string_view name);

  /// Recognises a template (Jinja, as transformers has them) by the tokens in it. The template also gives the default
  /// system text, Llama 3.1's dates (those written in it, not today's) and the spaces around Mistral's [INST]. Tools
  /// and pictures are not written. ValueError for a template that is none of the four; `name` begins the text.
  static ChatFormat of_template(std::string_view text, const std::string& name);
  /// Recognises the template of a model: chat_template.jinja, tokenizer_config.json or chat_template.json of a folder,
  /// tokenizer.chat_template of a GGUF file. ValueError if there is none.
  static ChatFormat load(const std::string& path);
};

struct ChatOptions {
  /// Of each answer. Not used: samples, cache, model_cache, end_tokens (the model's, and the format's).
  GenerateOptions generate = {.tokens = 1024};
  std::optional<std::string> system = std::nullopt;  ///< default: the format's
  ModelCacheOptions cache = {};                      ///< storage, window and sinks are used
};

/// A conversation. A KV cache keeps the conversation: only a new message is computed. When the conversation outgrows
/// the context, the oldest messages and their answers are left out, but never the system text.
///
/// Bits   an answer has the tokens that `generate` gives for the complete conversation
class ATTN_API Chat {
 public:
  /// `model` must live as long as the chat. The answer n has the seed generate.seed + n.
  Chat(const LanguageModel& model, Tokenizer tokenizer, ChatFormat format, const ChatOptions& options = {});
  Chat(Chat&&) noexcept;
  ~Chat();

  /// Answers a message. `on_text` is called with each piece of the answer; returning false ends the answer; what was
  /// generated until then stays part of the conversation.
  /// Errors   as generate; ValueError for a message that the context does not hold. The conversation is then as before.
  GeneratedText say(const std::string& message, const std::function<bool(std::string_view piece)>& on_text = {});

  /// say() in steps, for a program that takes an answer piece by piece: ask() takes the message, each step() adds to
  /// the answer until it returns false, and answer() ends it and returns what was generated. The next ask() or say()
  /// does so too. A step that throws may be repeated (TextGeneration); forget() makes the conversation what it was
  /// before ask().
  /// Errors   of ask: as say. ValueError for step() and answer() without ask()
  void ask(const std::string& message, std::function<bool(std::string_view piece)> on_text = {});
  bool step();
  GeneratedText answer();
  void forget();

  /// Returns the tokens of the conversation as the model has seen them at its last answer.
  const std::vector<std::int64_t>& tokens() const { return tokens_; }
  /// Returns how many tokens were computed for the last answer before its first token.
  std::int64_t computed() const { return computed_; }
  /// Returns how many messages have been left out so far.
  std::int64_t left_out() const { return left_out_; }
  const ChatFormat& format() const { return format_; }

 private:
  struct Exchange {
    std::string message;
    std::vector<std::int64_t> answer;
  };
  struct Open;  // an answer that is not ended
  Open& open() const;
  std::vector<std::int64_t> encoded() const;
  const LanguageModel& model_;
  Tokenizer tokenizer_;
  ChatFormat format_;
  ChatOptions options_;
  std::unique_ptr<ModelCache> cache_;  // a text that is not over points to it
  std::vector<std::string> stop_;
  std::vector<Exchange> exchanges_;
  std::vector<std::int64_t> tokens_;
  std::int64_t answers_ = 0, computed_ = 0, left_out_ = 0;
  std::unique_ptr<Open> open_;
};

}  // namespace attn
