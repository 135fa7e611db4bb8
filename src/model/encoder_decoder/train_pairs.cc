// src/model/encoder_decoder/train_pairs.cc: implements the training of an encoder-decoder on pairs of texts.
#include <attn/error.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/train.h>

#include "io/write.h"
#include "model/train_internal.h"

#include "runtime/format.h"
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <span>

namespace attn {
namespace {

using Ids = std::vector<std::int64_t>;

/// Texts one after another: ids, and where each begins and ends.
struct JoinedTexts {
  Ids ids, ends = {0};
  void add(const Ids& text) {
    ids.insert(ids.end(), text.begin(), text.end());
    ends.push_back(static_cast<std::int64_t>(ids.size()));
  }
  Tensor tensor() const { return attn::tensor<std::int64_t>(ids); }
  Tensor cu_seqlens() const { return attn::tensor<std::int64_t>(ends); }
};

void check_text(const char* name, std::size_t number, const Ids& ids, const EncoderDecoderConfig& config) {
  const std::int64_t vocab_size = name[0] == 's' ? config.vocab_size : config.decoder_vocab_size;
  const auto length = static_cast<std::int64_t>(ids.size());
  if (length == 0) throw ValueError(runtime::format("Trainer: the {} of pair {} has no token", name, number));
  if (config.positions > 0 && length > config.positions)
    throw ValueError(runtime::format("Trainer: the {} of pair {} has {} tokens; the model reads at most {}", name,
                                     number, length, config.positions));
  for (const std::int64_t id : ids)
    if (id < 0 || id >= vocab_size)
      throw ValueError(runtime::format("Trainer: id {} in the {} of pair {} is not below vocab_size {}", id, name,
                                       number, vocab_size));
}

std::vector<IdPair> checked_pairs(std::vector<IdPair> pairs, const TrainOptions& options) {
  options.check();
  if (!options.encoder_decoder) throw ValueError("Trainer: encoder_decoder is not set, which pairs train");
  options.encoder_decoder->check();
  if (pairs.size() < 2)
    throw ValueError(
        runtime::format("Trainer: pairs has size {}; it must be 2 or more, one of them for validation", pairs.size()));
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    check_text("source", i + 1, pairs[i].source, *options.encoder_decoder);
    check_text("target", i + 1, pairs[i].target, *options.encoder_decoder);
  }
  return pairs;
}

/// The ids that generation needs: each text ends with the same token.
nlohmann::ordered_json ids_of_generation(const std::vector<IdPair>& pairs, const EncoderDecoderConfig& config) {
  return {{"decoder_start_token_id", config.padding_id},
          {"eos_token_id", pairs[0].target.back()},
          {"pad_token_id", config.padding_id}};
}

/// Seeds the global generator and makes the model, whose weights are the first numbers that it draws.
EncoderDecoder make_pair_model(const std::vector<IdPair>& pairs, const TrainOptions& options) {
  manual_seed(options.seed);
  EncoderDecoder model(*options.encoder_decoder, options.dtype);
  nlohmann::ordered_json generation = ids_of_generation(pairs, model.config);
  generation["max_length"] = model.config.positions;
  model.generation_config = generation.dump(2) + "\n";
  return model;
}

/// FNV-1a, 64 bits, of all ids and lengths.
std::string digest_of_pairs(const std::vector<IdPair>& pairs) {
  std::uint64_t hash = 0xCBF29CE484222325;
  const auto add = [&](std::uint64_t number) {
    for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ (number >> shift & 0xFF)) * 0x100000001B3;
  };
  for (const IdPair& pair : pairs)
    for (const Ids* text : {&pair.source, &pair.target}) {
      add(text->size());
      for (const std::int64_t id : *text) add(static_cast<std::uint64_t>(id));
    }
  return runtime::format("{:016x}", hash);
}

}  // namespace

/// The first nine tenths of the pairs are for training, the rest, at least one, for validation.
class PairTask : public TrainTask {
 public:
  PairTask(std::vector<IdPair> pairs, const TrainOptions& options)
      : pairs_(checked_pairs(std::move(pairs), options)), batch_(options.batch), smoothing_(options.label_smoothing),
        border_(size() - std::max<std::int64_t>(1, size() / 10)), model(make_pair_model(pairs_, options)) {}

  const nn::Module& module() const override { return model; }

  Ids draw() const override { return randint(0, border_, {batch_}).to_int_vector(); }

