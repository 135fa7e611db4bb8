// src/model/encoder_decoder/translate.cc: generates texts from sources: the sources in batches, their texts token by
// token.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/translation.h>

#include "model/encoder_decoder/beams.h"
#include "model/encoder_decoder/scores.h"
#include "model/generate_internal.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;

void check_at_least(const char* name, std::int64_t value, std::int64_t least) {
  if (value < least)
    throw ValueError(runtime::format("translate: {} is {}; it must be at least {}", name, value, least));
}

void check_token(const char* name, std::int64_t token, std::int64_t vocabulary) {
  if (token < 0 || token >= vocabulary)
    throw ValueError(
        runtime::format("translate: {} is {}; the model says ids from 0 to {}", name, token, vocabulary - 1));
}

TranslateOptions checked_options(const EncoderDecoder& model, TranslateOptions options) {
  check_at_least("tokens", options.tokens, 1);
  check_at_least("min_tokens", options.min_tokens, 0);
  check_at_least("beams", options.beams, 1);
  check_at_least("returned", options.returned, 1);
  check_at_least("no_repeat_ngram", options.no_repeat_ngram, 0);
  check_at_least("batch_tokens", options.batch_tokens, 1);
  constexpr std::int64_t most_said = 1 << 20, most = 1 << 16;
  if (options.tokens > most_said)
    throw ValueError(runtime::format("translate: tokens is {}; it must be at most {}", options.tokens, most_said));
  if (options.beams > most || options.returned > most)
    throw ValueError(runtime::format("translate: beams is {}, returned {}; at most {} are possible", options.beams,
                                     options.returned, most));
  check_sample(options.sample);
  if (!std::isfinite(options.length_penalty))
    throw ValueError(runtime::format("translate: length_penalty is {}; it must be finite", options.length_penalty));
  if (options.beams > 1 && options.returned > options.beams)
    throw ValueError(
        runtime::format("translate: returned is {}; it must be at most beams, {}", options.returned, options.beams));
  if (options.beams > 1 && options.sample.temperature != 0)
    throw ValueError("translate: beams and a temperature do not go together; one beam samples");
  if (options.beams == 1 && options.returned > 1 && options.sample.temperature == 0)
    throw ValueError(
        runtime::format("translate: returned is {}; one beam without a temperature gives one text", options.returned));
  const std::int64_t vocabulary = model.config.decoder_vocab_size;
  if (!options.start)
    throw ValueError(
        "translate: start is not set; generation_config.json or config.json names it (decoder_start_token_id)");
  check_token("start", *options.start, vocabulary);
  if (options.forced_begin) check_token("forced_begin", *options.forced_begin, vocabulary);
  for (const std::int64_t end : options.forced_end) check_token("forced_end", end, vocabulary);
  if (options.early_stopping < EarlyStopping::no || options.early_stopping > EarlyStopping::never)
    throw ValueError("translate: early_stopping has no such value");
  if (model.config.positions > 0) options.tokens = std::min(options.tokens, model.config.positions);
  return options;
}

/// The texts of one source while they grow.
class SourceTexts {
 public:
  virtual ~SourceTexts() = default;
  /// Takes logits [rows, V] in f32, of row 0 alone in the first step, and adds a token to each unfinished text. Returns
  /// whether a text is still unfinished.
  virtual bool step(const Tensor& logits) = 0;
  /// Returns, for the rows of the next step: which row of this one it continues, and its last token.
  virtual std::vector<std::pair<std::size_t, std::int64_t>> rows() const = 0;
  virtual std::vector<Translated> texts() const = 0;
};

std::vector<float> row_of(const Tensor& logits, std::size_t row) {
  const float* const first = logits.data<float>() + static_cast<std::int64_t>(row) * logits.size(1);
  return {first, first + logits.size(1)};
}

