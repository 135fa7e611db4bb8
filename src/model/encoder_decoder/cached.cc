// src/model/encoder_decoder/cached.cc: continues target texts with a cache, and shows one layer's cross-attention.
#include <attn/autograd.h>
#include <attn/encoder_decoder.h>
#include <attn/ops.h>

#include "model/encoder_decoder/blocks.h"
#include "model/encoder_decoder/texts.h"

#include "runtime/format.h"

#include <algorithm>
#include <cmath>

namespace attn {
namespace {

using Ints = std::vector<std::int64_t>;

/// Returns the rows that attend to each text of the memory, as cu_seqlens: `columns` rows for each entry of `sources`.
Tensor rows_of_sources(const Ints& sources, std::int64_t texts, std::int64_t columns) {
  Ints ends(static_cast<std::size_t>(texts + 1), 0);
  for (std::size_t b = 0; b < sources.size(); ++b) {
    if (sources[b] < 0 || sources[b] >= texts)
      throw ValueError(
          runtime::format("EncoderDecoder: source is {}; the memory has texts 0 to {}", sources[b], texts - 1));
    if (b > 0 && sources[b] < sources[b - 1])
      throw ValueError("EncoderDecoder: sources descend; rows of one source must stand together, in its order");
    ends[static_cast<std::size_t>(sources[b] + 1)] += columns;
  }
  for (std::size_t n = 1; n < ends.size(); ++n) ends[n] += ends[n - 1];
  return tensor<std::int64_t>(ends);
}

}  // namespace

ModelCache EncoderDecoder::cache(std::int64_t sequences, std::int64_t tokens, ModelCacheOptions options) const {
  if (tokens < 1) throw ValueError(runtime::format("EncoderDecoder: tokens is {}; it must be at least 1", tokens));
  options.sequences = sequences;
  options.dtype = dtype();
  return ModelCache({.vocab_size = config.decoder_vocab_size,
                     .context = config.positions > 0 ? std::min(tokens, config.positions) : tokens,
                     .layers = config.decoder_layers,
                     .heads = config.decoder_heads,
                     .width = config.width,
                     .head_dim = config.dim_of_decoder_head()},
                    options);
}

Tensor EncoderDecoder::hidden(const Tensor& ids, ModelCache& cache, const Ints& sequences, const Memory& memory,
                              const Ints& sources) const {
  check_memory(config, memory);
  if (!ids.defined() || ids.dim() != 2)
    throw ShapeError(runtime::format("EncoderDecoder: ids has shape {}; those that continue a cache are [B, T]",
                                     ids.defined() ? to_string(ids.sizes()) : "[]"));
  if (std::ssize(cache.layers_) != config.decoder_layers)
    throw ValueError(runtime::format("EncoderDecoder: the cache has {} layers; the decoder has {}",
                                     std::ssize(cache.layers_), config.decoder_layers));
  if (std::ssize(sequences) != ids.size(0) || std::ssize(sources) != ids.size(0))
    throw ShapeError(
        runtime::format("EncoderDecoder: ids has shape {}; it must have a row for each of {} sequences "
                        "and {} sources",
                        to_string(ids.sizes()), sequences.size(), sources.size()));
  const std::int64_t rows = ids.size(0), columns = ids.size(1);
  const Ints tokens = ids.to_int_vector();
  Ints positions, before;
  for (std::size_t b = 0; b < sequences.size(); ++b) {
    before.push_back(cache.length(sequences[b]));
    if (config.positions > 0 && before[b] + columns > config.positions)
      throw ValueError(
          runtime::format("EncoderDecoder: sequence {} has {} tokens, and {} more; the model reads at most "
                          "{}",
                          sequences[b], before[b], columns, config.positions));
    if (std::count(sequences.begin(), sequences.end(), sequences[b]) > 1)
      throw ValueError(runtime::format("EncoderDecoder: sequence {} is given twice", sequences[b]));
    for (std::int64_t t = 0; t < columns; ++t)
      positions.push_back(position_row(
          config, tokens[b * static_cast<std::size_t>(columns) + static_cast<std::size_t>(t)], before[b] + t));
  }
  const NoGrad no_grad;
  AttentionOptions options = options_of(config, parts_->decoder, Side::decoder);
  options.mask = cache.mask(options.mask);
  for (const std::int64_t sequence : sequences) cache.free_pages(sequence);
  try {
    const auto attend = [&](std::int64_t layer) -> Attend {
      return [&, layer](const Tensor& q, const Tensor& k, const Tensor& v) {
        const auto heads_first = [&](const Tensor& x) {  // [B T, H, D] -> [B, H, T, D]
          return x.reshape({rows, columns, x.size(1), x.size(2)}).transpose(1, 2);
        };
        std::vector<KvSequence> handles;
        for (const std::int64_t one : sequences)
          handles.push_back(cache.at(one).handles[static_cast<std::size_t>(layer)]);
        KvCache& kept = cache.layers_[static_cast<std::size_t>(layer)];
        kept.append(handles, heads_first(k), heads_first(v));
        const Tensor y = attention_cached(heads_first(q), kept, handles, options).output;
        return y.transpose(1, 2).reshape({rows * columns, q.size(1) * q.size(2)});
      };
    };
    const Tensor x = parts_->embedded(Side::decoder, ids.reshape({rows * columns}), positions, 0);
    const Tensor result =
        parts_->decoded(config, x, memory, rows_of_sources(sources, memory.texts(), columns), 0, attend);
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(b) * columns;
      Ints& own = cache.at(sequences[b]).tokens;
      own.insert(own.end(), first, first + columns);
    }
    return result.reshape({rows, columns, config.width});
  } catch (...) {  // removes the rows that some layers have already appended
    for (std::size_t b = 0; b < sequences.size(); ++b) cache.truncate(sequences[b], before[b]);
    throw;
  }
}

