// src/model/model.cc: the forward pass of a language model.
#include <attn/model.h>
#include <attn/ops.h>

#include "model/blocks.h"
#include "model/draw.h"

namespace attn {
namespace {

const ModelConfig& checked(const ModelConfig& config, Dtype dtype) {
  config.check();
  if (!is_floating(dtype)) throw DtypeError("LanguageModel: dtype is " + std::string(name_of(dtype)) + "; it must be f32, f64, bf16 or f16");
  return config;
}

void check_ids(const ModelConfig& config, const Tensor& ids) {
  if (ids.dim() != 2) throw ShapeError("LanguageModel: ids has shape " + to_string(ids.sizes()) + "; it must be [B, T]");
  if (ids.size(1) > config.context)
    throw ValueError("LanguageModel: ids has shape " + to_string(ids.sizes()) + "; the context holds " + std::to_string(config.context) + " tokens");
}

}  // namespace

LanguageModel::LanguageModel(const ModelConfig& config, Dtype dtype, Generator* generator)
    : config(checked(config, dtype)), parts_(std::make_shared<const Parts>(config, dtype)) {
  register_module("embedding", parts_->embedding);
  if (parts_->positions) register_module("positions", *parts_->positions);
  register_module("blocks", parts_->blocks);
  register_module("norm", parts_->norm);
  if (parts_->head) register_module("head", *parts_->head);
  if (generator != nullptr) {
    draw_weights(*parts_, *generator);
  } else {
    const std::lock_guard lock(default_generator_mutex());
    draw_weights(*parts_, default_generator());
  }
}

Dtype LanguageModel::dtype() const { return parts_->embedding.weight.dtype(); }

Tensor LanguageModel::hidden(const Tensor& ids) const {
  check_ids(config, ids);
  const auto dropped = [&](const Tensor& x) { return config.dropout > 0 ? dropout(x, config.dropout, is_training()) : x; };
  TokenPlaces places{.positions = arange(0, ids.size(1))};
  if (parts_->rotary) places.turn = parts_->rotary->tables(places.positions, dtype() == Dtype::f64 ? Dtype::f64 : Dtype::f32);

  Tensor x = parts_->embedding(ids);  // [B, T, C]
  if (parts_->positions) x = x + (*parts_->positions)(places.positions);
  x = dropped(x);
  for (const DecoderBlock& block : parts_->blocks) {
    const HeadTensors heads = block.attention.heads_of(block.attention_norm(x), places);
    const Tensor attended =
        attention(heads.q, heads.k, heads.v, {.mask = Mask::causal(), .dropout_p = is_training() ? config.dropout : 0}).output;
    x = x + dropped(block.attention.joined(attended));
    x = x + dropped(block.mlp(block.mlp_norm(x)));
  }
  return parts_->norm(x);
}

Tensor LanguageModel::logits(const Tensor& hidden) const { return linear(hidden, parts_->head ? parts_->head->weight : parts_->embedding.weight); }

Tensor LanguageModel::forward(const Tensor& ids) const { return logits(hidden(ids)); }

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets) const {
  const Tensor y = forward(ids);
  if (!(targets.sizes() == ids.sizes()))
    throw ShapeError("LanguageModel: targets has shape " + to_string(targets.sizes()) + "; it must be that of ids, " + to_string(ids.sizes()));
  return cross_entropy(y.flatten(0, 1), targets.reshape({-1}));
}

}  // namespace attn
