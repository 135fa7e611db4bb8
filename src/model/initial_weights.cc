// src/model/initial_weights.cc: draws the initial weights as nanoGPT does, in nanoGPT's order.
#include "model/initial_weights.h"

#include <attn/nn/init.h>
#include <attn/ops.h>

#include <cmath>

namespace attn {
namespace {

constexpr double deviation = 0.02;

class Draw {
 public:
  explicit Draw(Generator& generator) : generator_(generator) {}

  void normal(const Tensor& weight, double std) const {
    into(weight, [&](const Tensor& x) { nn::init::normal_(x, 0, std, &generator_); });
  }
  /// Draws the numbers that torch's Linear draws when it is constructed. They are overwritten later, but drawing them
  /// advances the generator.
  void as_made(const Tensor& weight) const {
    into(weight,
         [&](const Tensor& x) { nn::init::kaiming_uniform_(x, {.a = std::sqrt(5.0), .generator = &generator_}); });
  }
  void as_made(const ModelLinear& linear) const {
    as_made(linear.weight);
    if (linear.bias.defined()) into(linear.bias, [&](const Tensor& x) { nn::init::uniform_(x, -1, 1, &generator_); });
  }
  void as_made(const nn::Embedding& table) const { normal(table.weight, 1); }
  void as_made(const ModelTable& table) const { normal(table.weight, 1); }
  void again(const ModelLinear& linear) const {
    normal(linear.weight, deviation);
    if (linear.bias.defined()) nn::init::zeros_(linear.bias);
  }
  void again(const nn::Embedding& table) const { normal(table.weight, deviation); }

 private:
  template <typename F>
  void into(const Tensor& weight, F&& fill) const {
    const bool half = size_of(weight.dtype()) == 2;
    const Tensor drawn = half ? empty(weight.sizes()) : weight.detach();
    fill(drawn);
    if (half) weight.detach().copy_(drawn);
  }

  Generator& generator_;
};

template <typename F>
void for_each_map(const LanguageModel::Parts& parts, F&& visit) {
  visit(parts.embedding);
  if (parts.positions) visit(*parts.positions);
  for (const DecoderBlock& block : parts.blocks) {
    visit(block.attention.qkv);
    visit(block.attention.out);
    if (block.mlp.gate) visit(*block.mlp.gate);
    visit(block.mlp.up);
    visit(block.mlp.down);
  }
}

}  // namespace

void draw_initial_weights(const LanguageModel::Parts& parts, Generator& generator) {
  const Draw draw(generator);
  // A tied head is drawn twice like other layers, as if it had its own table. The embedding keeps the values drawn
  // last.
  const Tensor& head = parts.head ? parts.head->weight : parts.embedding.weight;
  for_each_map(parts, [&](const auto& map) { draw.as_made(map); });
  draw.as_made(head);
  for_each_map(parts, [&](const auto& map) { draw.again(map); });
  draw.normal(head, deviation);
  const double residual = deviation / std::sqrt(2.0 * static_cast<double>(parts.blocks.size()));
  for (const DecoderBlock& block : parts.blocks) {
    draw.normal(block.attention.out.weight, residual);
    draw.normal(block.mlp.down.weight, residual);
  }
}

}  // namespace attn
