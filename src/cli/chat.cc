// src/cli/chat.cc: implements attn chat: a conversation with a model, on a terminal or through pipes.
#include "cli/chinese.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/model_options.h"
#include "cli/output.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

#include <attn/chat.h>
#include <attn/error.h>

#include "runtime/format.h"
#include <unistd.h>

#include <cstdio>
#include <memory>

namespace attn::cli {
namespace {

struct ChatArguments {
  ModelOptions model;
  std::string system, format;
  Option system_given;
};

ChatFormat format_of(const ChatArguments& arguments) {
  if (arguments.format.empty()) return ChatFormat::load(arguments.model.folder);
  choose("--format", arguments.format, {"chatml", "llama3", "gemma", "mistral"});
  return ChatFormat::named(arguments.format);
}

/// A conversation of the user with a model.
class Conversation {
 public:
  Conversation(const ChatArguments& arguments, Language language)
      : language_(language), terminal_(::isatty(STDIN_FILENO) && ::isatty(STDOUT_FILENO)),
        format_(format_of(arguments)), loaded_(load_model(arguments.model)),
        chat_(loaded_.model, loaded_.tokenizer, format_, chat_options(arguments)) {}

  void run() {
    const Interrupts interrupts;
    remark(runtime::format("{}: Ctrl-C stops an answer, Ctrl-D ends the chat", format_.name));
    LineReader lines;
    std::string line;
    for (bool asked_to_end = false;;) {
      if (terminal_) print("> ");
      const LineReader::Got got = lines.next(line);
      if (got == LineReader::Got::interrupt) {
        if (terminal_) print("\n");
        if (!terminal_ || asked_to_end) return;  // there is no answer to stop
        asked_to_end = true;
        Interrupts::clear();
        remark("Ctrl-D ends the chat; or Ctrl-C again");
        continue;
      }
      if (got == LineReader::Got::end) {
        if (terminal_) print("\n");
        return;
      }
      asked_to_end = false;
      if (line.ends_with('\r')) line.pop_back();
      if (line.find_first_not_of(" \t") == std::string::npos) continue;
      answer(without_mark(line));
    }
  }

 private:
  ChatOptions chat_options(const ChatArguments& arguments) const {
    ChatOptions options{.generate = generate_options(arguments.model, loaded_),
                        .cache = cache_options(arguments.model, loaded_.model)};
    options.generate.on_token = [](std::size_t, std::int64_t) { return !Interrupts::come(); };
    if (arguments.system_given.given()) options.system = arguments.system;
    return options;
  }

  void answer(const std::string& message) {
    const std::int64_t left_out = chat_.left_out();
    Interrupts::clear();
    try {
      const GeneratedText said = chat_.say(message, [&](std::string_view piece) {
        print(piece);
        return true;
      });
      print("\n");
      if (said.finish == Finish::length)
        remark(runtime::format("the answer was cut off after {}", counted(std::ssize(said.tokens), "token")));
    } catch (const Error& error) {
      if (!terminal_) throw;
      complain(error.what());
    }
    Interrupts::clear();
    if (chat_.left_out() > left_out) remark("the context is full: the oldest message was left out");
  }

  /// Prints a remark about the chat, on a terminal only.
  void remark(const std::string& text) const {
    if (terminal_) complain("(" + text + ")");
  }
  void complain(std::string_view text) const {
    const std::string shown = language_ == Language::zh ? error_in_chinese(text) : std::string(text);
    say(one_line(shown) + "\n");
  }

  const Language language_;
  const bool terminal_;
  const ChatFormat format_;
  const SpeakingModel loaded_;
  Chat chat_;
};

Run add_chat_options(Parser parser) {
  auto arguments = std::make_shared<ChatArguments>();
  ChatArguments& a = *arguments;
  add_model_options(parser, a.model, {.tokens = 1024, .temperature = "0.7", .min_p = "0.05"});
  a.system_given =
      parser.option("--system", a.system, "What the model is told before the first message").type_name("TEXT");
  parser.option("--format", a.format, "chatml, llama3, gemma or mistral; without it the model's own chat template says")
      .type_name("NAME");
  parser.footer(
      "Each line of stdin is a message. Ctrl-C stops an answer, Ctrl-D ends the chat.\n"
      "\nExample\n  attn chat SmolLM2-135M-Instruct.Q4_1.gguf");
  return [arguments](const std::vector<std::string>& rest) {
    if (arguments->model.folder.empty() && rest.size() == 1) arguments->model.folder = rest[0];
    else no_more(rest);
    check_options(arguments->model);
    check_architectures(arguments->model);  // before the chat format, which the tokenizer's keys say
    keep_freed_memory();
    Conversation(*arguments, language_named(arguments->model.language).value_or(environment_language())).run();
  };
}

}  // namespace

const Verb chat_verb{"chat", "A conversation with a language model", add_chat_options};

}  // namespace attn::cli
