// tests/model/encoder_tokenizer_test.cc: tokenizers of encoders: Hugging Face's ids, segments, cut texts and decoded
// texts; files that are saved, damaged, or need what is not supported.
#include "io/files.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/tokenizer.h>

#include <functional>

namespace attn {
namespace {

using testing::error_of;
using testing::golden;
using Ids = std::vector<std::int64_t>;
using Json = nlohmann::json;

const Json& figures() { return golden("tokenizer/encoders.json"); }
Json file(std::string_view name) {
  for (const Json& c : figures().at("cases"))
    if (c.at("name") == name) return c.at("tokenizer");
  throw std::runtime_error("no case " + std::string(name));
}
Tokenizer read(const Json& of) { return Tokenizer::parse(of.dump()); }

void expect_same(const EncodedText& found, const Json& expected, const std::string& where) {
  EXPECT_EQ(found.ids, expected.at("ids").get<Ids>()) << where;
  EXPECT_EQ(found.type_ids, expected.at("type_ids").get<Ids>()) << where;
}

TEST(EncoderTokenizer, GivesHuggingFacesIdsSegmentsAndTexts) {
  for (const Json& c : figures().at("cases")) {
    const Tokenizer tokenizer = read(c.at("tokenizer"));
    const std::string name = c.at("name");
    for (std::size_t i = 0; i < figures().at("strings").size(); ++i) {
      const std::string text = figures().at("strings")[i];
      const EncodedText found = tokenizer.encode_text(text);
      expect_same(found, c.at("ids")[i], name + ": " + text);
      EXPECT_EQ(tokenizer.encode(text, true), found.ids) << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(found.ids), c.at("texts")[i].get<std::string>()) << name << ": " << text;
      EXPECT_EQ(tokenizer.decode(found.ids, true), c.at("without")[i].get<std::string>()) << name << ": " << text;
    }
    for (std::size_t i = 0; i < figures().at("pairs").size(); ++i) {
      const Json& pair = figures().at("pairs")[i];
      expect_same(tokenizer.encode_pair(pair[0].get<std::string>(), pair[1].get<std::string>()), c.at("pairs")[i],
                  name + ", pair " + std::to_string(i));
    }
  }
}

TEST(EncoderTokenizer, CutsLongTextsAsHuggingFace) {
  for (const Json& c : figures().at("cases"))
    for (const Json& cut : c.at("cut")) {
      Json with_side = c.at("tokenizer");
      const std::int64_t most = cut.at("max_length");
      with_side["truncation"] = {{"max_length", most},
                                 {"direction", cut.at("side") == "left" ? "Left" : "Right"},
                                 {"strategy", "LongestFirst"},
                                 {"stride", 0}};
      const Tokenizer tokenizer = read(with_side);
      EXPECT_EQ(tokenizer.max_length(), most);
      const std::string where =
          c.at("name").get<std::string>() + ", " + cut.at("side").get<std::string>() + ", " + std::to_string(most);
      const std::size_t pairs = figures().at("pairs").size();
      for (std::size_t i = 0; i < cut.at("found").size(); ++i) {
        const Json& pair = figures().at("pairs")[i < pairs ? i : 0];
        const EncodedText found =
            i < pairs ? tokenizer.encode_pair(pair[0].get<std::string>(), pair[1].get<std::string>(), most)
                      : tokenizer.encode_text(figures().at("strings")[i - pairs].get<std::string>(), most);
        expect_same(found, cut.at("found")[i], where);
        EXPECT_LE(std::ssize(found.ids), most);
      }
    }
}

TEST(EncoderTokenizer, SavedFilesGiveTheSameIds) {
  for (const Json& c : figures().at("cases")) {
    const Tokenizer tokenizer = read(c.at("tokenizer"));
    const testing::Folder folder;
    tokenizer.save(folder.path());
    const Tokenizer again = Tokenizer::load(folder.path());
    EXPECT_EQ(again.to_json(), tokenizer.to_json());
    const Json written = Json::parse(tokenizer.to_json());
    for (const char* field : {"normalizer", "pre_tokenizer", "post_processor", "decoder", "added_tokens", "truncation"})
      EXPECT_EQ(written.at(field), c.at("tokenizer").at(field)) << field;
    EXPECT_EQ(written.at("model").at("vocab"), c.at("tokenizer").at("model").at("vocab"));
    for (const std::string text : figures().at("strings")) EXPECT_EQ(again.encode(text), tokenizer.encode(text));
  }
}

TEST(EncoderTokenizer, KnowsItsTokens) {
  const Tokenizer bert = read(file("bert uncased")), xlm = read(file("xlm-r"));
  EXPECT_EQ(bert.kind(), Tokenizer::Kind::wordpiece);
  EXPECT_EQ(xlm.kind(), Tokenizer::Kind::unigram);
  EXPECT_EQ(bert.bytes(*bert.find("[SEP]")), " [SEP]") << "behind others";
  EXPECT_EQ(bert.bytes(*bert.find(" the")), " the");
  EXPECT_EQ(bert.find("."), bert.encode(".")[0]) << "no space before it";
  EXPECT_EQ(xlm.bytes(*xlm.find(" the")), " the");
  EXPECT_EQ(bert.find("nowhere"), std::nullopt);
  EXPECT_EQ(error_of<ValueError>([&] { bert.encode("a\xFF"); }), "encode: byte 0xFF at offset 1 is not UTF-8");
  EXPECT_EQ(bert.encode(""), Ids{});
}

TEST(EncoderTokenizer, TheLengthIsThatOfTheFiles) {
  const testing::Folder folder;
  const auto length = [&](const char* config, Json truncation) {
    Json with = file("bert uncased");
    with["truncation"] = std::move(truncation);
    std::ofstream(folder / "tokenizer.json") << with.dump();
    std::ofstream(folder / "tokenizer_config.json") << config;
    return Tokenizer::load(folder.path());
  };
  const Json to_128 = {{"max_length", 128}, {"direction", "Right"}, {"strategy", "LongestFirst"}, {"stride", 0}};
  EXPECT_EQ(length("{}", nullptr).max_length(), 0);
  EXPECT_EQ(length("{}", to_128).max_length(), 128);
  EXPECT_EQ(length(R"({"model_max_length": 512})", to_128).max_length(), 512);
  EXPECT_EQ(length(R"({"model_max_length": 1000000000000000019884624838656})", to_128).max_length(), 128);
  const Tokenizer left = length(R"({"truncation_side": "left", "x": NaN})", nullptr);
  EXPECT_EQ(left.encode_text("the cat sat", 3).ids, (Ids{2, left.encode("sat").back(), 3}));
  EXPECT_EQ(error_of<ValueError>([&] { left.encode_text("the", 1); }),
            "encode: max_length is 1; it must be 0, or from 2, the special tokens alone");
  EXPECT_EQ(error_of<ValueError>([&] { left.encode_pair("the", "cat", -1); }),
            "encode: max_length is -1; it must be 0, or from 3, the special tokens alone");
  EXPECT_EQ(left.encode_text("the", 2).ids, (Ids{2, 3}));
  Json without = file("bert uncased");
  without["post_processor"].erase("pair");
  EXPECT_EQ(error_of<ValueError>([&] { read(without).encode_pair("a", "b"); }),
            "encode: the post-processor of the tokenizer has no template for two texts");
}

TEST(EncoderTokenizer, RefusesByNameWhatItDoesNotHave) {
  const auto says = [](const char* name, const std::function<void(Json&)>& change, const std::string& begin) {
    Json changed = file(name);
    change(changed);
    const std::string text = error_of<FormatError>([&] { read(changed); });
    EXPECT_TRUE(text.starts_with("Tokenizer::parse: " + begin)) << text;
    EXPECT_EQ(text.find('\n'), std::string::npos);
  };
  const auto bert = [&](const std::function<void(Json&)>& change, const std::string& begin) {
    says("bert uncased", change, begin);
  };
  bert([](Json& f) { f["normalizer"] = {{"type", "ByteLevel"}}; },
       "the normalizer {\"type\":\"ByteLevel\"} is not supported; for encoders these are: BertNormalizer, NFC,");
  bert([](Json& f) { f["pre_tokenizer"] = {{"type", "UnicodeScripts"}}; },
       "the pre_tokenizer {\"type\":\"UnicodeScripts\"} is not supported; for encoders these are: BertPreTokenizer,");
  bert([](Json& f) { f["decoder"] = {{"type", "CTC"}}; },
       "the decoder {\"type\":\"CTC\"} is not supported; for encoders these are: WordPiece,");
  bert([](Json& f) { f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", "a|b"}}}, {"content", ""}}; },
       "the pattern {\"Regex\":\"a|b\"} is not supported; texts are, ");
  bert([](Json& f) { f["pre_tokenizer"] = {{"type", "Punctuation"}, {"behavior", "New"}}; }, "behavior is \"New\"");
  bert([](Json& f) { f["normalizer"] = 3; }, "a step of the normalizer must be an object");
  bert([](Json& f) { f["normalizer"]["lowercase"] = "yes"; }, "lowercase must be true or false");
  bert([](Json& f) { f["model"]["unk_token"] = "nothing"; }, "the vocabulary has no nothing");
  bert([](Json& f) { f["model"]["max_input_chars_per_word"] = -1; }, "max_input_chars_per_word is -1");
  bert([](Json& f) { f["model"]["vocab"][std::string(1025, 'x')] = 1000; }, "the token \"xxxx");
  bert([](Json& f) { f["post_processor"]["pair"].push_back(f["post_processor"]["pair"][1]); },
       "the template for two texts must hold A and B once each");
  bert([](Json& f) { f["post_processor"]["single"][1]["Sequence"]["id"] = "C"; },
       "the template speaks of the text \"C\"");
  bert([](Json& f) { f["post_processor"]["single"][0]["SpecialToken"]["type_id"] = -1; }, "type_id is -1");
  const auto xlm = [&](const std::function<void(Json&)>& change, const std::string& begin) {
    says("xlm-r", change, begin);
  };
  xlm([](Json& f) { f["model"]["vocab"] = Json::object(); }, "vocab is missing, or no array");
  xlm([](Json& f) { f["model"]["vocab"] = Json::array(); }, "the vocabulary is empty");
  xlm([](Json& f) { f["model"]["vocab"][5] = {"a"}; },
      "the entry [\"a\"] of the vocabulary is not a token and its score");
  xlm([](Json& f) { f["model"]["unk_id"] = 100000; }, "unk_id is 100000; the vocabulary has ");
  xlm([](Json& f) { f["pre_tokenizer"]["pretokenizers"][1]["replacement"] = ""; },
      "the replacement of a Metaspace is \"\"; it must be one character");
  xlm([](Json& f) { f["normalizer"]["precompiled_charsmap"] = "a"; }, "precompiled_charsmap is not Base64");
  const auto damaged = [&](const char* base64, const char* what) {
    xlm([&](Json& f) { f["normalizer"]["precompiled_charsmap"] = base64; },
        std::string("precompiled_charsmap is damaged: ") + what);
  };
  damaged("", "it has 0 bytes; its head alone has 4");
  damaged("AAAAAA==", "its trie should have 0 units of 4 bytes; 0 bytes follow");
  damaged("CAAAAAAAAAA=", "its trie should have 2 units of 4 bytes; 4 bytes follow");
  damaged("BAAAAAAAAAA=", "unit 0 of its trie points behind the end");
  damaged("BAAAAAAAAIA=", "its trie begins with a value");
  Json none = file("xlm-r");
  none["model"]["unk_id"] = nullptr;
  EXPECT_EQ(error_of<ValueError>([&] { read(none).encode("\xE2\x98\x83"); }),
            "encode: the tokenizer has no token for \"\xE2\x98\x83\" or for what is unknown");
}

// Whatever bytes of a file are changed, it is refused in one line or encodes.
TEST(EncoderTokenizer, DamagedFilesAreErrors) {
  for (const char* name : {"bert uncased", "xlm-r converted", "deberta"}) {
    const std::string whole = file(name).dump();
    const int refused = testing::attack(testing::bytes_of(whole), 1500, [](std::span<const std::byte> bytes) {
      const Tokenizer tokenizer = Tokenizer::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
      try {
        tokenizer.decode(tokenizer.encode_pair("the cat\xC2\xA0 \xE2\x98\x83 <mask>", "\xEF\xAC\x81\xC3\xA9 b").ids);
      } catch (const ValueError&) {  // an unknown token was renamed
      }
    });
    EXPECT_GT(refused, 1500 / 4) << name;
  }
}

// A word is searched for tokens of at most 1024 bytes.
TEST(EncoderTokenizer, LongWordsTakeNoLonger) {
  Json bert = file("bert uncased"), xlm = file("xlm-r");
  bert["model"]["max_input_chars_per_word"] = 1U << 30;
  bert["model"]["vocab"]["##" + std::string(200, 'a')] = bert["model"]["vocab"].size();
  xlm["model"]["vocab"].back()[0] = std::string(200, 'a');
  const std::string long_word(200000, 'a');
  EXPECT_GE(read(bert).encode(long_word).size(), 1U);
  EXPECT_EQ(read(xlm).decode(read(xlm).encode(long_word)), long_word);
}

}  // namespace
}  // namespace attn
