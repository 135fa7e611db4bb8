// src/model/cache.cc: keeps one KV cache for each layer of a model; all layers hold the same sequences.
#include <attn/model.h>

#include "attention/cache/cache_state.h"
#include "attention/cache/reserve.h"
#include "attention/cache/sinks.h"
#include "model/blocks.h"
#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

ModelCacheOptions checked(ModelCacheOptions options) {
  if (options.sequences < 1 || options.sequences > ModelCacheOptions::most_sequences)
    throw ValueError(runtime::format("ModelCache: sequences is {}; it must be from 1 to {}", options.sequences,
                                     ModelCacheOptions::most_sequences));
  if (options.window < 0)
    throw ValueError(runtime::format("ModelCache: window is {}; it must be 0 (all) or more", options.window));
  if (options.sinks < 0 || (options.sinks > 0 && options.window == 0))
    throw ValueError(runtime::format("ModelCache: sinks is {}; it must be {}", options.sinks,
                                     options.sinks < 0 ? "0 or more" : "0 without a window, which sees all"));
  if (options.window > 0 && options.page_rows == 0) options.page_rows = 64;
  return options;
}

/// Returns the ranks that share the cache by spans; null if none do.
std::shared_ptr<const SharedColumns> sharing_spans(const LanguageModel& model, const ModelCacheOptions& options) {
  const std::shared_ptr<const SharedColumns>& ranks = model.parts().held.ranks;
  return ranks && ranks->by_spans(model.config, options) ? ranks : nullptr;
}

/// Returns the config with the heads that this rank has.
ModelConfig with_own_heads(const LanguageModel& model, bool all) {
  ModelConfig config = model.config;
  if (!model.is_shared() || all) return config;
  const SelfAttentionBlock& attention = model.parts().blocks[0].attention;
  config.head_dim = attention.head_dim;
  config.heads = attention.heads, config.kv_heads = attention.kv_heads;
  return config;
}

}  // namespace

ModelCache::ModelCache(const LanguageModel& model, const ModelCacheOptions& options)
    : ModelCache(with_own_heads(model, sharing_spans(model, options) != nullptr), options,
                 sharing_spans(model, options)) {}

ModelCache::ModelCache(const ModelConfig& config, std::int64_t sequences, Dtype dtype, KvStorage storage)
    : ModelCache(config, {.sequences = sequences, .dtype = dtype, .storage = storage}) {}

ModelCache::ModelCache(const ModelConfig& config, const ModelCacheOptions& given)
    : ModelCache(config, given, nullptr) {}

ModelCache::ModelCache(const ModelConfig& config, const ModelCacheOptions& given,
                       std::shared_ptr<const SharedColumns> spans)
    : options_(checked(given)), spans_(std::move(spans)) {
  config.check();
  // Without pages each sequence has one block that grows, so that the rows of a head are contiguous.
  const std::int64_t rows = options_.page_rows,
                     pages = rows > 0 ? std::max<std::int64_t>(1, (own_rows(config.context) + rows - 1) / rows) : 1;
  const KvCacheOptions options{.key_heads = config.key_value_heads(),
                               .head_dim = config.dim_of_head(),
                               .page_rows = rows,
                               .pages = options_.sequences * pages,
                               .dtype = options_.dtype,
                               .storage = options_.storage};
  sequences_.resize(static_cast<std::size_t>(options_.sequences));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    KvCache& cache = layers_.emplace_back(options);
    for (Sequence& sequence : sequences_) sequence.handles.push_back(cache.create());
  }
}

const ModelCache::Sequence& ModelCache::at(std::int64_t sequence) const {
  if (layers_.empty()) throw ValueError("ModelCache: it is empty (moved from)");
  if (sequence < 0 || sequence >= sequences())
    throw ValueError("ModelCache: sequence is " + std::to_string(sequence) + "; it must be from 0 to " +
                     std::to_string(sequences() - 1));
  return sequences_[static_cast<std::size_t>(sequence)];
}

std::int64_t ModelCache::length(std::int64_t sequence) const {
  const Sequence& found = at(sequence);
  return spans_ ? std::ssize(found.tokens) : layers_.front().length(found.handles.front());
}

