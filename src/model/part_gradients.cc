// src/model/part_gradients.cc: runs forward and backward passes part by part, and adds their gradients by the tree.
#include "model/part_gradients.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include <algorithm>

namespace attn {
namespace {

/// Mixes the bits of a number; different numbers stay different.
std::uint32_t mixed(std::uint32_t x) {  // the finalizer of MurmurHash3
  x = (x ^ x >> 16) * 0x85EBCA6B;
  x = (x ^ x >> 13) * 0xC2B2AE35;
  return x ^ x >> 16;
}

/// Returns the seed of a part's dropout. The generator takes 32 bits; no two parts of a training have the same.
std::uint32_t seed_of_part(const TrainOptions& options, std::int64_t step, std::int64_t part) {
  const auto number = static_cast<std::uint32_t>(step * options.part_count() + part);
  const std::uint32_t training =
      mixed(static_cast<std::uint32_t>(options.seed) ^ mixed(static_cast<std::uint32_t>(options.seed >> 32)));
  return mixed(number ^ training);
}

/// While it exists, the global generator draws the numbers of one part.
class GeneratorOfPart {
 public:
  explicit GeneratorOfPart(std::uint32_t seed) {
    const std::lock_guard lock(default_generator_mutex());
    before_ = default_generator();
    default_generator().manual_seed(seed);
  }
  ~GeneratorOfPart() {
    const std::lock_guard lock(default_generator_mutex());
    default_generator() = before_;
  }
  GeneratorOfPart(const GeneratorOfPart&) = delete;
  GeneratorOfPart& operator=(const GeneratorOfPart&) = delete;

 private:
  Generator before_;
};

}  // namespace

PartGradients::PartGradients(const PartSource& source, std::int64_t step, std::vector<std::int64_t> starts)
    : source_(source), step_(step), starts_(std::move(starts)),
      losses_(zeros({static_cast<std::int64_t>(starts_.size()) * source.options.model.context})) {}

Tensor PartGradients::sum(const Span& node, bool in_buffer) {
  const Tensor& buffer = source_.gradients.buffers().front();  // a model has one dtype
  if (node.size() == 1) {
    run(node.begin);
    return in_buffer ? buffer : buffer.clone();
  }
  const std::int64_t middle = middle_of(node);
  Tensor left = sum({node.begin, middle}, /*in_buffer=*/false);
  const Tensor right = sum({middle, node.end}, /*in_buffer=*/true);
  const NoGrad guard;
  if (in_buffer && right.dtype() == Dtype::f32) return Tensor(right).add_(left);
  if (left.dtype() != Dtype::f32) left = left.to(Dtype::f32);
  return left.add_(right);
}

void PartGradients::run(std::int64_t part) {
  const TrainOptions& o = source_.options;
  const Span windows = share_of(o.batch, part, o.part_count());
  const std::int64_t begin = windows.begin * o.model.context, count = windows.size() * o.model.context;
  const auto [inputs, targets] =
      source_.data.windows_at({starts_.begin() + windows.begin, starts_.begin() + windows.end});
  source_.gradients.zero();
  const GeneratorOfPart generator(seed_of_part(o, step_, part));
  const Tensor logits = source_.model.forward(inputs).flatten(0, 1).to(Dtype::f32);
  const Tensor losses = cross_entropy(logits, targets.reshape({-1}), {.reduction = Reduction::none});
  losses.backward(full({count}, 1 / static_cast<double>(losses_.numel()), Dtype::f32));
  const NoGrad guard;
  losses_.narrow(0, begin, count).copy_(losses.detach());
}

double mean_loss(const Tensor& losses) {
  const NoGrad guard;
  return (sum(losses) / static_cast<double>(losses.numel())).item();
}

}  // namespace attn
