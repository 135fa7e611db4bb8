// src/model/encoder_decoder/model.cc: runs an encoder-decoder: the encoder makes rows of source ids, the decoder makes
// logits of these rows and target ids.
#include <attn/autograd.h>
#include <attn/encoder_decoder.h>
#include <attn/ops.h>

#include "model/encoder_decoder/blocks.h"
#include "model/encoder_decoder/generation_config.h"
#include "model/encoder_decoder/initial_weights.h"
#include "model/encoder_decoder/texts.h"

#include "runtime/format.h"

#include <algorithm>

namespace attn {
namespace {

using Ints = std::vector<std::int64_t>;

const EncoderDecoderConfig& checked_config(const EncoderDecoderConfig& config, Dtype dtype) {
  config.check();
  if (dtype > Dtype::boolean)
    throw ValueError("EncoderDecoder: dtype is " + std::to_string(static_cast<int>(dtype)) +
                     "; the enumeration has no such value");
  if (!is_floating(dtype))
    throw DtypeError("EncoderDecoder: dtype is " + std::string(name_of(dtype)) + "; it must be f32, f64, bf16 or f16");
  return config;
}

}  // namespace

EncoderDecoder::EncoderDecoder(const EncoderDecoderConfig& config, std::shared_ptr<const Parts> parts)
    : config(config), generation_config(default_generation_config(config)), parts_(std::move(parts)) {
  register_module("embedding", parts_->embedding);
  if (parts_->decoder_embedding) register_module("decoder_embedding", *parts_->decoder_embedding);
  register_module("encoder", parts_->encoder);
  register_module("decoder", parts_->decoder);
  if (parts_->head) register_module("head", *parts_->head);
  register_buffer("head_bias", parts_->head_bias);
}

EncoderDecoder::EncoderDecoder(const EncoderDecoderConfig& config, Dtype dtype, Generator* generator)
    : EncoderDecoder(config, std::make_shared<const Parts>(checked_config(config, dtype), dtype)) {
  if (generator != nullptr) {
    draw_initial_weights(*this, *generator);
  } else {
    const std::lock_guard lock(default_generator_mutex());
    draw_initial_weights(*this, default_generator());
  }
}

Dtype EncoderDecoder::dtype() const { return parts_->dtype; }

Tensor EncoderDecoder::encode(const Tensor& ids, const Tensor& cu_seqlens) const {
  const Ints ends = checked_texts("source", ids, cu_seqlens, config.positions);
  const double dropped = is_training() && grad_enabled() ? config.dropout : 0;
  const PairStack& stack = parts_->encoder;
  AttentionOptions options = options_of(config, stack, Side::encoder);
  options.cu_seqlens_q = cu_seqlens;
  options.dropout_p = dropped;
  const Attend attend = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return rows_joined(attention(q, k, v, options).output);
  };
  Tensor x = parts_->embedded(Side::encoder, ids, position_rows(config, ids.to_int_vector(), ends, false), dropped);
  for (const PairLayer& layer : stack.layers) {
    x = layer.attended(x, attend, parts_->project, dropped);
    x = layer.mlp(x, parts_->project, dropped);
  }
  if (!stack.norm) return x;
  x = (*stack.norm)(x);
  return config.family == EncoderDecoderConfig::Family::t5 && dropped > 0 ? dropout(x, dropped, true) : x;
}

Memory EncoderDecoder::memory(const Tensor& hidden, const Tensor& cu_seqlens) const {
  if (!hidden.defined() || hidden.dim() != 2 || hidden.size(1) != config.width)
    throw ShapeError(runtime::format("EncoderDecoder: hidden has shape {}; it must be [total, {}]",
                                     hidden.defined() ? to_string(hidden.sizes()) : "[]", config.width));
  checked_texts("source", hidden.select(1, 0), cu_seqlens, config.positions);
  Memory memory{.hidden = hidden, .cu_seqlens = cu_seqlens};
  for (const PairLayer& layer : parts_->decoder.layers) {
    const Tensor kv =
        parts_->project(*layer.cross_kv, hidden).reshape({hidden.size(0), 2 * layer.heads, layer.head_dim});
    const std::vector<Tensor> parts = kv.split({layer.heads, layer.heads}, 1);
    // heads first: the rows of a head are read one after another
    memory.keys.push_back(parts[0].transpose(0, 1).contiguous().unsqueeze(0));
    memory.values.push_back(parts[1].transpose(0, 1).contiguous().unsqueeze(0));
  }
  return memory;
}

