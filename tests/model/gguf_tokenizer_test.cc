// tests/model/gguf_tokenizer_test.cc: tokenizers in GGUF files give Hugging Face's ids; what is not read is named.
#include "model/gguf/write.h"
#include "model/gguf_bytes.h"
#include "model/tiny_models.h"
#include "model/tokenizer_ids.h"
#include "support/errors.h"
#include "support/folder.h"
#include "support/golden.h"
#include "text/tokenizer/cut.h"

#include <attn/tokenizer.h>

#include <gtest/gtest.h>

#include <limits>

namespace attn {
namespace {

using testing::error_of;
using testing::expect_ids;
using testing::Folder;
using testing::GgufBytes;
using testing::golden;
using Ids = std::vector<std::int64_t>;
using Json = nlohmann::json;

Tokenizer load(const GgufBytes& file) {
  const Folder folder;
  return Tokenizer::load(folder.write("t.gguf", file.bytes()));
}

/// The byte-level BPE of a tokenizer.json as a GGUF file holds it.
GgufBytes gguf_of(const Json& tokenizer, const std::string& pre) {
  const Json& vocab = tokenizer.at("model").at("vocab");
  std::vector<std::string> tokens(vocab.size()), merges;
  std::vector<std::int32_t> types(vocab.size(), 1);
  for (const auto& [token, id] : vocab.items()) tokens.at(id.get<std::size_t>()) = token;
  for (const Json& added : tokenizer.at("added_tokens"))
    types.at(added.at("id").get<std::size_t>()) = added.at("special").get<bool>() ? 3 : 4;
  for (const Json& merge : tokenizer.at("model").at("merges"))
    merges.push_back(merge.is_string() ? merge.get<std::string>()
                                       : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  GgufBytes file;
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  file.texts("tokenizer.ggml.tokens", tokens).texts("tokenizer.ggml.merges", merges);
  return file.array("tokenizer.ggml.token_type", 5, types);
}

TEST(GgufTokenizer, OfBytesGivesHuggingFacesIds) {
  const Json& figures = golden("tokenizer/tokenizers.json");
  for (const Json& c : figures.at("cases"))
    for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, std::pair{"llama3", "llama-bpe"}})
      if (c.at("name") == name)
        expect_ids(load(gguf_of(c.at("tokenizer"), pre)), figures.at("strings"), c.at("ids"), name);
  const Json& nfc = golden("tokenizer/nfc.json");  // Qwen's
  expect_ids(load(gguf_of(nfc.at("tokenizer"), "qwen2")), nfc.at("strings"), nfc.at("ids"), "qwen2");
  const Json& cuts = golden("tokenizer/cuts.json");
  for (std::size_t i = 0; i < 2; ++i) {
    const Json& c = cuts.at("cases")[i];
    expect_ids(load(gguf_of(c.at("tokenizer"), i == 0 ? "smollm" : "default")), cuts.at("strings"), c.at("ids"),
               c.at("name"));
  }
  const Json& cases = golden("tokenizer/cases.json");
  for (const Json& c : cases.at("cases"))
    expect_ids(load(gguf_of(c.at("tokenizer"), c.at("name"))), cases.at("strings"), c.at("ids"), c.at("name"));
}

/// Names for Llama 3's pattern; some stand for more, as the tokenizers of their models have it.
TEST(GgufTokenizer, NamesOfOnePattern) {
  const Json& figures = golden("tokenizer/tokenizers.json");
  for (const Json& c : figures.at("cases")) {
    if (c.at("name") != "llama3") continue;
    for (const char* name : {"llama3", "llama-v3", "smaug-bpe"})
      expect_ids(load(gguf_of(c.at("tokenizer"), name)), figures.at("strings"), c.at("ids"), name);
    const Json written = Json::parse(load(gguf_of(c.at("tokenizer"), "dbrx")).to_json());
    EXPECT_EQ(written.at("pre_tokenizer"), c.at("tokenizer").at("pre_tokenizer"));
    EXPECT_EQ(written.at("model").value("ignore_merges", false), false);
  }
}

/// A tokenizer of an encoder as a GGUF file holds it.
GgufBytes gguf_of_encoder(const Json& tokenizer) {
  const Json& vocab = tokenizer.at("model").at("vocab");
  const bool words = vocab.is_object();
  std::vector<std::string> tokens(vocab.size());
  std::vector<float> scores(vocab.size(), 0);
  std::vector<std::int32_t> types(vocab.size(), 1);
  for (std::size_t id = 0; !words && id < vocab.size(); ++id) {
    tokens[id] = vocab[id][0];
    scores[id] = vocab[id][1];
  }
  if (words)
    for (const auto& [token, id] : vocab.items()) {
      const bool special = token.starts_with('[') && token.size() > 1;
      tokens.at(id.get<std::size_t>()) = special                                       ? token
                                         : token.starts_with("##") && token.size() > 2 ? token.substr(2)
                                                                                       : "\xE2\x96\x81" + token;
    }
  for (const Json& added : tokenizer.at("added_tokens"))
    if (const auto id = added.at("id").get<std::size_t>(); id < types.size()) types[id] = 3;
  GgufBytes file;
  file.text("tokenizer.ggml.model", words ? "bert" : "t5").texts("tokenizer.ggml.tokens", tokens);
  if (!words) file.array("tokenizer.ggml.scores", 6, scores);
  return file.array("tokenizer.ggml.token_type", 5, types);
}

TEST(GgufTokenizer, OfEncodersGivesHuggingFacesIds) {
  const Json& figures = golden("tokenizer/encoders.json");
  const auto compare = [&](const Json& c, const GgufBytes& file) {
    const Tokenizer tokenizer = load(file);
    for (std::size_t i = 0; i < figures.at("strings").size(); ++i) {
      const std::string text = figures.at("strings")[i];
      if (text.find("<mask>") != std::string::npos) continue;  // the file cannot say what white space it takes
      EXPECT_EQ(tokenizer.encode_text(text).ids, c.at("ids")[i].at("ids").get<Ids>()) << c.at("name") << ": " << text;
    }
    const Json& pair = figures.at("pairs")[0];
    const EncodedText found = tokenizer.encode_pair(pair[0].get<std::string>(), pair[1].get<std::string>());
    EXPECT_EQ(found.ids, c.at("pairs")[0].at("ids").get<Ids>()) << c.at("name");
    EXPECT_EQ(found.type_ids, c.at("pairs")[0].at("type_ids").get<Ids>()) << c.at("name");
  };
  for (const Json& c : figures.at("cases")) {
    GgufBytes file = gguf_of_encoder(c.at("tokenizer"));
    const std::string name = c.at("name");
    if (name == "bert uncased" || name == "bert cased")
      compare(c, file.number("tokenizer.ggml.cls_token_id", 2)
                     .number("tokenizer.ggml.seperator_token_id", 3)
                     .number("tokenizer.ggml.unknown_token_id", 1));
    if (name != "xlm-r") continue;
    const std::string table = c.at("tokenizer").at("normalizer").at("precompiled_charsmap");
    std::vector<std::uint8_t> bytes;
    std::uint32_t held = 0;
    for (std::size_t i = 0; i < table.size() && table[i] != '='; ++i) {
      constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
      held = held << 6 | static_cast<std::uint32_t>(digits.find(table[i]));
      if (i % 4 != 0) bytes.push_back(static_cast<std::uint8_t>(held >> (6 - 2 * (i % 4))));
    }
    file.array("tokenizer.ggml.precompiled_charsmap", 0, bytes).number("tokenizer.ggml.unknown_token_id", 3);
    compare(c, file.boolean("tokenizer.ggml.add_bos_token", true)
                   .number("tokenizer.ggml.bos_token_id", 0)
                   .number("tokenizer.ggml.eos_token_id", 2));
    const Tokenizer t5 = load(gguf_of_encoder(c.at("tokenizer")).number("tokenizer.ggml.eos_token_id", 2));
    EXPECT_EQ(t5.encode_text("").ids, Ids{2});
    EXPECT_EQ(t5.encode_pair("", "").ids, (Ids{2, 2}));
  }
}

GgufBytes of_scores() {
  const Json& c = golden("tokenizer/cuts.json").at("scores");
  std::vector<std::int32_t> types(c.at("tokens").size(), 1);
  types[0] = 2, types[1] = types[2] = 3;
  for (std::size_t i = 3; i < 259; ++i) types[i] = 6;
  GgufBytes file;
  file.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", c.at("tokens"));
  file.array<float>("tokenizer.ggml.scores", 6, c.at("scores")).array("tokenizer.ggml.token_type", 5, types);
  return file.number("tokenizer.ggml.bos_token_id", 1).number("tokenizer.ggml.eos_token_id", 2);
}

TEST(GgufTokenizer, OfScoresGivesHuggingFacesIdsAndTexts) {
  const Json &cuts = golden("tokenizer/cuts.json"), &c = cuts.at("scores");
  const Tokenizer tokenizer = load(of_scores());
  expect_ids(tokenizer, cuts.at("strings"), c.at("ids"), "scores");
  for (std::size_t i = 0; i < c.at("ids").size(); ++i)
    EXPECT_EQ(tokenizer.decode(c.at("ids")[i].get<Ids>()), c.at("texts")[i].get<std::string>());
  EXPECT_EQ(tokenizer.encode("", true), (Ids{1}));  // <s>, unless the file says otherwise
  EXPECT_EQ(tokenizer.encode("<s></s>"), (Ids{1, 2}));
  EXPECT_EQ(load(of_scores().boolean("tokenizer.ggml.add_bos_token", false)).encode("", true), Ids{});
  EXPECT_EQ(load(of_scores().boolean("tokenizer.ggml.add_eos_token", true)).encode("", true), (Ids{1, 2}));
  const Tokenizer plain = load(of_scores().boolean("tokenizer.ggml.add_space_prefix", false));
  EXPECT_EQ(plain.decode(plain.encode(" a b")), " a b");
  EXPECT_EQ(plain.encode("\xE2\x96\x81"
                         "a"),
            tokenizer.encode("a"));
}

/// Texts of a vocabulary: its tokens, and runs of them chosen by a generator of fixed seed.
std::vector<std::string> texts_of(const Tokenizer& tokenizer) {
  std::vector<std::string> tokens{""}, texts;
  for (std::int64_t id = 0; id < tokenizer.size(); ++id)
    if (!tokenizer.decode({id}).empty()) tokens.push_back(tokenizer.decode({0, id}));
  texts = tokens;
  std::uint32_t state = 1;
  for (int i = 0; i < 500; ++i) {
    std::string& text = texts.emplace_back();
    for (int n = 0; n < 12; ++n) {
      state = state * 1664525 + 1013904223;
      text += tokens[(state >> 8) % tokens.size()];
    }
  }
  return texts;
}

/// Compares everything that is asked of a tokenizer.
void expect_same(const Tokenizer& a, const Tokenizer& b, const std::string& name) {
  SCOPED_TRACE(name);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.kind(), b.kind());
  Ids all;
  for (std::int64_t id = 0; id < a.size(); ++id) {
    const Ids one{id};
    EXPECT_EQ(a.decode(one), b.decode(one)) << id;
    EXPECT_EQ(a.decode(one, true), b.decode(one, true)) << id;  // empty: a special token
    if (a.decode(one).empty()) continue;
    EXPECT_EQ(a.bytes(id), b.bytes(id)) << id;
    EXPECT_EQ(a.find(a.bytes(id)), b.find(a.bytes(id))) << id;
    all.push_back(id);
  }
  EXPECT_EQ(a.decode(all), b.decode(all));
  EXPECT_EQ(a.decode(all, true), b.decode(all, true));
  const auto ids_of = [](const Tokenizer& tokenizer, const std::string& text) {
    try {
      return tokenizer.encode(text);
    } catch (const ValueError&) {  // a part of a character, where tokens are not bytes
      return Ids{-1};
    }
  };
  int whole = 0;
  for (const std::string& text : texts_of(a)) {
    const Ids ids = ids_of(a, text);
    whole += ids != Ids{-1} ? 1 : 0;
    EXPECT_EQ(ids, ids_of(b, text)) << text;
  }
  EXPECT_GT(whole, 500);
}

