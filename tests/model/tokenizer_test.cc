// tests/model/tokenizer_test.cc: Hugging Face's ids and merges, round trips of any bytes, files that are saved.
#include "io/files.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/tokenizer.h>

#include <functional>

namespace attn {
namespace {

using testing::error_of;
using testing::golden;
using Kind = Tokenizer::Kind;
using Ids = std::vector<std::int64_t>;

const nlohmann::json& figures() { return golden("tokenizer/tokenizers.json"); }
const nlohmann::json& figures(std::string_view name) {
  for (const auto& c : figures().at("cases"))
    if (c.at("name") == name) return c;
  throw std::runtime_error("no case " + std::string(name));
}
std::string text() { return figures().at("text"); }

TEST(Tokenizer, GivesHuggingFacesIds) {
  for (const auto& c : figures().at("cases")) {
    const Tokenizer tokenizer = Tokenizer::parse(c.at("tokenizer").dump());
    for (std::size_t i = 0; i < figures().at("strings").size(); ++i) {
      const std::string string = figures().at("strings")[i];
      EXPECT_EQ(tokenizer.encode(string), c.at("ids")[i].get<Ids>())
          << c.at("name") << ", string " << i << ": " << string;
    }
  }
}

TEST(Tokenizer, SavedFilesGiveTheSameIdsAndText) {
  for (const auto& c : figures().at("cases")) {
    const Tokenizer tokenizer = Tokenizer::parse(c.at("tokenizer").dump());
    const testing::Folder folder;
    tokenizer.save(folder.path());
    const Tokenizer again = Tokenizer::load(folder.path());
    EXPECT_EQ(again.to_json(), tokenizer.to_json());
    EXPECT_EQ(nlohmann::json::parse(again.to_json()).at("model").at("vocab"), c.at("tokenizer").at("model").at("vocab"))
        << c.at("name");
    for (const std::string string : figures().at("strings")) {
      EXPECT_EQ(again.encode(string), tokenizer.encode(string));
      const bool keeps_all = c.at("name") != "words" && c.at("name") != "prefix";
      if (keeps_all) { EXPECT_EQ(again.decode(again.encode(string)), string) << c.at("name"); }
    }
  }
}

// transformers would else read the vocabulary of characters as that of a GPT-2.
TEST(Tokenizer, SavesWhatTransformersNeedsToReadIt) {
  const testing::Folder folder;
  const auto config = [&] {
    std::ifstream file(folder / "tokenizer_config.json");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  Tokenizer::train("ab", Kind::characters).save(folder.path());
  EXPECT_EQ(nlohmann::json::parse(config()).at("tokenizer_class"), "PreTrainedTokenizerFast");
  std::ofstream(folder / "tokenizer_config.json") << "{}";
  Tokenizer::train("abc", Kind::characters).save(folder.path());
  EXPECT_EQ(config(), "{}") << "someone's own";
}

TEST(Tokenizer, LearnsHuggingFacesMerges) {
  const auto compare = [](const std::string& text, std::int64_t vocab_size, const nlohmann::json& expected) {
    const auto ours = nlohmann::json::parse(Tokenizer::train(text, Kind::bpe, vocab_size).to_json()).at("model");
    EXPECT_EQ(ours.at("vocab"), expected.at("vocab"));
    ASSERT_EQ(ours.at("merges").size(), expected.at("merges").size());
    for (std::size_t i = 0; i < ours.at("merges").size(); ++i)
      ASSERT_EQ(ours.at("merges")[i], expected.at("merges")[i]) << "merge " << i;
  };
  compare(text(), 900, figures("trained").at("tokenizer").at("model"));
  compare(figures().at("few_letters"), 700, figures().at("few_letters_model"));  // many pairs of one count
}

TEST(Tokenizer, StopsWhenNoPairOccursTwice) {
  EXPECT_EQ(Tokenizer::train("abcdef", Kind::bpe, 1000).size(), 256);
  EXPECT_EQ(Tokenizer::train("aa aa", Kind::bpe, 1000).size(), 257);  // "aa" twice; " aa" once
}

TEST(Tokenizer, WordsThatAreNotKnownAreOne) {  // which are known: tokenizer_words_test.cc
  const Tokenizer all = Tokenizer::train(text(), Kind::words);
  EXPECT_EQ(all.decode(all.encode(text())), text());
  EXPECT_EQ(all.encode("unheard"), Ids{0});
}

TEST(Tokenizer, CharactersAreCodePointsInOrder) {
  const Tokenizer tokenizer = Tokenizer::train("hello, 世界\n", Kind::characters);
  EXPECT_EQ(tokenizer.size(), 9);
  EXPECT_EQ(tokenizer.encode("\n ,ehlo世界"), (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8})) << "U+4E16 before U+754C";
  EXPECT_EQ(tokenizer.decode({8, 0}), "界\n");
  EXPECT_EQ(error_of<ValueError>([&] { tokenizer.encode("hex"); }),
            "encode: \"x\" is not among the 9 characters of the tokenizer");
  const Tokenizer whole = Tokenizer::train(text(), Kind::characters);
  EXPECT_EQ(whole.decode(whole.encode(text())), text());
  EXPECT_EQ(Tokenizer::parse(whole.to_json()).encode(text()), whole.encode(text()));
  EXPECT_EQ(Tokenizer::parse(whole.to_json()).kind(), Kind::characters);
}

TEST(Tokenizer, PairsKeepAnyBytes) {
  const Tokenizer tokenizer = Tokenizer::train(text(), Kind::bpe, 500);
  std::mt19937 random(3);
  for (int round = 0; round < 300; ++round) {
    std::string bytes;
    for (std::uint32_t left = random() % 60; left > 0; --left)
      bytes += round % 2 ? static_cast<char>(random()) : "a \n\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\xFF'1"[random() % 15];
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(bytes)), bytes);
  }
}

