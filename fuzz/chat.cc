// fuzz/chat.cc: recognises texts as templates of chats: a format begins and ends messages and answers, and a
// conversation in it takes a message or an error says why not.
#include "fuzz.h"

#include <attn/chat.h>

using namespace attn;
using namespace attn::fuzz;

static const LanguageModel& model() {
  static const LanguageModel made({.vocab_size = 300, .context = 64, .layers = 1, .heads = 1, .width = 4});
  return made;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Tokenizer tokenizer = Tokenizer::train("user assistant [INST] <|im_start|>", Tokenizer::Kind::bpe, 260);
  ChatFormat format;
  const std::string text = Choices(data, size).rest();
  if (!answers([&] { format = ChatFormat::of_template(text, "t"); })) return 0;
  const ChatFormat known = ChatFormat::named(format.name);
  check(!format.user_begin.empty() && !format.end_token.empty(), "a format without its tokens");
  check(format.end_token == known.end_token && format.answer_begin == known.answer_begin, "another format of its name");
  check(!format.system || text.size() >= format.system->size(), "a system text that is longer than the template");
  answers([&] {
    Chat chat(model(), tokenizer, format, {.generate = {.tokens = 2}});
    check(chat.say("a").tokens.size() <= 2, "an answer of more tokens than it may have");
  });
  return 0;
}
