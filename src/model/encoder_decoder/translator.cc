// src/model/encoder_decoder/translator.cc: translates texts with a folder's model, tokenizers and settings.
#include <attn/translation.h>

#include "model/encoder_decoder/tokenizers.h"
#include "model/encoder_decoder/translator_parts.h"
#include "text/error_text.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn {

Translator::Translator(EncoderDecoder loaded, std::shared_ptr<const Parts> parts)
    : model(std::move(loaded)), parts_(std::move(parts)) {}

Translator Translator::load(const std::string& folder, std::optional<Dtype> dtype) {
  EncoderDecoder model = EncoderDecoder::load(folder, dtype);
  auto parts = std::make_shared<const Parts>(Parts{read_pair_tokenizer(folder, model.config.family)});
  Translator translator(std::move(model), std::move(parts));
  translator.defaults = TranslateOptions::from_folder(folder);
  return translator;
}

std::vector<std::string> Translator::languages() const { return parts_->tokenizer->languages(); }

void Translator::set_languages(const std::string& source, const std::string& target) {
  const std::vector<std::string> known = languages();
  for (const std::string& language : {source, target}) {
    if (language.empty() || std::find(known.begin(), known.end(), language) != known.end()) continue;
    if (known.empty())
      throw ValueError(
          "Translator: the model has no languages to choose; a multilingual Marian model has the target's "
          "in the text (\">>fra<< ...\")");
    std::string some;
    for (std::size_t i = 0; i < known.size() && i < 12; ++i) some += (i ? ", " : "") + known[i];
    throw ValueError(runtime::format("Translator: there is no language \"{}\"; there are {}{}",
                                     text::error_text(text::beginning(language, 40)), some,
                                     known.size() > 12 ? runtime::format(" and {} more", known.size() - 12) : ""));
  }
  source_ = source;
  target_ = target;
  if (!target.empty()) parts_->tokenizer->begin_with(target, defaults);
}

std::vector<std::int64_t> Translator::encode(const std::string& text) const {
  return parts_->tokenizer->encode(text, source_);
}

std::vector<std::int64_t> Translator::encode_target(const std::string& text) const {
  return parts_->tokenizer->encode_target(text, target_);
}

std::string Translator::decode(const std::vector<std::int64_t>& ids) const { return parts_->tokenizer->decode(ids); }

std::vector<std::vector<TranslatedText>> Translator::translate(const std::vector<std::string>& texts,
                                                               const TranslateOptions& options) const {
  std::vector<std::vector<std::int64_t>> sources;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    try {
      sources.push_back(encode(texts[i]));
    } catch (const ValueError& error) { throw ValueError(runtime::format("translate: text {}: {}", i, error.what())); }
    const std::int64_t most = model.config.positions, size = std::ssize(sources.back());
    if (most > 0 && size > most)
      throw ValueError(runtime::format("translate: text {} has {} tokens; the model reads at most {}", i, size, most));
    if (size == 0) throw ValueError(runtime::format("translate: text {} has no token", i));
  }
  std::vector<std::vector<TranslatedText>> result;
  for (auto& all : attn::translate(model, sources, options)) {
    auto& said = result.emplace_back();
    for (Translated& one : all) {
      TranslatedText& text = said.emplace_back();
      static_cast<Translated&>(text) = std::move(one);
      text.text = decode(text.tokens);
    }
  }
  return result;
}

}  // namespace attn