TEST(Tokenizer, AddedTokensAreFoundInTheTextAndMayBeLeftOut) {
  const Tokenizer tokenizer = Tokenizer::parse(figures("prefix").at("tokenizer").dump());
  EXPECT_EQ(tokenizer.find("<|endoftext|>"), 0);
  EXPECT_EQ(tokenizer.find("<|end|>"), 1);
  EXPECT_EQ(tokenizer.find("<|nothing|>"), std::nullopt);
  const Ids ids = tokenizer.encode(" a<|endoftext|> b");
  EXPECT_EQ(tokenizer.decode(ids), " a<|endoftext|> b");
  EXPECT_EQ(tokenizer.decode(ids, true), " a b");
}

/// Bytes, " the" by merges, and added tokens as given: {content, normalized}, numbered after the vocabulary or as it
/// has them.
nlohmann::json with_added(const std::vector<std::pair<std::string, bool>>& tokens) {
  nlohmann::json file = nlohmann::json::parse(Tokenizer::train("the the the the", Kind::bpe, 260).to_json());
  std::size_t next = file["model"]["vocab"].size();
  for (const auto& [content, normalized] : tokens) {
    const nlohmann::json known = file["model"]["vocab"].value(content, nlohmann::json());
    file["added_tokens"].push_back(
        {{"id", known.is_null() ? nlohmann::json(next++) : known}, {"content", content}, {"normalized", normalized}});
  }
  return file;
}

// Those that are not "normalized" are taken out of the text first, wherever the others would begin.
TEST(Tokenizer, AddedTokensAreFoundInTwoRounds) {
  const Ids both = Tokenizer::parse(with_added({{"<x", true}, {"x>", false}}).dump()).encode("<x>");
  EXPECT_EQ(both, (Ids{'<' - '!', 260})) << "as Hugging Face's library";
  const Tokenizer first = Tokenizer::parse(with_added({{"<x", false}, {"x>", true}}).dump());
  EXPECT_EQ(first.encode("<x>"), (Ids{259, '>' - '!'}));
  EXPECT_EQ(Tokenizer::parse(first.to_json()).encode("<x>"), first.encode("<x>"));
}

