// tests/cli/convert_command_test.cc: attn convert loses nothing that attn reads, from a GGUF file to a folder and back;
// a file that attn does not read is refused by its architecture, whatever its tokenizer.
#include "model/gguf_folder.h"
#include "model/tiny_models.h"

#include "cli/command.h"

#include <attn/chat.h>
#include <attn/gguf.h>
#include <attn/tokenizer.h>

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace attn::testing {
namespace {

using Json = nlohmann::json;

constexpr const char* chat_template = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m.role }}\n{% endfor %}";

void converts(const std::string& from, const std::string& to) {
  const Said said = attn_says("convert " + from + " " + to);
  ASSERT_EQ(said.code, 0) << said.err;
}

void write_json(const std::string& path, const Json& json) { std::ofstream(path) << json.dump(2); }
Json json_of(const std::string& path) { return Json::parse(content_of(path)); }

/// The tiny Llama with a tokenizer of 29 tokens, of SentencePiece's kind. Every key has another value than that which
/// is meant without it.
GgufBytes file_with_every_key() {
  GgufBytes file = gguf_of_folder(golden_folder("llama"), "llama");
  std::erase_if(file.keys, [](const std::string& key) {
    return key.starts_with(text_of("tokenizer.ggml.eos_token_id")) || key.starts_with(text_of("llama.rope.freq_base"));
  });
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\xE2\x96\x81"};
  for (char c = 'a'; tokens.size() < 26; ++c) tokens.emplace_back(1, c);
  for (const char* token : {"ab", "abc", "<0x41>"}) tokens.emplace_back(token);
  std::vector<std::int32_t> types(tokens.size(), 1);
  types[0] = 2, types[1] = types[2] = types[20] = 3, types[21] = 4, types[28] = 6;
  std::vector<float> scores(tokens.size());
  scores[26] = -1, scores[27] = -2;
  const auto key = [](const char* name) { return std::string("tokenizer.ggml.") + name; };
  file.text("general.name", "Tiny Llama").text("tokenizer.chat_template", chat_template);
  file.text(key("model"), "llama").texts(key("tokens"), tokens).array(key("token_type"), 5, types);
  file.array(key("scores"), 6, scores).boolean(key("add_space_prefix"), false);
  file.boolean(key("add_bos_token"), false).boolean(key("add_eos_token"), true);
  std::uint32_t id = 20;  // of control, user-defined and other tokens
  for (const char* which : {"bos", "eos", "eot", "eom", "padding", "seperator", "mask"})
    file.number(key(which) + "_token_id", id++);
  file.number(key("unknown_token_id"), 0);
  file.real("llama.rope.freq_base", 12345).number("llama.attention.sliding_window", 7);
  file.text("llama.rope.scaling.type", "yarn").real("llama.rope.scaling.factor", 3);
  file.number("llama.rope.scaling.original_context_length", 16).real("llama.rope.scaling.attn_factor", 1.25f);
  file.real("llama.rope.scaling.yarn_beta_fast", 24).real("llama.rope.scaling.yarn_beta_slow", 2);
  return file;
}

void expect_same_keys(const std::string& first, const std::string& second) {
  const GgufFile a = GgufFile::open(first), b = GgufFile::open(second);
  for (const std::string& key : a.keys()) {
    ASSERT_TRUE(b.has(key)) << key;
    const auto value = [&](const GgufFile& file) {
      try {
        const auto texts = file.texts(key);
        return Json(std::vector<std::string>(texts.begin(), texts.end()));
      } catch (const ValueError&) {}
      try {
        return Json(file.integers(key));
      } catch (const ValueError&) { return Json(file.numbers(key)); }
    };
    EXPECT_EQ(value(a), value(b)) << key;
  }
}

