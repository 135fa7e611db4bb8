// tests/model/tokenizer_template_test.cc: the ids that a post-processor puts around a text are Hugging Face's; damaged
// files are errors.
#include "io/files.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/tokenizer.h>

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::error_of;
using testing::golden;
using Ids = std::vector<std::int64_t>;

const nlohmann::json& figures() { return golden("tokenizer/tokenizers.json"); }
const nlohmann::json& figures(std::string_view name) {
  for (const auto& c : figures().at("cases"))
    if (c.at("name") == name) return c;
  throw std::runtime_error("no case " + std::string(name));
}
using Json = nlohmann::json;
constexpr const char* first_token = "<|endoftext|>";  // id 0
const Json the_text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
Json special(const char* name) { return {{"SpecialToken", {{"id", name}, {"type_id", 0}}}}; }
Json template_of(const Json& single) {
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", Json::array({the_text, {{"Sequence", {{"id", "B"}, {"type_id", 1}}}}})},
          {"special_tokens",
           {{first_token, {{"id", first_token}, {"ids", {0}}, {"tokens", {first_token}}}},
            {"end", {{"id", "end"}, {"ids", {1, 7}}, {"tokens", {"a", "b"}}}}}}};
}
Json sequence(const Json& steps) { return {{"type", "Sequence"}, {"processors", steps}}; }
const Json bytes_step = {
    {"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
const Json bert = {{"type", "BertProcessing"}, {"sep", {"</s>", 2}}, {"cls", {"<s>", 0}}};
const Json roberta = {{"type", "RobertaProcessing"},
                      {"sep", {"</s>", 2}},
                      {"cls", {"<s>", 0}},
                      {"trim_offsets", true},
                      {"add_prefix_space", true}};
Json with_post(const Json& post) {
  Json file = figures("prefix").at("tokenizer");
  file["post_processor"] = post;
  return file;
}

// By tokenizers 0.23.3: Tokenizer.from_str(file).encode("the a").ids, and with add_special_tokens=False.
TEST(Tokenizer, APostProcessorPutsHuggingFacesIdsAroundAText) {
  const Json begin = template_of({special(first_token), the_text});
  const std::tuple<Json, Ids> cases[] = {
      {nullptr, {312, 70, 222, 66}},
      {bytes_step, {312, 70, 222, 66}},
      {sequence(Json::array()), {312, 70, 222, 66}},
      {begin, {0, 312, 70, 222, 66}},
      {template_of({special("end"), the_text, special(first_token), special("end")}),
       {1, 7, 312, 70, 222, 66, 0, 1, 7}},
      {sequence({bytes_step, begin}), {0, 312, 70, 222, 66}},
      {sequence({sequence(Json::array({begin})), bytes_step}), {0, 312, 70, 222, 66}},
      {bert, {0, 312, 70, 222, 66, 2}},
      {roberta, {0, 312, 70, 222, 66, 2}}};
  for (const auto& [post, expected] : cases) {
    const Tokenizer tokenizer = Tokenizer::parse(with_post(post).dump());
    EXPECT_EQ(tokenizer.encode("the a", true), expected) << post;
    EXPECT_EQ(tokenizer.encode("the a"), (Ids{312, 70, 222, 66})) << post;
    EXPECT_EQ(Json::parse(tokenizer.to_json()).at("post_processor"), post);
    EXPECT_EQ(Tokenizer::parse(tokenizer.to_json()).encode("the a", true), expected) << post;
  }
  EXPECT_EQ(Tokenizer::parse(with_post(begin).dump()).encode("", true), Ids{0});
}

TEST(Tokenizer, SaysWhatOfAPostProcessorItCannotFollow) {
  const auto says = [](const Json& post, const std::string& begin) {
    const std::string text = error_of<FormatError>([&] { Tokenizer::parse(with_post(post).dump()); });
    EXPECT_TRUE(text.starts_with("Tokenizer::parse: " + begin)) << text;
  };
  says({{"type", "New"}},
       "the post-processor is a New; supported are TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel "
       "and Sequence (byte ");
  says(3, "the post-processor must be an object");
  says(template_of(Json::array({special(first_token)})), "the template for one text must hold A once");
  says(template_of({the_text, the_text}), "the template for one text must hold A once");
  says(template_of({special("nothing"), the_text}), "nothing is missing, or no object");
  says(template_of({3, the_text}), "a piece of the template must be an object");
  says(sequence({bert, roberta}), "two steps of the post-processor add tokens; this is not supported");
  Json beyond = bert;
  beyond["cls"] = {"<s>", 400};
  says(beyond, "the post-processor adds the id 400, which no token has");
  beyond["cls"] = {"<s>"};
  says(beyond, "cls must be a token and its id");
}

TEST(Tokenizer, DamagedFilesAreErrors) {
  nlohmann::json file =
      nlohmann::json::parse(Tokenizer::train("ab ab abab 12 12", Tokenizer::Kind::bpe, 260).to_json());
  file["added_tokens"] = {{{"id", file["model"]["vocab"].size()}, {"content", "<end>"}, {"special", true}}};
  file["post_processor"] = sequence({bytes_step, template_of({special("end"), the_text})});
  const int refused = testing::attack(testing::bytes_of(file.dump()), 4000, [](std::span<const std::byte> bytes) {
    const Tokenizer tokenizer = Tokenizer::parse({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    try {
      tokenizer.decode(tokenizer.encode("ab <end> 12", true));
    } catch (const ValueError&) {  // a byte's token was renamed
    }
  });
  EXPECT_GT(refused, static_cast<int>(file.dump().size()));
}

}  // namespace
}  // namespace attn