TEST(Tokenizer, TheLongestAddedTokenIsFoundAmongMany) {
  std::vector<std::pair<std::string, bool>> many{{"<", false},   {"<a", false},   {"<a>", false},
                                                 {"<ab", false}, {"<b>x", false}, {"\xF0\x9F\x98\x80", false}};
  for (int i = 0; i < 2000; ++i) many.emplace_back("<|reserved_" + std::to_string(i) + "|>", false);
  const Tokenizer tokenizer = Tokenizer::parse(with_added(many).dump());
  EXPECT_EQ(tokenizer.encode("<a<a><ab><b><b>x<|reserved_1999|><|reserved_2000|>").size(),
            10U + std::string("|reserved_2000|>").size());
  EXPECT_EQ(tokenizer.encode("<a><ab\xF0\x9F\x98\x80<c"), (Ids{260, 261, 263, '<' - '!', 'c' - '!'}));
  const std::string signs(1000000, '<');  // each of them begins every token
  EXPECT_EQ(tokenizer.encode(signs).size(), signs.size());
}

TEST(Tokenizer, AnAddedTokenThatMergesMakeStandsForTheirBytes) {
  const Tokenizer tokenizer =
      Tokenizer::parse(with_added({{"\xC4\xA0the", false}, {"\xC3\xA9", false}, {"\xC3\xA9t\xC3\xA9", false}}).dump());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("x the \xE9 \xC3\xA9t\xC3\xA9")), "x the \xE9 \xC3\xA9t\xC3\xA9");
}

TEST(Tokenizer, WholePiecesAreLookedUpByTheirByteCharacters) {
  nlohmann::json file = with_added({});
  file["model"]["ignore_merges"] = true;
  // no byte characters: nothing in a text is this token
  file["model"]["vocab"]["\xE6\x97\xA5"] = file["model"]["vocab"].size();
  EXPECT_EQ(Tokenizer::parse(file.dump()).encode("\xE6\x97\xA5").size(), 3U);
}

TEST(Tokenizer, NamesTheIdThatIsNotThere) {
  const Tokenizer tokenizer = Tokenizer::train("ab", Kind::characters);
  EXPECT_EQ(error_of<ValueError>([&] { tokenizer.decode({0, -1}); }),
            "decode: id -1 is not there; the tokenizer has 2 tokens");
  for (const std::int64_t id : {-1, 2})
    EXPECT_EQ(error_of<ValueError>([&] { tokenizer.bytes(id); }),
              "decode: id " + std::to_string(id) + " is not there; the tokenizer has 2 tokens");
  EXPECT_EQ(Tokenizer().size(), 0);
  EXPECT_EQ(Tokenizer().encode(""), Ids{});
}

TEST(Tokenizer, SaysWhatCannotBeLearnt) {
  const auto says = [](const char* what, std::string_view text, Kind kind, std::int64_t size) {
    EXPECT_EQ(error_of<ValueError>([&] { Tokenizer::train(text, kind, size); }),
              std::string("Tokenizer::train: ") + what);
  };
  says("the text is empty", "", Kind::bpe, 0);
  says("vocab_size is 100; it must be from 256 to 4194304, or 0", "x", Kind::bpe, 100);
  says("vocab_size is 1; it must be from 2 to 4194304, or 0", "x", Kind::words, 1);
  says("vocab_size is 65; characters take all there are: 0", "x", Kind::characters, 65);
  says("byte 0xFF at offset 1 is not UTF-8", "x\xFF", Kind::characters, 0);
}

TEST(Tokenizer, AnErrorCutsWhatItQuotesBetweenCharacters) {
  using Json = nlohmann::json;
  for (std::size_t before = 0; before < 3; ++before) {
    std::string name(before, 'x');
    while (name.size() < 300) name += "猫";
    const std::function<void(Json&)> changes[] = {
        [&](Json& f) { f["model"]["vocab"][name] = -1; },
        [&](Json& f) { f["model"]["merges"].push_back({"a", name}); },
        [&](Json& f) { f["model"]["merges"].push_back(name); },
        [&](Json& f) { f["added_tokens"].push_back({{"id", 600}, {"content", name}}); },
        [&](Json& f) { f["normalizer"] = {{"type", name}}; },
        [&](Json& f) { f["decoder"] = {{"type", name}}; },
        [&](Json& f) { f["model"]["dropout"] = name; },
    };
    for (const auto& change : changes) {
      Json file = figures("gpt2").at("tokenizer");
      change(file);
      const std::string text = error_of<FormatError>([&] { Tokenizer::parse(file.dump()); });
      EXPECT_NE(text.find("猫猫"), std::string::npos) << text;
      EXPECT_EQ(text.find("\\x"), std::string::npos) << text;
    }
  }
}