Tensor EncoderDecoder::Parts::decoded(const EncoderDecoderConfig& config, Tensor x, const Memory& memory,
                                      const Tensor& cu_rows, double dropped,
                                      const std::function<Attend(std::int64_t)>& attend,
                                      const std::function<void(std::int64_t, const Tensor&)>& on_queries) const {
  AttentionOptions cross;
  cross.scale = cross_scale(config);
  cross.cu_seqlens_q = cu_rows;
  cross.cu_seqlens_k = memory.cu_seqlens;
  cross.dropout_p = dropped;
  std::size_t n = 0;
  for (const PairLayer& layer : decoder.layers) {
    x = layer.attended(x, attend(static_cast<std::int64_t>(n)), project, dropped);
    x = layer.crossed(
        x,
        [&](const Tensor& q) {
          const Tensor heads = q.transpose(0, 1).unsqueeze(0);  // [1, H, total, D], as the keys are
          if (on_queries) on_queries(static_cast<std::int64_t>(n), heads);
          const Tensor y = attention(heads, memory.keys[n], memory.values[n], cross).output;
          return rows_joined(y.select(0, 0).transpose(0, 1));
        },
        project, dropped);
    x = layer.mlp(x, project, dropped);
    ++n;
  }
  if (!decoder.norm) return x;
  x = (*decoder.norm)(x);
  return config.family == EncoderDecoderConfig::Family::t5 && dropped > 0 ? dropout(x, dropped, true) : x;
}

Tensor EncoderDecoder::hidden(const Tensor& ids, const Tensor& cu_seqlens, const Memory& memory) const {
  const Ints ends = checked_texts("target", ids, cu_seqlens, config.positions);
  check_memory(config, memory);
  if (std::ssize(ends) - 1 != memory.texts())
    throw ValueError(
        runtime::format("EncoderDecoder: there are {} target texts; it must be one for each of the {} "
                        "source texts",
                        std::ssize(ends) - 1, memory.texts()));
  const double dropped = is_training() && grad_enabled() ? config.dropout : 0;
  AttentionOptions options = options_of(config, parts_->decoder, Side::decoder);
  options.cu_seqlens_q = cu_seqlens;
  options.dropout_p = dropped;
  const Attend attend = [&](const Tensor& q, const Tensor& k, const Tensor& v) {
    return rows_joined(attention(q, k, v, options).output);
  };
  const Tensor x =
      parts_->embedded(Side::decoder, ids, position_rows(config, ids.to_int_vector(), ends, true), dropped);
  return parts_->decoded(config, x, memory, cu_seqlens, dropped, [&](std::int64_t) { return attend; });
}

Tensor EncoderDecoder::logits(const Tensor& hidden) const {
  const Tensor x = parts_->output_scale ? hidden * *parts_->output_scale : hidden;
  const Tensor y = parts_->head ? parts_->project(*parts_->head, x) : parts_->project(parts_->target_embedding(), x);
  return parts_->head_bias.defined() ? y + parts_->head_bias : y;
}

Tensor EncoderDecoder::forward(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& target_ids,
                               const Tensor& target_cu_seqlens) const {
  return logits(hidden(target_ids, target_cu_seqlens, memory(encode(ids, cu_seqlens), cu_seqlens)));
}

Tensor EncoderDecoder::log_probabilities(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& target_ids,
                                         const Tensor& target_cu_seqlens, const Tensor& targets) const {
  const Tensor y = forward(ids, cu_seqlens, target_ids, target_cu_seqlens);
  if (!targets.defined() || !(targets.sizes() == target_ids.sizes()))
    throw ShapeError(runtime::format("EncoderDecoder: targets has shape {}; it must be that of the target ids, {}",
                                     targets.defined() ? to_string(targets.sizes()) : "[]",
                                     to_string(target_ids.sizes())));
  return -cross_entropy(y.to(dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32), targets, {.reduction = Reduction::none});
}

Tensor EncoderDecoder::loss(const Tensor& ids, const Tensor& cu_seqlens, const Tensor& target_ids,
                            const Tensor& target_cu_seqlens, const Tensor& targets) const {
  const Tensor y = forward(ids, cu_seqlens, target_ids, target_cu_seqlens);
  if (!targets.defined() || !(targets.sizes() == target_ids.sizes()))
    throw ShapeError(runtime::format("EncoderDecoder: targets has shape {}; it must be that of the target ids, {}",
                                     targets.defined() ? to_string(targets.sizes()) : "[]",
                                     to_string(target_ids.sizes())));
  return cross_entropy(y, targets);
}

}  // namespace attn