TEST(GgufTokenizer, IsTheOneOfTokenizerJson) {
  const Json& figures = golden("tokenizer/tokenizers.json");
  for (const Json& c : figures.at("cases"))
    for (const auto& [name, pre] : {std::pair{"gpt2", "gpt-2"}, std::pair{"llama3", "llama-bpe"}})
      if (c.at("name") == name)
        expect_same(load(gguf_of(c.at("tokenizer"), pre)), Tokenizer::parse(c.at("tokenizer").dump()), name);
  const Json& nfc = golden("tokenizer/nfc.json");
  expect_same(load(gguf_of(nfc.at("tokenizer"), "qwen2")), Tokenizer::parse(nfc.at("tokenizer").dump()), "qwen2");
  for (const bool prefix : {false, true}) {  // of scores: its tokenizer.json has the merges as texts
    const Tokenizer scores = load(of_scores().boolean("tokenizer.ggml.add_space_prefix", prefix)),
                    again = Tokenizer::parse(scores.to_json());
    expect_same(scores, again, "scores");
    EXPECT_EQ(again.to_json(), scores.to_json());
  }
  for (const Json& c : golden("tokenizer/encoders.json").at("cases"))
    if (c.at("name") == "bert uncased" || c.at("name") == "bert cased")
      expect_same(load(gguf_of_encoder(c.at("tokenizer"))
                           .number("tokenizer.ggml.cls_token_id", 2)
                           .number("tokenizer.ggml.seperator_token_id", 3)
                           .number("tokenizer.ggml.unknown_token_id", 1)),
                  Tokenizer::parse(c.at("tokenizer").dump()), c.at("name"));
}

