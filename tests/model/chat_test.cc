// tests/model/chat_test.cc: chat formats and how they are recognised; a conversation keeps its tokens in the cache.
#include <attn/chat.h>
#include <attn/ops.h>

#include "model/chat_model.h"
#include "model/gguf_bytes.h"
#include "support/errors.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

using namespace testing;
using Ids = std::vector<std::int64_t>;

/// A conversation as one text, with answers as they are given.
std::string written(const ChatFormat& format, const std::optional<std::string>& system,
                    const std::vector<std::string>& messages) {
  // the model says no token, so that the answers are empty
  const LanguageModel model = chat_model(2000);
  const Tokenizer tokenizer = chat_tokenizer();
  Chat chat(model, tokenizer, format, {.generate = {.tokens = 0}, .system = system});
  for (const std::string& message : messages) EXPECT_EQ(chat.say(message).text, "");
  return tokenizer.decode(chat.tokens());
}

// What transformers' apply_chat_template gives for the templates of these models, with empty answers.
TEST(Chat, AnswersInSteps) {
  const LanguageModel model = chat_model(200);
  const ChatOptions options{.generate = {.tokens = 20, .seed = 4, .draft = {.ngram = 2}}};
  Chat spoken(model, chat_tokenizer(), ChatFormat::chatml(), options),
      stepped(model, chat_tokenizer(), ChatFormat::chatml(), options);
  EXPECT_EQ(error_of<ValueError>([&] { stepped.step(); }), "chat: there is no answer to go on with; ask() begins one");
  for (const char* message : {"one", "two", "three", "four", "five", "six"}) {
    std::string heard, heard_in_steps;
    const GeneratedText expected = spoken.say(message, [&](std::string_view piece) {
      heard += piece;
      return true;
    });
    stepped.ask(message, [&](std::string_view piece) {
      heard_in_steps += piece;
      return true;
    });
    while (stepped.step()) {}
    const GeneratedText answer = stepped.answer();
    EXPECT_EQ(answer.text, expected.text);
    EXPECT_EQ(answer.tokens, expected.tokens);
    EXPECT_EQ(answer.finish, expected.finish);
    EXPECT_EQ(heard_in_steps, heard);
    EXPECT_EQ(stepped.tokens(), spoken.tokens());
    EXPECT_EQ(stepped.computed(), spoken.computed());
    EXPECT_EQ(stepped.left_out(), spoken.left_out());
  }
  const Ids before = stepped.tokens();
  stepped.ask("seven");
  stepped.step();
  stepped.forget();
  EXPECT_EQ(stepped.tokens(), before);
  EXPECT_EQ(stepped.say("eight").tokens, spoken.say("eight").tokens);
  Chat moved = std::move(stepped);
  moved.ask("nine");
  moved.step();
  moved.say("ten");  // ends the answer before
  const std::string told = chat_tokenizer().decode(moved.tokens());
  EXPECT_NE(told.find("nine"), std::string::npos) << told;
  EXPECT_NE(told.find("ten"), std::string::npos) << told;
}

