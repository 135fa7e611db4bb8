// tests/cli/chat_command_test.cc: attn chat from the shell, through pipes and on a terminal.
#include <attn/chat.h>

#include "cli/command.h"
#include "cli/terminal.h"
#include "model/chat_model.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <string>

namespace attn::testing {
namespace {

class ChatCommand : public ::testing::Test {
 protected:
  ChatCommand() : path_(write_chat_model(folder_, 3000, smollm_template)) {}
  /// Runs a chat whose stdin is `input`.
  Said says(const std::string& input, const std::string& options) const {
    return shell(attn_command + " chat " + path_ + " " + options + " <'" + folder_.write("input", input) + "'");
  }
  /// What the library answers, a line for each message.
  std::string expected(const std::vector<std::string>& messages, const ChatOptions& options,
                       const ChatFormat& format) const {
    const LanguageModel model = LanguageModel::load(path_);
    Chat chat(model, Tokenizer::load(path_), format, options);
    std::string result;
    for (const std::string& message : messages) result += chat.say(message).text + "\n";
    return result;
  }
  Folder folder_;
  std::string path_;
};

TEST_F(ChatCommand, AnswersEachLine) {
  const ChatFormat format = ChatFormat::load(path_);
  const Said said = says("the one\n\n  \ntwo\r\nthree", "--tokens 12 --seed 5");
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_EQ(said.err, "");
  EXPECT_EQ(said.out,
            expected({"the one", "two", "three"},
                     {.generate = {.tokens = 12, .sample = {.temperature = 0.7, .min_p = 0.05}, .seed = 5}}, format));
  EXPECT_EQ(says("the one\n\n  \ntwo\r\nthree", "--tokens 12 --seed 5 --draft ngram").out, said.out);
  EXPECT_EQ(says("the one\n\n  \ntwo\r\nthree", "--tokens 12 --seed 5 --draft " + path_).out, said.out);
  EXPECT_EQ(says("a\n", "--tokens 12 --system 'be kind' --format gemma --temperature 0").out,
            expected({"a"}, {.generate = {.tokens = 12, .sample = {.temperature = 0}}, .system = "be kind"},
                     ChatFormat::gemma()));
  EXPECT_EQ(says("", "").out, "");
  EXPECT_EQ(says("", "").code, 0);
}

TEST_F(ChatCommand, TakesACacheInInt8AndAWindow) {
  const Said plain = says("a\nb\n", "--tokens 30");
  for (const char* options : {"--cache int8", "--window 16", "--window 16 --sinks 2"}) {
    const Said said = says("a\nb\n", std::string("--tokens 30 ") + options);
    EXPECT_EQ(said.code, 0) << said.err;
    EXPECT_NE(said.out, plain.out) << options;
  }
}

TEST_F(ChatCommand, CtrlCStopsTheAnswerAndNotTheChat) {
  folder_.write("input", "a\nb\n");
  std::size_t seen = 0;
  int interrupts = 0;
  // Answers of up to a thousand tokens; each is stopped after some characters, the chat ends with its input.
  const Shown shown =
      on_terminal({"/bin/sh", "-c",
                   "exec " + attn_command + " chat " + path_ + " --tokens 1000000 <'" + folder_.file("input") + "'"},
                  80, [&](const std::string& bytes, pid_t id) {
                    if (interrupts < 2 && bytes.size() > seen + 60) {
                      ++interrupts;
                      seen = bytes.size() + 100;  // what is on its way
                      ::kill(id, SIGINT);
                    }
                  });
  EXPECT_EQ(shown.code, 0) << shown.bytes;
  EXPECT_EQ(interrupts, 2) << shown.bytes;
}

TEST_F(ChatCommand, ShowsAPromptOnATerminal) {
  const Shown shown = on_terminal({command_path(), "chat", path_, "--tokens", "5"}, 80, {}, "the\n\x04");
  EXPECT_EQ(shown.code, 0) << shown.bytes;
  EXPECT_NE(shown.bytes.find("(chatml: Ctrl-C stops an answer, Ctrl-D ends the chat)"), std::string::npos)
      << shown.bytes;
  EXPECT_NE(shown.bytes.find("> "), std::string::npos) << shown.bytes;
  EXPECT_NE(shown.bytes.find("(the answer was cut off after 5 tokens)"), std::string::npos) << shown.bytes;
  const Shown chinese = on_terminal({command_path(), "chat", path_, "--tokens", "5", "--lang", "zh"}, 80, {}, "\x04");
  EXPECT_NE(chinese.bytes.find("（chatml：Ctrl-C 停止回答，Ctrl-D 结束对话）"), std::string::npos) << chinese.bytes;
}

TEST_F(ChatCommand, MistakesAreOneLine) {
  EXPECT_EQ(attn_says("chat").err,
            "attn chat: a model is missing: a GGUF file, or a folder of attn train or of Hugging Face's GPT-2, Llama, "
            "Mistral, Qwen, Gemma, Phi or SmolLM\n");
  EXPECT_EQ(attn_says("chat").code, 2);
  EXPECT_EQ(attn_says("chat --lang zh").err,
            "attn chat: 缺少模型：GGUF 文件，或 attn train 或 Hugging Face "
            "的文件夹（GPT-2、Llama、Mistral、Qwen、Gemma、Phi、"
            "SmolLM）\n");
  EXPECT_EQ(says("a\n", "--format chatm").err,
            "attn chat: --format has no \"chatm\"; did you mean chatml? there are chatml, llama3, gemma, mistral\n");
  EXPECT_EQ(says("a\n", "--sinks 3").err, "attn chat: --sinks needs --window\n");
  EXPECT_EQ(says("a\n", "--draft-tokens 3").err, "attn chat: --draft-tokens needs --draft\n");
  EXPECT_EQ(says("a\n", "--cache int9").code, 2);
  EXPECT_EQ(says("a\n", "--lang fr").err, "attn chat: --lang has no \"fr\"; there are en, zh\n");
  EXPECT_TRUE(says(std::string(4000, 'a') + "\n", "")
                  .err.ends_with(" tokens with what stands around it; the context holds 3000\n"));
  EXPECT_EQ(says("a\n", "--top-p 2").err, "attn: generate: top_p is 2; it must be above 0, at most 1\n");
  folder_.write("model/tokenizer_config.json", "{}");
  EXPECT_EQ(says("a\n", "").err,
            "attn: chat: " + path_ + " has no chat template; give the format: chatml, llama3, gemma or mistral\n");
  folder_.write("model/tokenizer_config.json", R"({"chat_template": "<|user|>"})");
  EXPECT_EQ(
      says("a\n", "").err,
      "attn: chat: the chat template of " + path_ +
          " is that of Phi-3, Zephyr or GLM (<|user|>); attn knows chatml, llama3, gemma or mistral, which may be "
          "given as the format\n");
  EXPECT_EQ(says("a\n", "--format llama3 --tokens 3").code, 0);
  // a draft with other tokens
  Tokenizer::train("something else entirely", Tokenizer::Kind::bpe, 258).save(folder_.file("other"));
  EXPECT_EQ(says("a\n", "--format llama3 --draft " + folder_.file("other")).code, 1);
}

}  // namespace
}  // namespace attn::testing