std::int64_t ModelCache::own_rows(std::int64_t length) const { return spans_ ? spans_->own_keys(length) : length; }

std::int64_t ModelCache::bytes() const {
  std::int64_t all = 0;
  for (const KvCache& layer : layers_) all += layer.state().k.bytes() + layer.state().v.bytes();
  return all;
}

const std::vector<std::int64_t>& ModelCache::tokens(std::int64_t sequence) const { return at(sequence).tokens; }

std::int64_t ModelCache::held(std::int64_t sequence) const {
  const Sequence& own = at(sequence);
  const std::int64_t first = layers_.front().first(own.handles.front());
  return layers_.front().length(own.handles.front()) - first + std::min(first, options_.sinks);
}

Mask ModelCache::mask(const Mask& of_model) const {
  if (options_.window == 0) return of_model;
  const Mask window = Mask::window(options_.window - 1, 0);
  return of_model & (options_.sinks > 0 ? window | Mask::prefix(options_.sinks) : window);
}

bool ModelCache::can_truncate(std::int64_t sequence, std::int64_t length) const {
  // the next token sees itself and window - 1 before it
  const Sequence& own = at(sequence);
  const std::int64_t first = layers_.front().first(own.handles.front());
  return first <= std::max(options_.sinks, length - options_.window + 1);
}

void ModelCache::free_pages(std::int64_t sequence) {
  if (options_.window == 0) return;
  const Sequence& own = at(sequence);
  const std::int64_t unseen = length(sequence) - options_.window + 1;
  for (std::size_t layer = 0; layer < layers_.size() && unseen > options_.sinks; ++layer)
    evict_behind_sinks(layers_[layer], own.handles[layer], unseen, options_.sinks);
}

void ModelCache::reserve(std::int64_t tokens) {
  for (KvCache& layer : layers_) reserve_rows(layer, own_rows(tokens));
}

void ModelCache::truncate(std::int64_t sequence, std::int64_t length) {
  Sequence& found = at(sequence);
  if (spans_) spans_->check_truncation(length, this->length(sequence));
  if (length > 0 && length < this->length(sequence) && !can_truncate(sequence, length))
    throw ValueError(runtime::format("ModelCache: length is {}; the window of {} tokens before it has been freed",
                                     length, options_.window));
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    if (layers_[layer].length(found.handles[layer]) != own_rows(length))
      layers_[layer].truncate(found.handles[layer], own_rows(length));
  found.tokens.resize(std::min(found.tokens.size(), static_cast<std::size_t>(length)));
}

std::int64_t ModelCache::keep_common(std::int64_t sequence, std::span<const std::int64_t> ids) {
  const std::vector<std::int64_t>& own = at(sequence).tokens;
  const auto differ = std::mismatch(own.begin(), own.end(), ids.begin(), ids.end()).first;
  std::int64_t length = differ - own.begin();
  if (differ != own.end() && !can_truncate(sequence, length)) length = 0;
  truncate(sequence, length);
  return length;
}

void ModelCache::reorder(const std::vector<std::int64_t>& from) {
  if (static_cast<std::int64_t>(from.size()) != sequences())
    throw ValueError("ModelCache: from names " + std::to_string(from.size()) +
                     " sequences; it must name one for each of the " + std::to_string(sequences()));
  std::vector<Sequence> forks(from.size());
  const auto release = [&](const std::vector<Sequence>& all) {
    for (const Sequence& own : all)
      for (std::size_t layer = 0; layer < own.handles.size(); ++layer) layers_[layer].release(own.handles[layer]);
  };
  try {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const Sequence& source = at(from[i]);
      forks[i].tokens = source.tokens;
      forks[i].handles.reserve(layers_.size());
      for (std::size_t layer = 0; layer < layers_.size(); ++layer)
        forks[i].handles.push_back(layers_[layer].fork(source.handles[layer]));
    }
  } catch (...) {
    release(forks);
    throw;
  }
  release(sequences_);
  sequences_ = std::move(forks);
}

}  // namespace attn
