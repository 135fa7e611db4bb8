// src/model/cache.cc: keeps one KV cache for each layer of a model; all layers hold the same sequences.
#include <attn/model.h>

namespace attn {

ModelCache::ModelCache(const ModelConfig& config, std::int64_t sequences, Dtype dtype, KvStorage storage) {
  config.check();
  if (sequences < 1)
    throw ValueError("ModelCache: sequences is " + std::to_string(sequences) + "; it must be at least 1");
  // Each sequence has one block that grows, so that the rows of a head are contiguous.
  const KvCacheOptions options{.key_heads = config.key_value_heads(),
                               .head_dim = config.dim_of_head(),
                               .page_rows = 0,
                               .pages = sequences,
                               .dtype = dtype,
                               .storage = storage};
  handles_.resize(static_cast<std::size_t>(sequences));
  for (std::int64_t layer = 0; layer < config.layers; ++layer) {
    KvCache& cache = layers_.emplace_back(options);
    for (auto& handles : handles_) handles.push_back(cache.create());
  }
}

const std::vector<KvSequence>& ModelCache::handles(std::int64_t sequence) const {
  if (layers_.empty()) throw ValueError("ModelCache: it is empty (moved from)");
  if (sequence < 0 || sequence >= sequences())
    throw ValueError("ModelCache: sequence is " + std::to_string(sequence) + "; it must be from 0 to " +
                     std::to_string(sequences() - 1));
  return handles_[static_cast<std::size_t>(sequence)];
}

std::int64_t ModelCache::length(std::int64_t sequence) const {
  const std::vector<KvSequence>& own = handles(sequence);
  return layers_.front().length(own.front());
}

void ModelCache::truncate(std::int64_t sequence, std::int64_t length) {
  const std::vector<KvSequence>& own = handles(sequence);
  for (std::size_t layer = 0; layer < layers_.size(); ++layer)
    if (layers_[layer].length(own[layer]) != length) layers_[layer].truncate(own[layer], length);
}

void ModelCache::reorder(const std::vector<std::int64_t>& from) {
  if (static_cast<std::int64_t>(from.size()) != sequences())
    throw ValueError("ModelCache: from names " + std::to_string(from.size()) +
                     " sequences; it must name one for each of the " + std::to_string(sequences()));
  std::vector<std::vector<KvSequence>> forks(from.size());
  const auto release = [&](const std::vector<std::vector<KvSequence>>& all) {
    for (const std::vector<KvSequence>& own : all)
      for (std::size_t layer = 0; layer < own.size(); ++layer) layers_[layer].release(own[layer]);
  };
  try {
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::vector<KvSequence>& source = handles(from[i]);
      forks[i].reserve(layers_.size());
      for (std::size_t layer = 0; layer < layers_.size(); ++layer)
        forks[i].push_back(layers_[layer].fork(source[layer]));
    }
  } catch (...) {
    release(forks);
    throw;
  }
  release(handles_);
  handles_ = std::move(forks);
}

}  // namespace attn