EncoderDecoder::CrossHeads EncoderDecoder::cross_heads(const Tensor& ids, const Memory& memory,
                                                       std::int64_t layer) const {
  const Ints ends =
      checked_texts("target", ids, tensor<std::int64_t>({0, ids.defined() ? ids.numel() : 0}), config.positions);
  check_memory(config, memory);
  if (layer < 0 || layer >= config.decoder_layers)
    throw ValueError(
        runtime::format("EncoderDecoder: layer is {}; it must be from 0 to {}", layer, config.decoder_layers - 1));
  if (memory.texts() < 1) throw ValueError("EncoderDecoder: the memory has no text");
  const NoGrad no_grad;
  const Ints source = memory.cu_seqlens.to_int_vector();
  AttentionOptions options = options_of(config, parts_->decoder, Side::decoder);
  options.cu_seqlens_q = tensor<std::int64_t>(ends);
  const Attend attend = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return rows_joined(attention(q, k, v, options).output);
  };
  const Tensor x = parts_->embedded(Side::decoder, ids, position_rows(config, ids.to_int_vector(), ends, true), 0);
  Memory first{.hidden = memory.hidden.narrow(0, 0, source[1]), .cu_seqlens = tensor<std::int64_t>({0, source[1]})};
  for (std::int64_t n = 0; n < config.decoder_layers; ++n) {
    first.keys.push_back(memory.keys[static_cast<std::size_t>(n)].narrow(2, 0, source[1]));
    first.values.push_back(memory.values[static_cast<std::size_t>(n)].narrow(2, 0, source[1]));
  }
  CrossHeads result;
  parts_->decoded(
      config, x, first, options.cu_seqlens_q, 0, [&](std::int64_t) { return attend; },
      [&](std::int64_t at, const Tensor& q) {
        if (at == layer) result.q = q;
      });
  result.k = first.keys[static_cast<std::size_t>(layer)];
  result.v = first.values[static_cast<std::size_t>(layer)];
  result.scale = cross_scale(config).value_or(1 / std::sqrt(static_cast<double>(config.dim_of_decoder_head())));
  return result;
}

}  // namespace attn
