// src/model/encoder/texts.cc: encodes texts and pairs of texts: tokens, batches without padding, vectors and scores.
#include "model/encoder/texts.h"

#include <attn/autograd.h>
#include <attn/ops.h>

#include "model/encoder/blocks.h"
#include "text/unicode.h"

#include "runtime/format.h"

#include <functional>
#include <string_view>

namespace attn {
namespace {

/// Returns the text without white space around it.
std::string_view stripped(std::string_view text) {
  std::size_t begin = 0, end = 0;
  bool met = false;
  for (std::size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::code_point_at(text, at);
    if (!text::is_space(c.value)) {
      if (!met) begin = at;
      met = true;
      end = at + c.bytes;
    }
    at += c.bytes;
  }
  return text.substr(begin, end - begin);
}

/// Texts one after another.
struct Batch {
  std::vector<std::int64_t> ids, segments, ends = {0};
  void add(const EncodedText& text, bool with_segments) {
    ids.insert(ids.end(), text.ids.begin(), text.ids.end());
    if (with_segments) segments.insert(segments.end(), text.type_ids.begin(), text.type_ids.end());
    ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
};

void check_tokens(const EncodedText& text, std::int64_t vocab_size, const char* what, std::size_t number) {
  if (text.ids.empty()) throw ValueError(runtime::format("TextEncoder: {} {} has no token", what, number));
  for (const std::int64_t id : text.ids)
    if (id >= vocab_size)
      throw ValueError(
          runtime::format("TextEncoder: {} {} has a token whose id is {}; the model knows ids below {} (vocab_size in "
                          "config.json)",
                          what, number, id, vocab_size));
}

/// Encodes each of `count` texts or pairs, and computes them in batches: compute(ids, ends, segments) returns a row for
/// each.
Tensor in_batches(const TextEncoder& encoder, std::size_t count, const char* what, const EmbedOptions& options,
                  const std::function<EncodedText(std::size_t)>& encode,
                  const std::function<Tensor(const Tensor&, const Tensor&, const Tensor&)>& compute) {
  if (options.batch_tokens < 1)
    throw ValueError(runtime::format("TextEncoder: batch_tokens is {}; it must be at least 1", options.batch_tokens));
  const NoGrad no_grad;
  const bool segments = encoder.config.segments > 1;  // with one there is nothing to choose
  std::vector<Tensor> results;
  Batch batch;
  const auto finish = [&] {
    if (options.on_batch) options.on_batch();
    results.push_back(compute(tensor<std::int64_t>(batch.ids), tensor<std::int64_t>(batch.ends),
                              segments ? tensor<std::int64_t>(batch.segments) : Tensor()));
    batch = {};
  };
  for (std::size_t i = 0; i < count; ++i) {
    EncodedText text;
    try {
      text = encode(i);
    } catch (const ValueError& error) {
      throw ValueError(runtime::format("TextEncoder: {} {}: {}", what, i, error.what()));
    }
    check_tokens(text, encoder.config.vocab_size, what, i);
    if (batch.ends.size() > 1 && std::ssize(batch.ids) + std::ssize(text.ids) > options.batch_tokens) finish();
    batch.add(text, segments);
  }
  if (batch.ends.size() > 1 || results.empty()) finish();
  return results.size() == 1 ? results[0] : cat(results);
}

}  // namespace

const Tokenizer& TextEncoder::tokenizer() const {
  if (!parts_->tokenizer)
    throw ValueError("TextEncoder: the model's folder has no tokenizer.json; it is needed for texts");
  return *parts_->tokenizer;
}

bool TextEncoder::has_tokenizer() const { return parts_->tokenizer.has_value(); }

const std::string& TextEncoder::prompt(const std::string& name) const {
  static const std::string none;
  const std::string& wanted = name.empty() ? prompts.default_name : name;
  if (wanted.empty()) return none;
  const auto found = prompts.texts.find(wanted);
  if (found != prompts.texts.end()) return found->second;
  std::string all;
  for (const auto& [known, text] : prompts.texts) all += (all.empty() ? "" : ", ") + known;
  throw ValueError(runtime::format("TextEncoder: the model has no prompt \"{}\"; {}", wanted,
                                   all.empty() ? "it has none" : "it has " + all));
}

Tensor TextEncoder::embed(const std::vector<std::string>& texts, const EmbedOptions& options) const {
  const Tokenizer& tokenizer = this->tokenizer();
  std::int64_t of_prompt = 0;
  if (!options.prompt.empty() && !pooling.include_prompt) {
    // as sentence-transformers counts them: with the special tokens before it, without the one after it
    const auto with = tokenizer.encode_text(stripped(options.prompt)).ids, bare = tokenizer.encode_text("").ids;
    of_prompt = std::ssize(with) - (!bare.empty() && !with.empty() && with.back() == bare.back() ? 1 : 0);
  }
  return in_batches(
      *this, texts.size(), "text", options,
      [&](std::size_t i) { return tokenizer.encode_text(stripped(options.prompt + texts[i]), max_tokens); },
      [&](const Tensor& ids, const Tensor& ends, const Tensor& segments) {
        const std::vector<std::int64_t> prompts(static_cast<std::size_t>(of_prompt > 0 ? ends.size(0) - 1 : 0),
                                                of_prompt);
        return pooled(hidden(ids, ends, segments), ends, prompts);
      });
}

Tensor TextEncoder::scores(const std::vector<std::pair<std::string, std::string>>& pairs,
                           const EmbedOptions& options) const {
  const Tokenizer& tokenizer = this->tokenizer();
  return in_batches(
      *this, pairs.size(), "pair", options,
      [&](std::size_t i) {
        return tokenizer.encode_pair(stripped(options.prompt + pairs[i].first), stripped(pairs[i].second), max_tokens);
      },
      [&](const Tensor& ids, const Tensor& ends, const Tensor& segments) {
        const Tensor y = logits(hidden(ids, ends, segments), ends);
        return parts_->sigmoid ? sigmoid(y) : y;
      });
}

}  // namespace attn
