// web/engine/api.cc: memory, explanations and drawings for JavaScript. Requests are JSON (web/README.md).
#include <attn/error.h>
#include <attn/explain_model.h>
#include <attn/ops.h>
#include <attn/runtime.h>
#include <attn/text.h>

#include "answer.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attn::web {

std::string& request_text() {
  static std::string text;
  return text;
}
std::string& answer_text() {
  static std::string text;
  return text;
}

namespace {

using Json = nlohmann::json;
using Cuts = std::map<std::string, std::vector<std::string>>;

Tensor matrix(const Json& given) {
  const auto numbers = given.at("data").get<std::vector<float>>();
  return tensor<float>(numbers, given.at("shape").get<std::vector<std::int64_t>>());
}

/// Words of texts without spaces come from the page, which has the browser's dictionaries.
std::function<std::vector<std::string>(const std::string&)> cutter(Cuts cuts) {
  return [cuts = std::move(cuts)](const std::string& text) {
    const auto found = cuts.find(text);
    return found == cuts.end() ? text::split(text, text::Tokens::words) : found->second;
  };
}

Explanation explained(const std::string& request) {
  const Json json = Json::parse(request);
  ExplainOptions options = explain_options(json.value("options", Json::object()).dump());
  if (json.contains("to"))
    options.to = json["to"].is_null() ? std::nullopt : std::optional(json["to"].get<std::string>());
  options.cut_words = cutter(json.value("cut", Cuts{}));
  const Json matrices = json.value("matrices", Json::object());
  const std::pair<const char*, Tensor*> places[] = {{"w_query", &options.w_query},
                                                    {"w_key", &options.w_key},
                                                    {"w_value", &options.w_value},
                                                    {"embedding", &options.embedding},
                                                    {"w_output", &options.w_output},
                                                    {"query_vector", &options.query_vector},
                                                    {"score_w_query", &options.score_w_query},
                                                    {"score_w_key", &options.score_w_key},
                                                    {"score_w", &options.score_w}};
  for (const auto& [name, place] : places)
    if (matrices.contains(name)) *place = matrix(matrices[name]);
  const Json& text = json.at("text");
  return text.is_array() ? explain_batch(text.get<std::vector<std::string>>(), options)
                         : explain(text.get<std::string>(), options);
}

}  // namespace
}  // namespace attn::web

using attn::web::answer;
using attn::web::answer_text;
using attn::web::request_text;

/// Makes room for a request of so many bytes and returns where it is to be written; null where there is no memory.
ATTN_EXPORT(engine_request) char* engine_request(std::size_t bytes) {
  return answer([&] { return request_text().assign(bytes, ' '), std::string(); }) == 0 ? request_text().data()
                                                                                       : nullptr;
}
ATTN_EXPORT(engine_answer) const char* engine_answer() { return answer_text().data(); }
ATTN_EXPORT(engine_answer_bytes) std::size_t engine_answer_bytes() { return answer_text().size(); }

ATTN_EXPORT(engine_version) int engine_version() {
  return answer([] { return attn::version(); });
}
ATTN_EXPORT(engine_explain) int engine_explain() {
  return answer([] { return attn::to_json(attn::web::explained(request_text())); });
}
ATTN_EXPORT(engine_svg) int engine_svg() {
  return answer([] { return attn::to_svg(attn::web::explained(request_text())); });
}