TEST(ChatFormat, WritesWhatTheTemplatesWrite) {
  EXPECT_EQ(written(ChatFormat::of_template(smollm_template, "t"), std::nullopt, {"Hi", " Well? "}),
            "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<|im_end|>\n"
            "<|im_start|>user\n Well? <|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(written(ChatFormat::of_template(smollm_template, "t"), "Be brief.", {"Hi"}),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(written(ChatFormat::of_template(plain_chatml_template, "t"), std::nullopt, {"Hi"}),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(written(ChatFormat::of_template(llama3_template, "t"), " Be brief. ", {" Hi ", "Well?"}),
            "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nWell?<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(
      written(ChatFormat::of_template(llama3_template + "{{- \"Cutting Knowledge Date: December 2023\\n\" }}", "t"),
              std::nullopt, {"Hi"}),
      "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
      "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
      "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const std::string gemma = "{{ bos_token }}... {{ '<start_of_turn>' + role + '\\n' + message['content'] | trim ...";
  EXPECT_EQ(written(ChatFormat::of_template(gemma, "t"), "Be brief.", {" Hi", "Well?"}),
            "<bos><start_of_turn>user\nBe brief.\n\nHi<end_of_turn>\n<start_of_turn>model\n<end_of_turn>\n"
            "<start_of_turn>user\nWell?<end_of_turn>\n<start_of_turn>model\n");
  struct Mistral {
    const char *in_template, *text;
  };
  for (const auto& [in_template, text] :
       {Mistral{"'[INST] ' + message['content'] + ' [/INST]' ... message['content'] + eos_token + ' '",
                "<s>[INST] Hi [/INST]</s> [INST] Well? [/INST]"},
        Mistral{"\" [INST] \" + content + \" [/INST]\" ... \" \" + message[\"content\"] + eos_token",
                "<s> [INST] Hi [/INST]</s> [INST] Well? [/INST]"},
        Mistral{"\"[INST] \" + content + \"[/INST]\"", "<s>[INST] Hi[/INST]</s>[INST] Well?[/INST]"},
        Mistral{"\"[INST]\" + content + \"[/INST]\"", "<s>[INST]Hi[/INST]</s>[INST]Well?[/INST]"}})
    EXPECT_EQ(written(ChatFormat::of_template(in_template, "t"), std::nullopt, {"Hi", "Well?"}), text);
  EXPECT_EQ(written(ChatFormat::of_template("\"[INST]\" [SYSTEM_PROMPT]", "t"), "Be brief.", {"Hi"}),
            "<s>[SYSTEM_PROMPT]Be brief.[/SYSTEM_PROMPT][INST]Hi[/INST]");
  EXPECT_EQ(written(ChatFormat::mistral(), "Be brief.", {"Hi"}), "<s>[INST] Be brief.\n\nHi[/INST]");
}

TEST(ChatFormat, FindsTheSystemTextOfATemplate) {
  // as Qwen 2.5: that for tools is no literal
  const std::string qwen =
      "{%- if tools %}{{- '<|im_start|>system\\n' }}{{- messages[0]['content'] }}{%- else %}{{- "
      "'<|im_start|>system\\n' + "
      "messages[0]['content'] + '<|im_end|>\\n' }}{{- '<|im_start|>system\\nYou are Qwen.\\nBe "
      "kind.<|im_end|>\\n' }}";
  EXPECT_EQ(ChatFormat::of_template(qwen, "t").system, "You are Qwen.\nBe kind.");
  EXPECT_EQ(ChatFormat::of_template(plain_chatml_template, "t").system, std::nullopt);
  EXPECT_EQ(ChatFormat::of_template("<|im_start|>system", "t").system, std::nullopt);
}

TEST(ChatFormat, IsFoundInTheFilesOfAModel) {
  const Folder folder;
  const std::string path = write_chat_model(folder, 64, smollm_template);
  EXPECT_EQ(ChatFormat::load(path).name, "chatml");
  folder.write("model/tokenizer_config.json",
               R"({"chat_template": [{"name": "tool_use", "template": "[INST]"},
                            {"name": "default", "template": "<start_of_turn>"}]})");
  EXPECT_EQ(ChatFormat::load(path).name, "gemma");
  folder.write("model/chat_template.jinja", llama3_template);
  EXPECT_EQ(ChatFormat::load(path).name, "llama3");
  std::filesystem::remove(folder.file("model/chat_template.jinja"));
  folder.write("model/tokenizer_config.json", "{}");
  EXPECT_EQ(error_of<ValueError>([&] { ChatFormat::load(path); }),
            "chat: " + path + " has no chat template; give the format: chatml, llama3, gemma or mistral");
  folder.write("model/chat_template.json", R"({"chat_template": "[INST]"})");
  EXPECT_EQ(ChatFormat::load(path).name, "mistral");
  folder.write("model/tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_EQ(error_of<ValueError>([&] { ChatFormat::load(path); }),
            path + "/tokenizer_config.json: chat_template is 3; it must be a text");
  GgufBytes file;
  file.text("general.architecture", "llama").text("tokenizer.chat_template", smollm_template);
  EXPECT_EQ(ChatFormat::load(folder.write("m.gguf", file.bytes())).name, "chatml");
  GgufBytes none;
  none.text("general.architecture", "llama");
  EXPECT_NE(error_of<ValueError>([&] { ChatFormat::load(folder.write("n.gguf", none.bytes())); }).find("has no chat"),
            std::string::npos);
}

TEST(ChatFormat, NamesWhatItDoesNotKnow) {
  const auto refused = [](const std::string& text) {
    return error_of<ValueError>([&] { ChatFormat::of_template(text, "chat: the chat template of M"); });
  };
  const std::string known = "; attn knows chatml, llama3, gemma or mistral, which may be given as the format";
  EXPECT_EQ(refused("{{ '<|user|>\\n' }}"),
            "chat: the chat template of M is that of Phi-3, Zephyr or GLM (<|user|>)" + known);
  EXPECT_EQ(refused("{{ '<|im_start|>user<|im_sep|>' }}"),
            "chat: the chat template of M is that of Phi-4 (<|im_sep|>)" + known);
  EXPECT_EQ(refused("[INST] <<SYS>>"), "chat: the chat template of M is that of Llama 2 (<<SYS>>)" + known);
  EXPECT_EQ(refused("{{ messages }}"), "chat: the chat template of M is unknown" + known);
  EXPECT_EQ(error_of<ValueError>([] { ChatFormat::named("chatm"); }),
            "chat: format is \"chatm\"; it must be chatml, llama3, gemma or mistral");
  for (const char* name : {"chatml", "llama3", "gemma", "mistral"}) EXPECT_EQ(ChatFormat::named(name).name, name);
}

// Each answer is what generate says after the whole conversation; only the new message is computed.
TEST(Chat, AnswersAsGenerateDoesAndComputesWhatIsNew) {
  const LanguageModel model = chat_model(2000);
  const Tokenizer tokenizer = chat_tokenizer();
  for (const ChatFormat& format :
       {ChatFormat::chatml(), ChatFormat::llama3(), ChatFormat::gemma(), ChatFormat::mistral()})
    for (const Draft& draft : {Draft{}, Draft{.ngram = 3}}) {
      Chat chat(model, tokenizer, format, {.generate = {.tokens = 20, .seed = 4, .draft = draft}, .system = "the end"});
      Ids end = {*tokenizer.find(format.end_token)};
      std::int64_t before = 0;
      for (std::uint64_t turn = 0; turn < 4; ++turn) {
        std::string streamed;
        const GeneratedText said = chat.say("the message", [&](std::string_view piece) {
          streamed += piece;
          return true;
        });
        EXPECT_EQ(streamed, said.text);
        Ids prompt = chat.tokens();
        ASSERT_GT(prompt.size(), said.tokens.size());
        prompt.resize(prompt.size() - said.tokens.size());
        EXPECT_EQ(generate(model, {prompt}, {.tokens = 20, .seed = 4 + turn, .end_tokens = end})[0].tokens,
                  said.tokens);
        // the message with what stands around it; and the last token of the answer before, if no end token followed it
        if (turn > 0) {
          EXPECT_LE(chat.computed(), std::ssize(prompt) - (before - 1)) << format.name;
          EXPECT_GE(chat.computed(), std::ssize(prompt) - before) << format.name;
        }
        before = std::ssize(chat.tokens());
      }
      EXPECT_EQ(chat.left_out(), 0);
    }
}

TEST(Chat, LeavesOutTheOldestMessages) {
  const LanguageModel model = chat_model(120);
  const Tokenizer tokenizer = chat_tokenizer();
  for (const bool inside : {false, true}) {
    const ChatFormat format = inside ? ChatFormat::gemma() : ChatFormat::chatml();
    Chat chat(model, tokenizer, format, {.generate = {.tokens = 12}, .system = "be kind"});
    for (int turn = 0; turn < 12; ++turn) {
      const GeneratedText said = chat.say("m" + std::to_string(turn));
      EXPECT_LE(chat.tokens().size(), 120u);
      const std::string text = tokenizer.decode(chat.tokens());
      EXPECT_NE(text.find("be kind"), std::string::npos) << text;
      EXPECT_NE(text.find("m" + std::to_string(turn)), std::string::npos) << text;
      Ids prompt = chat.tokens();
      prompt.resize(prompt.size() - said.tokens.size());
      EXPECT_EQ(generate(model, {prompt},
                         {.tokens = 12,
                          .seed = static_cast<std::uint64_t>(turn),
                          .end_tokens = Ids{*tokenizer.find(format.end_token)}})[0]
                    .tokens,
                said.tokens);
    }
    EXPECT_GT(chat.left_out(), 3);
    const Ids before = chat.tokens();
    EXPECT_NE(error_of<ValueError>([&] {
                chat.say(std::string(200, 'x'));
              }).find("tokens with what stands around it; the context holds 120"),
              std::string::npos);
    EXPECT_EQ(chat.tokens(), before);
    EXPECT_FALSE(chat.say("go on").tokens.empty());
  }
}

TEST(Chat, AnAnswerThatIsStoppedStaysAsFarAsItWasSaid) {
  const LanguageModel model = chat_model(400);
  const Tokenizer tokenizer = chat_tokenizer();
  Chat chat(model, tokenizer, ChatFormat::chatml(), {.generate = {.tokens = 200}});
  const GeneratedText said = chat.say("a", [](std::string_view) { return false; });
  EXPECT_EQ(said.finish, Finish::stopped);
  EXPECT_LT(said.tokens.size(), 200u);
  chat.say("b", [](std::string_view) { return false; });
  EXPECT_NE(tokenizer.decode(chat.tokens()).find(tokenizer.decode(said.tokens) + "<|im_end|>\n<|im_start|>user\nb"),
            std::string::npos);
}

TEST(Chat, TakesAnInt8CacheAndAWindow) {
  const LanguageModel model = chat_model(400);
  Chat plain(model, chat_tokenizer(), ChatFormat::chatml(), {.generate = {.tokens = 30}});
  Chat small(model, chat_tokenizer(), ChatFormat::chatml(),
             {.generate = {.tokens = 30}, .cache = {.storage = KvStorage::int8, .window = 16, .sinks = 4}});
  const Ids first = plain.say("the message").tokens;
  EXPECT_NE(small.say("the message").tokens, first);
  EXPECT_EQ(small.say("the next").finish == Finish::stop, false);
}

// what ends an answer need not be a token of the tokenizer
TEST(Chat, ATextMayEndAnAnswer) {
  const LanguageModel model = chat_model(600);
  const Tokenizer tokenizer = chat_tokenizer();
  ChatFormat format = ChatFormat::chatml();
  Chat plain(model, tokenizer, format, {.generate = {.tokens = 100}});
  const std::string all = plain.say("a").text;
  const auto shown = [](char c) { return c > ' ' && c < '\x7f'; };
  std::size_t at = 5;
  while (at + 1 < all.size() && !(shown(all[at]) && shown(all[at + 1]))) ++at;
  ASSERT_LT(at + 1, all.size()) << all;
  format.end_token = all.substr(at, 2);
  ASSERT_EQ(tokenizer.find(format.end_token), std::nullopt);
  Chat chat(model, tokenizer, format, {.generate = {.tokens = 100}});
  const GeneratedText said = chat.say("a");
  EXPECT_EQ(said.finish, Finish::stop);
  EXPECT_EQ(said.text, all.substr(0, all.find(format.end_token)));
  chat.say("b");
  EXPECT_NE(tokenizer.decode(chat.tokens()).find(said.text + format.end_token + "\n<|im_start|>user\nb"),
            std::string::npos);
}

}  // namespace
}  // namespace attn