TEST(GgufTokenizer, AddsWhatTheFileSays) {
  const Json& c = golden("tokenizer/tokenizers.json").at("cases")[1];  // gpt2, with <|endoftext|>
  GgufBytes file = gguf_of(c.at("tokenizer"), "gpt-2");
  file.number("tokenizer.ggml.bos_token_id", 0).number("tokenizer.ggml.eos_token_id", 0);
  EXPECT_EQ(load(file).encode("a", true), load(file).encode("a"));
  EXPECT_EQ(load(GgufBytes(file).boolean("tokenizer.ggml.add_bos_token", true)).encode("", true), Ids{0});
  EXPECT_EQ(load(GgufBytes(file).boolean("tokenizer.ggml.add_eos_token", true)).encode("", true), Ids{0});
  GgufBytes llama = gguf_of(c.at("tokenizer"), "llama-bpe");
  EXPECT_EQ(load(llama.number("tokenizer.ggml.bos_token_id", 0)).encode("", true), Ids{0});
}

/// RoBERTa's byte pairs, as llama.cpp writes them: <s> and </s> stand around a text though no key says it.
TEST(GgufTokenizer, OfRobertaHasItsEnds) {
  const Json& figures = golden("tokenizer/tokenizers.json");
  const Json& c = figures.at("cases")[1];
  GgufBytes file = gguf_of(c.at("tokenizer"), "roberta-bpe");
  file.number("tokenizer.ggml.bos_token_id", 3).number("tokenizer.ggml.seperator_token_id", 4);
  expect_ids(load(file), figures.at("strings"), c.at("ids"), "roberta-bpe");
  EXPECT_EQ(load(file).encode("", true), (Ids{3, 4}));
  EXPECT_EQ(load(GgufBytes(file).boolean("tokenizer.ggml.add_eos_token", false)).encode("", true), Ids{});
  EXPECT_NE(error_of<ValueError>([&] {
              load(gguf_of(c.at("tokenizer"), "roberta-bpe"));
            }).find("tokenizer.ggml.cls_token_id is missing"),
            std::string::npos);
}