TEST(ConvertCommand, EveryKeyOfAFileSurvivesAFolder) {
  const Folder folder;
  const std::string first = folder.write("a.gguf", file_with_every_key().bytes()), second = folder / "b.gguf";
  converts(first, folder / "model");
  const Json fields = json_of(folder / "model/tokenizer_config.json"), config = json_of(folder / "model/config.json");
  const Json tokens{{"bos_token", "q"}, {"eos_token", "r"}, {"unk_token", "<unk>"},
                    {"pad_token", "u"}, {"sep_token", "v"}, {"mask_token", "ab"}};
  for (const auto& [field, token] : tokens.items()) EXPECT_EQ(fields.value(field, ""), token) << field;
  EXPECT_EQ(fields.at("chat_template"), chat_template);
  EXPECT_EQ(config.at("_name_or_path"), "Tiny Llama");
  EXPECT_EQ(config.at("bos_token_id"), 20);
  EXPECT_EQ(config.at("eos_token_id"), Json({21, 22, 23}));
  EXPECT_EQ(config.at("pad_token_id"), 24);
  EXPECT_EQ(ChatFormat::load(folder / "model").name, "chatml");
  converts(folder / "model", second);
  expect_same_keys(first, second);
  EXPECT_EQ(LanguageModel::load(first).config.to_json(), LanguageModel::load(folder / "model").config.to_json());
  EXPECT_EQ(Tokenizer::load(first).to_json(), Tokenizer::load(folder / "model").to_json());
}

/// What one field of a folder says is what the file says, and the folder that is made of the file.
TEST(ConvertCommand, EveryFieldOfAFolderSurvivesAFile) {
  const Folder folder;
  converts(folder.write("a.gguf", file_with_every_key().bytes()), folder / "model");
  Json config = json_of(folder / "model/config.json");
  for (const char* field : {"_name_or_path", "bos_token_id", "pad_token_id"}) config.erase(field);
  std::filesystem::remove(folder / "model/tokenizer_config.json");
  struct Case {
    const char* file;
    Json fields;
    const char* key;
    Json value;
  };
  const Json several{{"chat_template", {{{"name", "default"}, {"template", "a"}}, {{"name", "b"}, {"template", "c"}}}}};
  const Case cases[] = {
      {"config.json", {{"_name_or_path", "someone/Tiny"}}, "general.name", "someone/Tiny"},
      {"config.json", {{"_name_or_path", "/models/Tiny/"}}, "general.name", "Tiny"},
      {"config.json", Json::object(), "general.name", "model"},
      {"config.json", {{"bos_token_id", 5}}, "tokenizer.ggml.bos_token_id", 5},
      {"config.json", {{"pad_token_id", 6}}, "tokenizer.ggml.padding_token_id", 6},
      {"config.json", {{"pad_token_id", -1}}, "tokenizer.ggml.padding_token_id", nullptr},
      {"config.json", {{"sep_token_id", 7}}, "tokenizer.ggml.seperator_token_id", 7},
      {"config.json", {{"eos_token_id", {9, 21}}}, "tokenizer.ggml.eot_token_id", 9},
      {"generation_config.json", {{"eos_token_id", {21, 9}}}, "tokenizer.ggml.eot_token_id", 9},
      {"tokenizer_config.json", {{"bos_token", "<s>"}}, "tokenizer.ggml.bos_token_id", 1},
      {"tokenizer_config.json", {{"bos_token", {{"content", "<s>"}}}}, "tokenizer.ggml.bos_token_id", 1},
      {"special_tokens_map.json", {{"bos_token", {{"content", "<s>"}}}}, "tokenizer.ggml.bos_token_id", 1},
      {"tokenizer_config.json", {{"pad_token", "b"}}, "tokenizer.ggml.padding_token_id", 5},
      {"tokenizer_config.json", {{"pad_token", "no token"}}, "tokenizer.ggml.padding_token_id", nullptr},
      {"tokenizer_config.json", {{"chat_template", "a"}}, "tokenizer.chat_template", "a"},
      {"tokenizer_config.json", several, "tokenizer.chat_template", "a"},
      {"chat_template.json", {{"chat_template", "a"}}, "tokenizer.chat_template", "a"},
      {"chat_template.jinja", nullptr, "tokenizer.chat_template", "null"},
  };
  int number = 0;
  for (const Case& one : cases) {
    const std::string name = "case " + std::to_string(number++) + ": " + one.fields.dump();
    SCOPED_TRACE(name);
    const std::string from = folder / "model", file = folder / ("m" + std::to_string(number) + ".gguf"),
                      again = folder / ("again" + std::to_string(number));
    for (const char* other : {"tokenizer_config.json", "special_tokens_map.json", "generation_config.json",
                              "chat_template.json", "chat_template.jinja"})
      std::filesystem::remove(from + "/" + other);
    Json fields = one.file == std::string("config.json") ? config : Json::object();
    write_json(from + "/config.json", config);
    if (one.fields.is_null()) fields = nullptr;
    else fields.update(one.fields);
    write_json(from + "/" + one.file, fields);
    converts(from, file);
    const GgufFile written = GgufFile::open(file);
    if (one.value.is_null()) EXPECT_FALSE(written.has(one.key));
    else if (one.value.is_string()) EXPECT_EQ(written.text(one.key), one.value);
    else EXPECT_EQ(written.integer(one.key), one.value);
    converts(file, again);
    converts(again, file + ".2.gguf");
    expect_same_keys(file, file + ".2.gguf");
  }
}

