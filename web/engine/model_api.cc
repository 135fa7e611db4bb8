// web/engine/model_api.cc: language models for JavaScript: loading, explaining a head, generating.
#include <attn/error.h>
#include <attn/explain_model.h>
#include <attn/generate.h>

#include "answer.h"

#include <nlohmann/json.hpp>

#include <memory>

/// Gets each new piece of text; 0 ends the text.
extern "C" __attribute__((import_module("attn"), import_name("on_token"))) int attn_on_token(const char* text,
                                                                                             std::size_t bytes);

namespace attn::web {
namespace {

using Json = nlohmann::json;

struct Loaded {
  LanguageModel model;
  Tokenizer tokenizer;
};
std::unique_ptr<Loaded> loaded;

const Loaded& the_model() {
  if (!loaded) throw ValueError("no model is loaded");
  return *loaded;
}

std::string load(const std::string& path) {
  loaded.reset();
  loaded = std::make_unique<Loaded>(Loaded{LanguageModel::load(path), Tokenizer::load(path)});
  const ModelConfig& config = loaded->model.config;
  return Json{{"layers", config.layers},   {"heads", config.heads},           {"width", config.width},
              {"context", config.context}, {"vocabulary", config.vocab_size}, {"parameters", config.parameters()}}
      .dump();
}

std::string explain_head(const Json& request) {
  const TrainedHead at{.layer = request.value("layer", std::int64_t{0}),
                       .head = request.value("head", std::int64_t{0}),
                       .gradients = request.value("gradients", false),
                       .language = request.value("language", "en") == "zh" ? Language::zh : Language::en};
  const Loaded& here = the_model();
  return to_json(explain_model(here.model, here.tokenizer, request.at("text").get<std::string>(), at));
}

std::string continue_text(const Json& request) {
  GenerateTextOptions options;
  options.tokens.tokens = request.value("tokens", std::int64_t{100});
  options.tokens.seed = request.value("seed", std::uint64_t{0});
  options.tokens.sample.temperature = request.value("temperature", 1.0);
  options.tokens.sample.top_k = request.value("top_k", std::int64_t{0});
  options.tokens.sample.top_p = request.value("top_p", 1.0);
  options.stop = request.value("stop", std::vector<std::string>{});
  options.on_text = [](std::size_t, std::string_view piece) { return attn_on_token(piece.data(), piece.size()) != 0; };
  const Loaded& here = the_model();
  return generate_text(here.model, here.tokenizer, {request.at("prompt").get<std::string>()}, options).at(0).text;
}

}  // namespace
}  // namespace attn::web

using attn::web::answer;
using attn::web::Json;
using attn::web::request_text;

/// The request is the model's folder or GGUF file.
ATTN_EXPORT(engine_load) int engine_load() {
  return answer([] { return attn::web::load(request_text()); });
}
ATTN_EXPORT(engine_explain_model) int engine_explain_model() {
  return answer([] { return attn::web::explain_head(Json::parse(request_text())); });
}
ATTN_EXPORT(engine_generate) int engine_generate() {
  return answer([] { return attn::web::continue_text(Json::parse(request_text())); });
}
