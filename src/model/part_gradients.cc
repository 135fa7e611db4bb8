// src/model/part_gradients.cc: runs forward and backward passes part by part, and adds their gradients by the tree.
#include "model/part_gradients.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "tensor/leaf_by_leaf.h"

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

PartGradients::PartGradients(const PartSource& source, std::int64_t step, std::vector<std::int64_t> batch)
    : source_(source), step_(step), batch_(std::move(batch)), rows_(source.task.rows(batch_)),
      losses_(zeros({rows_.back()})) {}

Span PartGradients::rows_of(const Span& parts) const {
  const auto row = [&](std::int64_t item) { return rows_[static_cast<std::size_t>(item)]; };
  const std::int64_t count = source_.options.part_count(), items = source_.options.batch;
  return {row(share_of(items, parts.begin, count).begin), row(share_of(items, parts.end - 1, count).end)};
}

Tensor PartGradients::sum(const Span& node, bool in_buffer, const Listener* listener) {
  const Tensor& buffer = source_.gradients.buffers().front();  // a model has one dtype
  const bool into_buffer = in_buffer && buffer.dtype() == Dtype::f32;
  // The sums of the left children on the path from `node` down to its last part.
  std::vector<Tensor> lefts;
  Span rest = node;
  for (; rest.size() > 1; rest.begin = middle_of(rest))
    lefts.push_back(sum({rest.begin, middle_of(rest)}, /*in_buffer=*/false, nullptr));
  const auto widen = [&] {
    for (Tensor& left : lefts)
      if (left.dtype() != Dtype::f32) left = left.to(Dtype::f32);
  };
  const auto add_lefts = [&](const Span& elements) {
    const NoGrad guard;
    const auto some = [&](const Tensor& x) { return x.narrow(0, elements.begin, elements.size()); };
    Tensor right = some(buffer);
    for (auto left = lefts.rbegin(); left != lefts.rend(); ++left) {
      if (into_buffer) right.add_(some(*left));
      else right = some(*left).add_(right);
    }
  };
  const auto result = [&] { return lefts.empty() || into_buffer ? buffer : lefts.front(); };
  if (listener != nullptr) {
    widen();
    listener->begins(result());
    run(rest.begin, [&](const Span& elements) {
      add_lefts(elements);
      listener->elements_are_final(elements);
    });
    return result();
  }
  run(rest.begin, {});
  widen();  // only now, because it takes memory
  add_lefts({0, buffer.numel()});
  return lefts.empty() && !in_buffer ? buffer.clone() : result();
}

/// Leaves the gradients of a part in the buffer. `whole`, if given, is called with the elements of each parameter as
/// soon as its gradient is complete.
void PartGradients::run(std::int64_t part, const std::function<void(const Span& elements)>& whole) {
  const TrainOptions& o = source_.options;
  const Span items = share_of(o.batch, part, o.part_count()), rows = rows_of({part, part + 1});
  source_.gradients.zero();
  const GeneratorOfPart generator(seed_of_part(o, step_, part));
  const Tensor losses = source_.task.losses({batch_.begin() + items.begin, batch_.begin() + items.end});
  const Tensor gradient = full({rows.size()}, 1 / static_cast<double>(losses_.numel()), Dtype::f32);
  if (whole)
    backward_leaf_by_leaf(losses, gradient, [&](const Tensor& leaf) {
      if (const auto elements = source_.gradients.elements_of(leaf); elements.size() > 0) whole(elements);
    });
  else losses.backward(gradient);
  const NoGrad guard;
  losses_.narrow(0, rows.begin, rows.size()).copy_(losses.detach());
}

double mean_loss(const Tensor& losses) {
  const NoGrad guard;
  return (sum(losses) / static_cast<double>(losses.numel())).item();
}

}  // namespace attn