TEST(ConvertCommand, AFolderKeepsItsFilesInAnother) {
  const Folder folder;
  converts(folder.write("a.gguf", file_with_every_key().bytes()), folder / "model");
  const Json fields{{"tokenizer_class", "LlamaTokenizerFast"}, {"model_max_length", 7}, {"truncation_side", "left"}};
  write_json(folder / "model/tokenizer_config.json", fields);
  folder.write("model/chat_template.jinja", chat_template);
  write_json(folder / "model/generation_config.json", {{"eos_token_id", 4}, {"top_k", 3}});
  converts(folder / "model", folder / "other");
  const Json kept = json_of(folder / "other/tokenizer_config.json");
  for (const auto& [field, value] : fields.items()) EXPECT_EQ(kept.at(field), value);
  EXPECT_EQ(content_of(folder / "other/chat_template.jinja"), chat_template);
  EXPECT_EQ(json_of(folder / "other/generation_config.json").at("top_k"), 3);
  EXPECT_EQ(LanguageModel::load(folder / "other").config.end_tokens, std::vector<std::int64_t>{4});
}

/// llama.cpp takes the number of ids from the tokens: what a model has beside those of its tokenizer are unused ones.
TEST(ConvertCommand, IdsWithoutATokenAreUnusedTokens) {
  const Folder folder;
  converts(folder.write("a.gguf", file_with_every_key().bytes()), folder / "model");
  Json tokenizer = json_of(folder / "model/tokenizer.json");
  tokenizer["model"]["vocab"].erase("<0x41>");
  tokenizer["post_processor"] = nullptr;
  write_json(folder / "model/tokenizer.json", tokenizer);
  converts(folder / "model", folder / "b.gguf");
  const GgufFile file = GgufFile::open(folder / "b.gguf");
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens").size(), 29u);
  EXPECT_EQ(file.texts("tokenizer.ggml.tokens")[28], "[PAD28]");
  EXPECT_EQ(file.integers("tokenizer.ggml.token_type")[28], 5);
  converts(folder / "b.gguf", folder / "again");
  converts(folder / "again", folder / "c.gguf");
  expect_same_keys(folder / "b.gguf", folder / "c.gguf");
}

TEST(ConvertCommand, MoreEndsThanAFileHasRoomFor) {
  const Folder folder;
  converts(folder.write("a.gguf", file_with_every_key().bytes()), folder / "model");
  write_json(folder / "model/generation_config.json", {{"eos_token_id", {21, 5, 6, 7}}});
  EXPECT_EQ(attn_says("convert " + (folder / "model") + " " + (folder / "b.gguf")).err,
            "attn: convert: the model has 4 tokens that end a text; a GGUF file has room for 3\n");
}

TEST(ConvertCommand, AnArchitectureIsRefusedBeforeItsTokenizer) {
  const Folder folder;
  GgufBytes file;
  file.text("general.architecture", "dbrx").text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "dbrx");
  file.texts("tokenizer.ggml.tokens", {"a"}).text("tokenizer.chat_template", "unknown");
  const std::string path = folder.write("m.gguf", file.bytes()), text = folder.write("text", "a b c");
  converts(folder.write("a.gguf", file_with_every_key().bytes()), folder / "model");
  const std::string expected = "attn: GgufFile: " + path +
                               ": general.architecture is \"dbrx\"; attn reads llama, qwen2, qwen3, gemma2, gemma3, "
                               "phi3, smollm3, gpt2\n";
  for (const std::string& words : std::vector<std::string>{
           "generate " + path + " --prompt a", "generate " + (folder / "model") + " --prompt a --draft " + path,
           "chat " + path + " </dev/null", "explain a --model " + path, "convert " + path + " " + (folder / "x"),
           "convert " + path + " " + (folder / "x.gguf"), "perplexity " + path + " " + text})
    EXPECT_EQ(attn_says(words).err, expected) << words;
}

}  // namespace
}  // namespace attn::testing
