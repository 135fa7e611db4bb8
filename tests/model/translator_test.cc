// tests/model/translator_test.cc: folders with their tokenizers: a small Marian model's ids, texts and alignment;
// languages of NLLB and mBART; mistakes of the files.
#include <attn/explain_model.h>
#include <attn/translation.h>

#include "model/encoder_decoders.h"
#include "support/errors.h"

#include <gtest/gtest.h>

#include <functional>

namespace attn {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::Folder;
using testing::Texts;

std::string numbers() { return testing::golden_path("model/numbers"); }
json recorded() { return json::parse(testing::content_of(numbers() + "/ids.json")); }

void copy_all(const std::string& from, const std::string& to) {
  for (const auto& entry : fs::directory_iterator(from))
    fs::copy_file(entry.path(), fs::path(to) / entry.path().filename(), fs::copy_options::overwrite_existing);
}

TEST(Translator, IdsAndTextsOfMarianAreThoseOfTransformers) {
  const Translator translator = Translator::load(numbers());
  const json given = recorded();
  for (std::size_t i = 0; i < given.at("texts").size(); ++i) {
    const std::string text = given["texts"][i];
    const auto ids = given["ids"][i].get<std::vector<std::int64_t>>();
    EXPECT_EQ(translator.encode(text), ids) << text;
    EXPECT_EQ(translator.decode(ids), given["decoded"][i].get<std::string>()) << text;
  }
  for (std::size_t i = 0; i < given.at("targets").size(); ++i) {
    auto ids = given["target_ids"][i].get<std::vector<std::int64_t>>();
    ids.pop_back();  // the end token
    EXPECT_EQ(translator.encode_target(given["targets"][i]), ids);
  }
}

TEST(Translator, NumbersAreTranslatedAsTransformersDoes) {
  const Translator translator = Translator::load(numbers(), Dtype::f32);
  EXPECT_EQ(translator.defaults.beams, 4);
  const json given = recorded();
  const auto said = translator.translate(given.at("unseen").get<std::vector<std::string>>());
  for (std::size_t i = 0; i < said.size(); ++i) EXPECT_EQ(said[i][0].text, given["said"][i].get<std::string>());
}

/// "three hundred" is said while "three" and "hundred" are looked at.
TEST(Translator, AnAlignmentShowsWhoLooksAtWhom) {
  const Translator translator = Translator::load(numbers(), Dtype::f32);
  const Explanation average = explain_translation(translator, "seven thousand", std::nullopt, {.layer = 1});
  EXPECT_EQ(average.texts[0], "七千");
  EXPECT_EQ(average.to, "seven thousand");
  const ExplainStep& weights = average.step("weights");
  ASSERT_EQ(weights.values.dim(), 2);
  EXPECT_EQ(weights.rows[0].size(), static_cast<std::size_t>(weights.values.size(0)));
  EXPECT_EQ(weights.columns[0].size(), static_cast<std::size_t>(weights.values.size(1)));
  const Tensor sums = sum(weights.values, {1});
  for (std::int64_t i = 0; i < sums.size(0); ++i) EXPECT_NEAR(sums[i].item(), 1, 1e-6);
  Tensor heads;
  for (std::int64_t head = 0; head < 4; ++head) {
    const Explanation one = explain_translation(translator, "seven thousand", "七千", {.layer = 1, .head = head});
    const Tensor own = one.step("weights").values;
    heads = heads.defined() ? heads + own : own;
    EXPECT_TRUE(testing::within(softmax(one.step("scaled").values, 1), own, 1e-6));
  }
  EXPECT_TRUE(testing::within(heads / 4, weights.values, 1e-6));
  const auto error = [&](const TrainedCross& at, const std::string& target = "七") {
    return testing::error_of<ValueError>([&] { explain_translation(translator, "seven", target, at); });
  };
  EXPECT_EQ(error({.layer = 2}), "explain: layer is 2; it must be from 0 to 1");
  EXPECT_EQ(error({.layer = 0, .head = 4}), "explain: head is 4; it must be from 0 to 3");
}

/// A tokenizer.json whose added tokens are languages; `single`: the template of one text.
std::string tokenizer_with_languages(const json& single) {
  json vocab = json::array(), added = json::array();
  const std::vector<std::string> tokens = {"<s>", "<pad>", "</s>", "<unk>", "▁", "a", "▁b", "ab", "aa_XX", "bb_XX"};
  json special;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    vocab.push_back({tokens[id], id < 4 ? 0.0 : -1.0 - static_cast<double>(id)});
    if (id < 4 || id > 7)
      added.push_back({{"id", id}, {"content", tokens[id]}, {"special", true}, {"normalized", false}});
    special[tokens[id]] = {{"id", tokens[id]}, {"ids", {id}}, {"tokens", {tokens[id]}}};
  }
  return json{
      {"model", {{"type", "Unigram"}, {"unk_id", 3}, {"vocab", vocab}}},
      {"added_tokens", added},
      {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}}},
      {"decoder", {{"type", "Metaspace"}, {"replacement", "▁"}}},
      {"post_processor",
       {{"type", "TemplateProcessing"}, {"single", single}, {"pair", json::array()}, {"special_tokens", special}}}}
      .dump();
}