// Each change makes a file that Hugging Face's library would read otherwise than we could follow.
TEST(Tokenizer, RefusesWhatItWouldReadWrongly) {
  const auto refused = [](auto change) {
    nlohmann::json file = figures("gpt2").at("tokenizer");
    change(file);
    return error_of<FormatError>([&] { Tokenizer::parse(file.dump()); });
  };
  using Json = nlohmann::json;
  const auto starts = [](const std::string& text, const std::string& begin) {
    EXPECT_TRUE(text.starts_with("Tokenizer::parse: " + begin)) << text;
  };
  starts(refused([](Json& f) { f["normalizer"] = {{"type", "NFKC"}}; }),
         "normalizer is {\"type\":\"NFKC\"}; this is not supported");
  starts(refused([](Json& f) {
           f["normalizer"] = {{"type", "NFC"}}, f["added_tokens"][0]["content"] = "e\xCC\x81",
           f["added_tokens"][0]["normalized"] = true;
         }),
         "the added token \"e\xCC\x81\" is not in the form of the texts that it is searched in, NFC");
  starts(refused([](Json& f) { f["model"]["type"] = "Other"; }),
         "the model is a Other; supported are BPE, WordLevel, WordPiece and Unigram");
  starts(refused([](Json& f) { f["model"]["byte_fallback"] = true; }), "the decoder {\"add_prefix_space\":");
  starts(refused([](Json& f) { f["model"]["dropout"] = 0.1; }), "dropout is 0.1");
  starts(refused([](Json& f) { f["model"]["merges"].push_back({"a", "zzzz"}); }),
         "a merge speaks of \"zzzz\", which is not in the vocabulary");
  starts(refused([](Json& f) { f["model"]["merges"].push_back("a b c"); }), "the merge \"a b c\" is not two tokens");
  starts(refused([](Json& f) { f["model"]["vocab"]["new"] = 3; }), "id 3 is given twice");
  starts(refused([](Json& f) { f["model"]["vocab"]["new"] = -1; }), "the id of \"new\" is -1");
  starts(refused([](Json& f) { f["model"]["vocab"]["new"] = 1u << 31; }), "the id of \"new\" is 2147483648");
  starts(refused([](Json& f) { f["model"]["vocab"] = Json::object(); }), "the vocabulary is empty");
  starts(refused([](Json& f) { f.erase("model"); }), "model is missing, or no object");
  starts(refused([](Json& f) { f["pre_tokenizer"] = {{"type", "Whitespace"}}; }), "the pre-tokenizer is not supported");
  starts(refused([](Json& f) { f["added_tokens"][0]["lstrip"] = 1; }), "lstrip must be true or false");
  starts(refused([](Json& f) { f["truncation"] = {{"max_length", -1}}; }), "max_length of the truncation is -1");
  starts(refused([](Json& f) { f["added_tokens"][0]["content"] = "other"; }), "id 0 is given twice");
  starts(refused([](Json& f) { f["decoder"] = {{"type", "Metaspace"}}; }),
         "the decoder {\"type\":\"Metaspace\"} is not supported; it must be ByteLevel, or null");
  const auto added = [](Json& f, Json id, const char* content) {
    f["added_tokens"].push_back({{"id", id}, {"content", content}});
  };
  starts(refused([&](Json& f) { added(f, 600, "<x>"); }),
         "the added token \"<x>\" has the id 600; Hugging Face's library gives it 500");
  starts(refused([&](Json& f) { added(f, 500, "a"); }),
         "the added token \"a\" has the id 500; Hugging Face's library gives it 65");
  starts(refused([&](Json& f) { f["model"]["vocab"]["hole"] = 520, added(f, 520, "hole"), added(f, 521, "<x>"); }),
         "the added token \"<x>\" has the id 521; Hugging Face's library gives it 501");
  starts(refused([&](Json& f) { added(f, 500, "<|endoftext|>"); }), "the added token \"<|endoftext|>\" is given twice");
  starts(error_of<FormatError>([] { Tokenizer::parse(std::string(100000, '[')); }),
         "nested too deeply (byte offset 100)");
  starts(error_of<FormatError>([] { Tokenizer::parse(R"({"model": 1e999})"); }), "a number is too large");
  EXPECT_EQ(error_of<IoError>([] { Tokenizer::load("/nowhere"); }),
            "Tokenizer::load: /nowhere: No such file or directory");
}