/// Writes a model of a few numbers with the tokenizer, and reads the tokenizer.
Tokenizer written(const Tokenizer& tokenizer) {
  const Folder folder;
  ModelConfig config = testing::tiny_llama();
  config.vocab_size = tokenizer.size();
  gguf::write(folder / "m.gguf", LanguageModel(config), &tokenizer, "F32");
  return Tokenizer::load(folder / "m.gguf");
}

TEST(GgufTokenizer, IsWrittenAndReadAgain) {
  const Json& cuts = golden("tokenizer/cuts.json");
  for (const Json& c : cuts.at("cases"))
    expect_ids(written(Tokenizer::parse(c.at("tokenizer").dump())), cuts.at("strings"), c.at("ids"), c.at("name"));
  const Json& cases = golden("tokenizer/cases.json");
  for (const Json& c : cases.at("cases"))
    expect_ids(written(Tokenizer::parse(c.at("tokenizer").dump())), cases.at("strings"), c.at("ids"), c.at("name"));
  const Json& nfc = golden("tokenizer/nfc.json");
  expect_ids(written(Tokenizer::parse(nfc.at("tokenizer").dump())), nfc.at("strings"), nfc.at("ids"), "qwen2");
  const Tokenizer scores = load(of_scores().boolean("tokenizer.ggml.add_eos_token", false));
  EXPECT_EQ(written(scores).to_json(), scores.to_json());
}