  Tensor loss(const Ids& batch) const override { return loss_of(batch, smoothing_); }

  std::vector<std::int64_t> rows(const Ids& batch) const override {
    std::vector<std::int64_t> rows{0};
    for (const std::int64_t i : batch) rows.push_back(rows.back() + static_cast<std::int64_t>(pair(i).target.size()));
    return rows;
  }

  Tensor losses(const Ids& items) const override { return loss_of(items, smoothing_, Reduction::none); }

  ValidationBatches validation() const override {
    ValidationBatches result;
    std::vector<Ids> batches;
    for (std::int64_t at = border_; at < size(); at += batch_) {
      Ids& batch = batches.emplace_back();
      std::int64_t& targets = result.targets.emplace_back(0);
      for (std::int64_t i = at; i < std::min(at + batch_, size()); ++i) {
        batch.push_back(i);
        targets += static_cast<std::int64_t>(pair(i).target.size());
      }
    }
    result.loss = [this, batches = std::move(batches)](std::int64_t i) {
      return loss_of(batches[static_cast<std::size_t>(i)], 0).item();
    };
    return result;
  }

  std::string digest() const override { return digest_of_pairs(pairs_); }

  double tokens_a_step() const override {
    double tokens = 0;
    for (std::int64_t i = 0; i < border_; ++i)
      tokens += static_cast<double>(pair(i).source.size() + pair(i).target.size());
    return tokens / static_cast<double>(border_) * static_cast<double>(batch_);
  }

  void save(const std::string& folder) const override {
    if (std::error_code failure; std::filesystem::create_directories(folder, failure), failure)
      throw IoError(runtime::format("Trainer::save_model: {}: {}", folder, failure.message()));
    model.save(folder);
    auto config = nlohmann::ordered_json::parse(model.config.to_json(model.dtype()));
    config.update(ids_of_generation(pairs_, model.config));
    const std::string text = config.dump(2) + "\n";
    io::write_whole("Trainer::save_model", (std::filesystem::path(folder) / "config.json").string(),
                    {std::as_bytes(std::span(text))});
  }

 private:
  std::int64_t size() const { return static_cast<std::int64_t>(pairs_.size()); }
  const IdPair& pair(std::int64_t i) const { return pairs_[static_cast<std::size_t>(i)]; }

  /// Returns the loss of these pairs' target tokens: the mean, or each. The decoder reads the start token and the
  /// target without its last token.
  Tensor loss_of(const Ids& chosen, double smoothing, Reduction reduction = Reduction::mean) const {
    JoinedTexts source, input, target;
    for (const std::int64_t i : chosen) {
      source.add(pair(i).source);
      target.add(pair(i).target);
      Ids shifted = {model.config.padding_id};
      shifted.insert(shifted.end(), pair(i).target.begin(), pair(i).target.end() - 1);
      input.add(shifted);
    }
    const Tensor logits = model.forward(source.tensor(), source.cu_seqlens(), input.tensor(), input.cu_seqlens());
    return cross_entropy(logits.to(Dtype::f32), target.tensor(),
                         {.label_smoothing = smoothing, .reduction = reduction});
  }

  const std::vector<IdPair> pairs_;
  const std::int64_t batch_;
  const double smoothing_;
  const std::int64_t border_;

 public:
  const EncoderDecoder model;
};

std::unique_ptr<TrainTask> pair_task(std::vector<IdPair> pairs, const TrainOptions& options) {
  return std::make_unique<PairTask>(std::move(pairs), options);
}

Trainer Trainer::of_pairs(std::vector<IdPair> pairs, const TrainOptions& options) {
  return Trainer(std::make_unique<State>(pair_task(std::move(pairs), options), options));
}

Trainer Trainer::resume_pairs(const std::string& folder, std::vector<IdPair> pairs) {
  return Trainer(State::resumed(folder, [&](const TrainOptions& options) {
    if (!options.encoder_decoder)
      throw ValueError(runtime::format("Trainer: {} trains on a text, not on pairs", folder));
    return pair_task(std::move(pairs), options);
  }));
}

const EncoderDecoder& Trainer::encoder_decoder() const {
  const auto* task = dynamic_cast<const PairTask*>(state().task.get());
  if (task == nullptr) throw ValueError("Trainer: its model is a language model, which model() returns");
  return task->model;
}

}  // namespace attn