// What Qwen's tokenizers do with a text first.
TEST(Tokenizer, BringsTextsToFormCAsHuggingFace) {
  const auto& recorded = golden("tokenizer/nfc.json");
  nlohmann::json file = recorded.at("tokenizer");
  const Tokenizer tokenizer = Tokenizer::parse(file.dump()), again = Tokenizer::parse(tokenizer.to_json());
  for (std::size_t i = 0; i < recorded.at("strings").size(); ++i) {
    const auto text = recorded.at("strings")[i].get<std::string>();
    EXPECT_EQ(tokenizer.encode(text), recorded.at("ids")[i].get<std::vector<std::int64_t>>()) << i << ": " << text;
    EXPECT_EQ(again.encode(text), tokenizer.encode(text));
  }
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("e\xCC\x81 \xFF\xCC<|endoftext|>a\xCC\x80")),
            "\xC3\xA9 \xFF\xCC<|endoftext|>\xC3\xA0")
      << "no UTF-8 is kept";
  file["normalizer"] = {{"type", "Sequence"}, {"normalizers", nlohmann::json::array({file["normalizer"]})}};
  EXPECT_EQ(Tokenizer::parse(file.dump()).to_json(), tokenizer.to_json());
  file["normalizer"] = nullptr;
  EXPECT_NE(Tokenizer::parse(file.dump()).encode("e\xCC\x81"), tokenizer.encode("e\xCC\x81"));
}

// As Hugging Face's library reads them; of the words' and the characters' files too.
TEST(Tokenizer, ASequenceOfOneStepIsThatStep) {
  using Json = nlohmann::json;
  const auto inside = [](const char* steps, const Json& step) {
    return Json{{"type", "Sequence"}, {steps, Json::array({step})}};
  };
  const std::string sample = "A few words, 12345 numbers\n and  spaces";
  for (const std::string& text :
       {figures("gpt2").at("tokenizer").dump(), figures("llama3").at("tokenizer").dump(),
        Tokenizer::train(sample, Kind::words).to_json(), Tokenizer::train(sample, Kind::characters).to_json()}) {
    const Tokenizer plain = Tokenizer::parse(text);
    Json file = Json::parse(text);
    file["decoder"] = inside("decoders", inside("decoders", file["decoder"]));
    if (file["pre_tokenizer"]["type"] == "Sequence")
      for (Json& step : file["pre_tokenizer"]["pretokenizers"]) step = inside("pretokenizers", step);
    file["pre_tokenizer"] = inside("pretokenizers", file["pre_tokenizer"]);
    file["normalizer"] = inside("normalizers", {{"type", "Sequence"}, {"normalizers", Json::array()}});
    file["post_processor"] = inside(
        "processors", {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}});
    const Tokenizer nested = Tokenizer::parse(file.dump());
    EXPECT_EQ(nested.encode(sample), plain.encode(sample));
    EXPECT_EQ(nested.decode(plain.encode(sample)), plain.decode(plain.encode(sample)));
    file["normalizer"] = inside("normalizers", {{"type", "NFKC"}});
    EXPECT_TRUE(
        error_of<FormatError>([&] { Tokenizer::parse(file.dump()); }).starts_with("Tokenizer::parse: normalizer is {"))
        << file["normalizer"];
    file["normalizer"] = nullptr;
    file["decoder"] = {{"type", "Sequence"}, {"decoders", Json::array()}};
    EXPECT_TRUE(
        error_of<FormatError>([&] { Tokenizer::parse(file.dump()); }).starts_with("Tokenizer::parse: the decoder {"))
        << file["decoder"];
  }
}

// A million times one letter is one piece: n log n has it in a second, n^2 in an hour.
TEST(Tokenizer, LongPiecesTakeNoLonger) {
  const Tokenizer tokenizer = Tokenizer::train(std::string(4096, 'a') + " " + text(), Kind::bpe, 400);
  const std::string long_piece(1000000, 'a');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(long_piece)), long_piece);
}

}  // namespace
}  // namespace attn