TEST(GgufTokenizer, WhatAFileCannotHoldIsRefused) {
  const auto text = [](const std::string& name) {
    for (const Json& c : golden("tokenizer/characters.json").at("cases"))
      if (c.at("name") == name)
        return error_of<ValueError>([&] { written(Tokenizer::parse(c.at("tokenizer").dump())); });
    return std::string();
  };
  EXPECT_EQ(text("prepend"),
            "convert: the tokenizer has merges that do not follow from scores of its tokens, as a GGUF "
            "file has them");
  EXPECT_EQ(text("always"),
            "convert: the tokenizer is not of SentencePiece's form in Llama 2, the one of characters "
            "that a GGUF file can hold");
  EXPECT_EQ(error_of<ValueError>([] { written(Tokenizer::train("a b c", Tokenizer::Kind::words)); }),
            "convert: the tokenizer is of words or characters; a GGUF file can hold byte pairs");
  const Json& bert = golden("tokenizer/encoders.json").at("cases")[0];
  EXPECT_EQ(error_of<ValueError>([&] { written(Tokenizer::parse(bert.at("tokenizer").dump())); }),
            "convert: the tokenizer is of an encoder, WordPiece or Unigram; a GGUF file can hold byte pairs");
  Json bytes = Json::parse(Tokenizer::train("a b c", Tokenizer::Kind::bpe).to_json());
  bytes["added_tokens"].push_back({{"id", bytes["model"]["vocab"].size()}, {"content", "<mask>"}, {"lstrip", true}});
  EXPECT_EQ(error_of<ValueError>([&] { written(Tokenizer::parse(bytes.dump())); }),
            "convert: the tokenizer has added tokens that look at what is beside them, which a GGUF file cannot say");
}

