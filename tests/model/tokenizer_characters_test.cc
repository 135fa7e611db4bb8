// tests/model/tokenizer_characters_test.cc: byte pairs of characters with bytes to fall back on (SentencePiece's):
// Hugging Face's ids and texts.
#include "io/files.h"
#include "model/text_stream.h"
#include "model/tokenizer_state.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/generate.h>
#include <attn/tokenizer.h>

namespace attn {
namespace {

using testing::error_of;
using testing::golden;
using Ids = std::vector<std::int64_t>;
using Json = nlohmann::json;

const Json& figures() { return golden("tokenizer/characters.json"); }
Json file(std::string_view name) {
  for (const Json& c : figures().at("cases"))
    if (c.at("name") == name) return c.at("tokenizer");
  throw std::runtime_error("no case " + std::string(name));
}

TEST(TokenizerOfCharacters, GivesHuggingFacesIdsAndTexts) {
  for (const Json& c : figures().at("cases")) {
    const Tokenizer tokenizer = Tokenizer::parse(c.at("tokenizer").dump()),
                    again = Tokenizer::parse(tokenizer.to_json());
    EXPECT_EQ(again.to_json(), tokenizer.to_json());
    for (const char* same : {"normalizer", "pre_tokenizer", "decoder"})
      EXPECT_EQ(Json::parse(tokenizer.to_json()).at(same), c.at("tokenizer").at(same)) << c.at("name");
    for (std::size_t i = 0; i < figures().at("strings").size(); ++i) {
      const std::string string = figures().at("strings")[i];
      const Ids ids = tokenizer.encode(string);
      EXPECT_EQ(ids, c.at("ids")[i].get<Ids>()) << c.at("name") << ", string " << i << ": " << string;
      EXPECT_EQ(tokenizer.decode(ids), c.at("texts")[i].get<std::string>())
          << c.at("name") << ", string " << i << ": " << string;
      EXPECT_EQ(again.encode(string), ids);
      EXPECT_EQ(again.decode(ids), tokenizer.decode(ids));
    }
  }
}

// A run of bytes is text as a whole or not at all, so that it is said when it has ended.
TEST(TokenizerOfCharacters, AStreamGivesHuggingFacesTextOfAnyIds) {
  for (const Json& c : figures().at("cases")) {
    const Tokenizer tokenizer = Tokenizer::parse(c.at("tokenizer").dump());
    const Tokenizer::State& state = state_of(tokenizer);
    for (std::size_t i = 0; i < c.at("any_ids").size(); ++i) {
      TextStream stream({}, state.strip_space);
      std::string text;
      for (const std::int64_t id : c.at("any_ids")[i].get<Ids>())
        text += stream.add(tokenizer.bytes(id), state.lone_byte[static_cast<std::size_t>(id)]);
      EXPECT_EQ(text + stream.finish(), c.at("any_texts")[i].get<std::string>())
          << c.at("name") << ": " << c.at("any_ids")[i];
    }
  }
}

// The space that decoding strips is the prompt's, so that text and prompt side by side are what transformers decodes of
// both.
TEST(TokenizerOfCharacters, AContinuationKeepsItsFirstSpace) {
  Json first = file("first");
  first["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}}, {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
      {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}};
  const Tokenizer tokenizer = Tokenizer::parse(first.dump());
  int spaces = 0;
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Generator generator(seed);
    const LanguageModel model({.vocab_size = tokenizer.size(), .context = 32, .layers = 1, .heads = 1, .width = 8},
                              Dtype::f32, &generator);
    EXPECT_EQ(error_of<ValueError>([&] { generate_text(model, tokenizer, {"the"}, {.stop = {"x", ""}}); }),
              "generate: a stop text is empty; each must have a character");
    for (const std::string prompt : {"the", ""}) {
      const GeneratedText made = generate_text(model, tokenizer, {prompt}, {.tokens = {.tokens = 6, .seed = seed}})[0];
      TextStream both({}, true);
      std::string expected;
      for (const std::int64_t id : tokenizer.encode(prompt)) expected += both.add(tokenizer.bytes(id));
      for (const std::int64_t id : made.tokens)
        expected += both.add(tokenizer.bytes(id), state_of(tokenizer).lone_byte[static_cast<std::size_t>(id)]);
      EXPECT_EQ(prompt + made.text, expected + both.finish()) << "seed " << seed;
      spaces += !prompt.empty() && made.text.starts_with(' ');
    }
  }
  EXPECT_GT(spaces, 0);
}

TEST(TokenizerOfCharacters, TokensAreFoundByWhatTheyStandFor) {
  const Tokenizer tokenizer = Tokenizer::parse(file("prepend").dump());
  const Json vocab = file("prepend").at("model").at("vocab");
  EXPECT_EQ(tokenizer.find(" "), vocab.at("\xE2\x96\x81"));
  EXPECT_EQ(tokenizer.find("a"), vocab.at("a").get<std::int64_t>());
  EXPECT_EQ(tokenizer.find("\xE4"), vocab.at("<0xE4>"));
  EXPECT_EQ(tokenizer.find("</s>"), vocab.at("</s>"));
  EXPECT_EQ(tokenizer.find("\xC3\xA9\xC3\xA9\xC3\xA9"), std::nullopt);
  EXPECT_EQ(tokenizer.bytes(vocab.at("<0xE4>").get<std::int64_t>()), "\xE4");
}

TEST(TokenizerOfCharacters, BytesThatAreNoTextAreKept) {
  for (const char* name : {"prepend", "first", "always"}) {
    const Tokenizer tokenizer = Tokenizer::parse(file(name).dump());
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF\xE4\xB8 b")), "a\xFF\xE4\xB8 b") << name;
  }
}

TEST(TokenizerOfCharacters, SaysWhichCharacterHasNoToken) {
  Json without = file("never");
  without["model"]["unk_token"] = nullptr;
  EXPECT_EQ(error_of<ValueError>([&] { Tokenizer::parse(without.dump()).encode("a\xE4\xB8\x81"); }),
            "encode: the tokenizer has no token for \"\xE4\xB8\x81\", for all of its bytes or for what is unknown");
}

// The merges go over the whole text: n log n has it in a second, n^2 in an hour.
TEST(TokenizerOfCharacters, LongTextsTakeNoLonger) {
  const Tokenizer tokenizer = Tokenizer::parse(file("prepend").dump());
  std::string text;
  while (text.size() < 1000000) text += "the ing  \xE4\xB8\xAD aaa ";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(TokenizerOfCharacters, SaysWhatItCannotFollow) {
  const auto says = [](const char* name, auto change, const std::string& begin) {
    Json changed = file(name);
    change(changed);
    const std::string text = error_of<FormatError>([&] { Tokenizer::parse(changed.dump()); });
    EXPECT_TRUE(text.starts_with("Tokenizer::parse: " + begin)) << text;
  };
  const char* decoder =
      "\"type\":\"Sequence\"} is not supported; with byte_fallback it must be a Sequence: Replace (of a text by a "
      "space, or none), "
      "ByteFallback, Fuse, Strip (of one space at the begin, or none)";
  const auto decoded = [&](Json steps) { return "the decoder {\"decoders\":" + steps.dump() + "," + decoder; };
  const Json fallback = {{"type", "ByteFallback"}}, fuse = {{"type", "Fuse"}};
  const Json strip = {{"type", "Strip"}, {"content", " "}, {"start", 2}, {"stop", 0}};
  const Json wrong[] = {Json::array({fallback}), {fuse, fallback}, {fallback, fuse, strip}, {fallback, fuse, fuse}, 3};
  for (const Json& steps : wrong) says("prepend", [&](Json& f) { f["decoder"]["decoders"] = steps; }, decoded(steps));
  says("prepend", [](Json& f) { f["decoder"] = nullptr; }, "the decoder null is not supported; with byte_fallback");
  says("prepend", [](Json& f) { f["normalizer"]["normalizers"][1]["pattern"] = {{"Regex", " "}}; }, "normalizer is {");
  says(
      "prepend", [](Json& f) { f["normalizer"] = {{"type", "NFKC"}}; },
      "normalizer is {\"type\":\"NFKC\"}; this is not supported, it must be a Sequence of NFC, Prepend and Replace of "
      "a text, or null");
  says(
      "prepend", [](Json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; },
      "the pre-tokenizer {\"type\":\"Whitespace\"} is not supported; with byte_fallback it must be Metaspace, a Split "
      "by a text");
  says(
      "replace", [](Json& f) { f["pre_tokenizer"]["behavior"] = "Removed"; },
      "the pre-tokenizer {\"behavior\":\"Removed\"");
  says(
      "first", [](Json& f) { f["pre_tokenizer"]["replacement"] = "ab"; },
      "the replacement of a Metaspace is \"ab\"; it must be one character");
  says(
      "first", [](Json& f) { f["pre_tokenizer"]["prepend_scheme"] = "last"; },
      "prepend_scheme is \"last\"; it must be always, first or never");
  says(
      "first", [](Json& f) { f["pre_tokenizer"]["add_prefix_space"] = false; },
      "add_prefix_space is false; prepend_scheme must be never then");
  says("prepend", [](Json& f) { f["added_tokens"][0]["rstrip"] = 2; }, "rstrip must be true or false");
  const auto twice = [](Json& f) {
    Json token = f["added_tokens"].back();
    token["id"] = token["id"].get<int>() + 1;
    token["content"] = "x\xE2\x96\x81y";
    f["added_tokens"].push_back(token);
  };
  says("prepend, tokens normalized", twice,
       "the added token \"x\xE2\x96\x81y\" is searched as \"\xE2\x96\x81x\xE2\x96\x81y\", as another is");
}

TEST(TokenizerOfCharacters, DamagedFilesAreErrors) {
  Json small = file("first");
  Json vocab = Json::object();
  for (const auto& [token, id] : small["model"]["vocab"].items())
    if (id < 20) vocab[token] = id;
  small["model"]["vocab"] = vocab;
  small["model"]["merges"] = Json::array();
  small["added_tokens"].erase(3);
  small["normalizer"] = file("prepend")["normalizer"];
  const int refused = testing::attack(testing::bytes_of(small.dump()), 4000, [](std::span<const std::byte> bytes) {
    const Tokenizer tokenizer = Tokenizer::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    try {
      tokenizer.decode(tokenizer.encode("ab <s> \xFF 12", true));
    } catch (const ValueError&) {  // a byte's token was renamed
    }
  });
  EXPECT_GT(refused, static_cast<int>(small.dump().size()) / 2);
}

}  // namespace
}  // namespace attn