class BeamTexts final : public SourceTexts {
 public:
  explicit BeamTexts(const TranslateOptions& options) : options_(options), search_(options, *options.start) {}
  bool step(const Tensor& logits) override {
    const Tensor normal = log_softmax(logits, 1);
    std::vector<std::vector<float>> scores;
    for (std::size_t b = 0; b < static_cast<std::size_t>(logits.size(0)); ++b) {
      scores.push_back(row_of(normal, b));
      process_scores(options_, search_.beams()[b].said, scores.back());
    }
    return search_.step(scores);
  }
  std::vector<std::pair<std::size_t, std::int64_t>> rows() const override {
    std::vector<std::pair<std::size_t, std::int64_t>> result;
    for (const BeamSearch::Beam& beam : search_.beams()) result.emplace_back(beam.from, beam.said.back());
    return result;
  }
  std::vector<Translated> texts() const override { return search_.best(); }

 private:
  const TranslateOptions& options_;
  BeamSearch search_;
};

/// One text greedily, or several drawn.
class DrawnTexts final : public SourceTexts {
 public:
  explicit DrawnTexts(const TranslateOptions& options) : options_(options) {
    for (std::int64_t n = 0; n < options.returned; ++n)
      texts_.push_back({{*options.start}, Generator(options.seed + static_cast<std::uint64_t>(n))});
    for (std::size_t i = 0; i < texts_.size(); ++i) open_.push_back(i);
  }
  bool step(const Tensor& logits) override {
    std::vector<std::size_t> still;
    rows_.clear();
    for (std::size_t row = 0; row < open_.size(); ++row) {
      const auto of = logits.size(0) == 1 ? 0 : row;
      if (!add(texts_[open_[row]], row_of(logits, of))) continue;
      still.push_back(open_[row]);
      rows_.emplace_back(row, texts_[open_[row]].said.back());
    }
    open_ = std::move(still);
    return !open_.empty();
  }
  std::vector<std::pair<std::size_t, std::int64_t>> rows() const override { return rows_; }
  std::vector<Translated> texts() const override {
    std::vector<Translated> result;
    for (const Text& text : texts_) {
      Translated& one = result.emplace_back(text.result);
      one.tokens.assign(text.said.begin() + 1, text.said.end());
      const std::int64_t length = std::ssize(one.tokens) + (one.finish == Finish::end ? 1 : 0);
      one.score = text.sum / std::pow(static_cast<double>(length), options_.length_penalty);
    }
    return result;
  }

 private:
  struct Text {
    Ids said;
    Generator generator;
    double sum = 0;  // of log-probabilities
    Translated result = {};
  };
  /// Adds a token. Returns whether the text is not over then.
  bool add(Text& text, std::vector<float> scores) {
    process_scores(options_, text.said, scores);
    const Tensor row = tensor<float>(scores);
    SampleOptions plain = options_.sample;
    plain.repetition_penalty = 1;  // process_scores has applied it
    const std::int64_t token = sample(row, text.said, plain, text.generator);
    text.sum += log_softmax(row, 0)[token].item();
    const auto& ends = options_.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      text.result.finish = Finish::end;
      return false;
    }
    text.said.push_back(token);
    return std::ssize(text.said) - 1 < options_.tokens;
  }
  const TranslateOptions& options_;
  std::vector<Text> texts_;
  std::vector<std::size_t> open_;
  std::vector<std::pair<std::size_t, std::int64_t>> rows_;
};

/// Sources that are computed together.
class SourceBatch {
 public:
  SourceBatch(const EncoderDecoder& model, const std::vector<Ids>& sources, const TranslateOptions& options)
      : model_(model), options_(options), width_(std::max(options.beams, options.returned)),
        cache_(model.cache(std::ssize(sources) * width_, options.tokens, {.page_rows = width_ > 1 ? 16 : 0})) {
    Ids ids, ends = {0};
    for (const Ids& source : sources) {
      ids.insert(ids.end(), source.begin(), source.end());
      ends.push_back(std::ssize(ids));
      if (options.beams > 1) texts_.push_back(std::make_unique<BeamTexts>(options));
      else texts_.push_back(std::make_unique<DrawnTexts>(options));
    }
    if (options.on_pass) options.on_pass();
    const Tensor cu_seqlens = tensor<std::int64_t>(ends);
    memory_ = model.memory(model.encode(tensor<std::int64_t>(ids), cu_seqlens), cu_seqlens);
  }