/// Returns what is said to a file with three tokens that `change` made another.
template <typename F>
std::string refused(F&& change) {
  const Folder folder;
  GgufBytes file;
  change(file);
  const std::string path = folder.write("t.gguf", file.bytes()), begin = "GgufFile: " + path + ": ",
                    text = error_of<ValueError>([&] { Tokenizer::load(path); });
  EXPECT_TRUE(text.starts_with(begin)) << text;
  return text.substr(std::min(begin.size(), text.size()));
}

GgufBytes& three(GgufBytes& file, const std::vector<std::string>& tokens = {"a", "b", "ab"}) {
  return file.text("tokenizer.ggml.model", "gpt2").texts("tokenizer.ggml.tokens", tokens);
}

TEST(GgufTokenizer, WhatIsNotReadIsNamed) {
  EXPECT_EQ(refused([](GgufBytes&) {}), "tokenizer.ggml.model is missing");
  EXPECT_EQ(refused([](GgufBytes& file) { file.text("tokenizer.ggml.model", "rwkv"); }),
            "tokenizer.ggml.model is \"rwkv\"; attn reads gpt2 (byte-level BPE), llama (SentencePiece's BPE), bert "
            "(WordPiece) and t5 (Unigram)");
  EXPECT_EQ(refused([](GgufBytes& file) { three(file).text("tokenizer.ggml.pre", "bloom"); }),
            "tokenizer.ggml.pre is \"bloom\"; attn reads llama-bpe, llama3, llama-v3, smaug-bpe, dbrx, gpt-4o, tekken, "
            "qwen2, deepseek-r1-qwen, gpt-2, phi-2, roberta-bpe, smollm, starcoder, refact, default");
  EXPECT_EQ(refused([](GgufBytes& file) { file.text("tokenizer.ggml.model", "gpt2"); }),
            "tokenizer.ggml.tokens is missing");
  EXPECT_EQ(refused([](GgufBytes& file) { three(file, {"a", "\xFF", "ab"}); }),
            "tokenizer.ggml.tokens: token 1, \"\\xFF\", is not UTF-8");
  EXPECT_EQ(refused([](GgufBytes& file) { three(file, {"a", "b", "a"}); }),
            "tokenizer.ggml.tokens: token 2, \"a\", is token 0 too");
  EXPECT_EQ(refused([](GgufBytes& file) { three(file, {"a", std::string(1025, 'b')}); }).substr(0, 40),
            "tokenizer.ggml.tokens: token 1, \"bbbbbbb");
  EXPECT_EQ(refused([](GgufBytes& file) { three(file).array<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 2}); }),
            "tokenizer.ggml.token_type is an array of 2; there are 3 tokens");
  EXPECT_EQ(
      refused([](GgufBytes& file) { three(file).array<std::int32_t>("tokenizer.ggml.token_type", 5, {1, 9, 1}); }),
      "tokenizer.ggml.tokens: token 1, \"b\", has the type 9");
  EXPECT_EQ(refused([](GgufBytes& file) { three(file).texts("tokenizer.ggml.merges", {"a c"}); }),
            "the tokenizer: a merge speaks of \"c\", which is not in the vocabulary");
  EXPECT_EQ(refused([](GgufBytes& file) {
              three(file).boolean("tokenizer.ggml.add_bos_token", true).number("tokenizer.ggml.bos_token_id", 3);
            }),
            "tokenizer.ggml.bos_token_id is 3; there are 3 tokens");
  EXPECT_EQ(refused([](GgufBytes& file) {
              file.text("tokenizer.ggml.model", "t5").texts("tokenizer.ggml.tokens", {"a", "b"});
              file.array<float>("tokenizer.ggml.scores", 6, {1, std::numeric_limits<float>::quiet_NaN()});
            }),
            "tokenizer.ggml.scores is an array of 2; one of them is not a finite number");
  EXPECT_EQ(refused([](GgufBytes& file) {
              file.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a"});
              file.array<float>("tokenizer.ggml.scores", 6, {1, 2});
            }),
            "tokenizer.ggml.scores is an array of 2; there are 1 tokens");
}

}  // namespace
}  // namespace attn
