// tests/model/tokenizer_child.cc: encodes and decodes for python/tests/test_tokenizers.py, which compares with Hugging
// Face's library. Reads a line of JSON for each answer: [text, other text or null, max_length] or a list of ids.
#include <attn/error.h>
#include <attn/tokenizer.h>

#include <nlohmann/json.hpp>

#include <iostream>

namespace {

using Json = nlohmann::json;

/// A decoded text may be no UTF-8.
Json bytes_of(const std::string& text) {
  Json bytes = Json::array();
  for (const char c : text) bytes.push_back(static_cast<unsigned char>(c));
  return bytes;
}

Json answer(const attn::Tokenizer& tokenizer, const Json& question) try {
  if (question.empty() || !question[0].is_string()) {
    const std::vector<std::int64_t> ids = question;
    return {{"text", bytes_of(tokenizer.decode(ids))}, {"without", bytes_of(tokenizer.decode(ids, true))}};
  }
  const std::string text = question[0];
  const std::int64_t most = question[2];
  const attn::EncodedText found = question[1].is_null()
                                      ? tokenizer.encode_text(text, most)
                                      : tokenizer.encode_pair(text, question[1].get<std::string>(), most);
  Json result{{"ids", found.ids}, {"type_ids", found.type_ids}};
  if (question[1].is_null()) result["plain"] = tokenizer.encode(text);
  return result;
} catch (const attn::Error& error) { return {{"error", error.what()}}; }

}  // namespace

/// With --again the tokenizer is written and read once more; with --json it is only written.
int main(int count, char** arguments) try {
  const std::string how = count > 2 ? arguments[2] : "";
  attn::Tokenizer tokenizer = attn::Tokenizer::load(arguments[1]);
  if (how == "--json") {
    std::cout << tokenizer.to_json();
    return 0;
  }
  if (how == "--again") tokenizer = attn::Tokenizer::parse(tokenizer.to_json());
  std::cout << Json{{"size", tokenizer.size()}, {"max_length", tokenizer.max_length()}} << "\n";
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(tokenizer, Json::parse(line)).dump(-1, ' ', true) << "\n";
} catch (const attn::Error& error) { std::cout << Json{{"error", error.what()}} << "\n"; }