  std::vector<std::vector<Translated>> run() {
    // one row of each source in the first step: its texts are equal
    std::vector<std::size_t> open(texts_.size());
    std::vector<std::vector<std::int64_t>> last(texts_.size(), {*options_.start});
    for (std::size_t s = 0; s < open.size(); ++s) open[s] = s;
    while (!open.empty()) {
      Ids ids, sequences, sources;
      for (const std::size_t s : open)
        for (std::size_t row = 0; row < last[s].size(); ++row) {
          ids.push_back(last[s][row]);
          sequences.push_back(sequence(s, row));
          sources.push_back(static_cast<std::int64_t>(s));
        }
      if (options_.on_pass) options_.on_pass();
      const Tensor hidden =
          model_.hidden(tensor<std::int64_t>(ids).unsqueeze(1), cache_, sequences, memory_, sources).select(1, 0);
      const Tensor logits = model_.logits(hidden).to(Dtype::f32).contiguous();
      open = step(open, last, logits);
    }
    std::vector<std::vector<Translated>> result;
    for (const auto& text : texts_) result.push_back(text->texts());
    return result;
  }

 private:
  std::int64_t sequence(std::size_t source, std::size_t row) const {
    return static_cast<std::int64_t>(source) * width_ + static_cast<std::int64_t>(row);
  }
  /// Adds a token to the texts of each open source; returns the sources that are not finished.
  std::vector<std::size_t> step(const std::vector<std::size_t>& open, std::vector<Ids>& last, const Tensor& logits) {
    Ids from(static_cast<std::size_t>(cache_.sequences()));
    for (std::size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::int64_t>(i);
    std::vector<std::size_t> still;
    bool moved = false;
    std::int64_t at = 0;
    for (const std::size_t s : open) {
      const std::size_t computed = last[s].size();
      const bool goes_on = texts_[s]->step(logits.narrow(0, at, static_cast<std::int64_t>(computed)));
      at += static_cast<std::int64_t>(computed);
      if (!goes_on) continue;
      still.push_back(s);
      last[s].clear();
      std::size_t row = 0;
      for (const auto& [before, token] : texts_[s]->rows()) {
        last[s].push_back(token);
        const std::int64_t source = sequence(s, computed == 1 ? 0 : before), own = sequence(s, row++);
        moved = moved || source != own;
        from[static_cast<std::size_t>(own)] = source;
      }
    }
    if (moved) cache_.reorder(from);
    return still;
  }

  const EncoderDecoder& model_;
  const TranslateOptions& options_;
  const std::int64_t width_;
  ModelCache cache_;
  std::vector<std::unique_ptr<SourceTexts>> texts_;
  Memory memory_;
};

}  // namespace

std::vector<std::vector<Translated>> translate(const EncoderDecoder& model, const std::vector<Ids>& sources,
                                               const TranslateOptions& given) {
  const TranslateOptions options = checked_options(model, given);
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) throw ValueError(runtime::format("translate: source {} has no token", i));
    for (const std::int64_t id : sources[i])
      if (id < 0 || id >= model.config.vocab_size)
        throw ValueError(runtime::format("translate: source {} has the id {}; the model reads ids from 0 to {}", i, id,
                                         model.config.vocab_size - 1));
  }
  const NoGrad no_grad;
  std::vector<std::vector<Translated>> result;
  for (std::size_t begin = 0; begin < sources.size();) {
    std::size_t end = begin;
    std::int64_t tokens = 0;
    std::vector<Ids> batch;
    while (end < sources.size() && (end == begin || tokens + std::ssize(sources[end]) <= options.batch_tokens)) {
      tokens += std::ssize(sources[end]);
      batch.push_back(sources[end++]);
    }
    for (auto& texts : SourceBatch(model, batch, options).run()) result.push_back(std::move(texts));
    begin = end;
  }
  return result;
}

}  // namespace attn