TEST(Translator, LanguagesStandWhereTheFilesHaveThem) {
  const auto token = [](const char* name) { return json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; };
  const json text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  for (const bool before : {true, false}) {
    const Folder folder;
    copy_all(testing::golden_path("model/encoder_decoders/mbart"), folder.path());
    folder.write("tokenizer.json", tokenizer_with_languages(before ? json{token("aa_XX"), text, token("</s>")}
                                                                   : json{text, token("</s>"), token("aa_XX")}));
    Translator translator = Translator::load(folder.path());
    EXPECT_EQ(translator.languages(), (std::vector<std::string>{"aa_XX", "bb_XX"}));
    using Ids = std::vector<std::int64_t>;
    EXPECT_EQ(translator.encode("b"), before ? (Ids{8, 6, 2}) : (Ids{6, 2, 8}));
    translator.set_languages("bb_XX", "aa_XX");
    EXPECT_EQ(translator.encode("b"), before ? (Ids{9, 6, 2}) : (Ids{6, 2, 9}));
    EXPECT_EQ(translator.encode_target("b"), before ? (Ids{8, 6}) : (Ids{6}));
    if (before) EXPECT_EQ(translator.defaults.forced_begin, 8);
    else EXPECT_EQ(translator.defaults.start, 8);
    EXPECT_EQ(testing::error_of<ValueError>([&] { translator.set_languages("", "cc_XX"); }),
              "Translator: there is no language \"cc_XX\"; there are aa_XX, bb_XX");
  }
  Translator marian = Translator::load(numbers());
  EXPECT_EQ(
      testing::error_of<ValueError>([&] { marian.set_languages("en", ""); }),
      "Translator: the model has no languages to choose; a multilingual Marian model has the target's in the text "
      "(\">>fra<< ...\")");
}

TEST(Translator, DamagedFilesAreSaidInOneLine) {
  const auto said = [](const std::string& file, const std::function<std::string(std::string)>& change) {
    const Folder folder;
    copy_all(numbers(), folder.path());
    folder.write(file, change(testing::content_of(folder / file)));
    std::string error = testing::error_of<Error>([&] { Translator::load(folder.path()); });
    if (const std::size_t at = error.find(folder / file); at != error.npos)
      error.replace(at, (folder / file).size(), "F");
    return error;
  };
  const auto replaced = [](const std::string& with) { return [with](const std::string&) { return with; }; };
  EXPECT_EQ(said("source.spm", replaced("")), "F: it is no SentencePiece model: it has no pieces");
  EXPECT_EQ(said("source.spm", replaced("\x0A\x50")),
            "F: it is no SentencePiece model: a field is longer than the file");
  EXPECT_EQ(said("target.spm", replaced("\x0B")), "F: it is no SentencePiece model: a field has the wire type 3");
  EXPECT_EQ(said("target.spm", replaced("\x0A\x02\x18\x09")),
            "F: it is no SentencePiece model: a piece has the type 9");
  EXPECT_EQ(said("source.spm", [](std::string text) { return text.substr(0, text.size() / 2 + 1); }).substr(0, 30),
            "F: it is no SentencePiece mode");
  EXPECT_EQ(said("vocab.json", replaced("[]")), "F: it must name the id of each piece");
  EXPECT_EQ(said("vocab.json", replaced(R"({"<unk>": 1})")), "F: there is no piece </s>");
  EXPECT_EQ(said("vocab.json", replaced(R"({"<unk>": -1})")),
            "F: the id of \"<unk>\" is -1; it must be from 0 to 4194303");
}

TEST(Translator, AFolderWithoutATokenizerSaysWhatIsNeeded) {
  const auto said = [](const std::string& family, const std::string& file) {
    const Folder folder;
    copy_all(testing::golden_path("model/encoder_decoders/" + family), folder.path());
    if (!file.empty()) folder.write(file, "{}");
    const std::string error = testing::error_of<IoError>([&] { Translator::load(folder.path()); });
    EXPECT_EQ(error.find(folder.path()), 0u);
    return error.substr(folder.path().size());
  };
  EXPECT_EQ(said("pegasus", "spiece.model"),
            ": there is no tokenizer.json, which PEGASUS needs for texts; "
            "AutoTokenizer.from_pretrained(folder).save_pretrained(folder) of transformers writes it");
  EXPECT_EQ(said("mbart", "").find(": there is no tokenizer.json, which mBART needs"), 0u);
  EXPECT_EQ(said("m2m_100", "sentencepiece.bpe.model").find(": there is no tokenizer.json, which NLLB needs"), 0u);
  EXPECT_EQ(said("m2m_100", "vocab.json"),
            ": M2M-100's sentencepiece.bpe.model and vocab.json are not read; a tokenizer.json is needed");
}

TEST(Translator, WhetherAFolderIsAnEncoderDecoder) {
  EXPECT_TRUE(is_encoder_decoder(numbers()));
  EXPECT_FALSE(is_encoder_decoder(testing::golden_path("model/gpt2")));
  EXPECT_FALSE(is_encoder_decoder("/nowhere"));
  const Folder folder;
  folder.write("config.json", "{");
  EXPECT_FALSE(is_encoder_decoder(folder.path()));
}

}  // namespace
}  // namespace attn
