// src/ranks/verify.cc: small sums, trainings and calls of attention on the ranks that there are, compared bit by bit
// with one process.
#include "ranks/verify.h"

#include <attn/ops.h>
#include <attn/random.h>
#include <attn/rank_attention.h>
#include <attn/train.h>

#include "model/part_tree.h"

#include "runtime/format.h"

#include <cstring>
#include <utility>

namespace attn {
namespace {

bool equal(const Tensor& a, const Tensor& b) {
  const std::size_t bytes = static_cast<std::size_t>(a.numel()) * size_of(a.dtype());
  return a.numel() == b.numel() && std::memcmp(a.data(), b.data(), bytes) == 0;
}

/// Returns whether a sum of `count` parts is equal.
bool verify_sum(const Ranks& ranks, std::int64_t count, Dtype dtype) {
  constexpr std::int64_t elements = 10'000;
  Generator generator(17);
  std::vector<Tensor> all;
  for (std::int64_t i = 0; i < count; ++i) all.push_back(randn({elements}, generator, Dtype::f32).to(dtype));
  const Span mine = share_of(count, ranks.rank(), ranks.size());
  return equal(sum_ordered({all.begin() + mine.begin, all.begin() + mine.end}, count, ranks),
               sum_ordered(all, count, Ranks()));
}

bool verify_training(const Ranks& ranks, std::int64_t parts, Dtype dtype) {
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 2000; ++i) ids.push_back(i * i % 31);
  TrainOptions o{.model = ModelConfig::nano(31), .dtype = dtype, .steps = 3, .batch = parts, .parts = parts};
  o.model.layers = 1, o.model.width = 32, o.model.heads = 2, o.model.context = 16, o.model.dropout = 0.1;
  const auto digest = [&](Trainer trainer) {
    while (!trainer.done()) trainer.advance();
    return trainer.weights_digest();
  };
  return digest(Trainer(ids, o, ranks)) == digest(Trainer(ids, o));
}

/// Returns whether the output and the gradients of a call in a layout are equal.
bool verify_attention(const Ranks& ranks, RankLayout layout, std::int64_t heads, Dtype dtype) {
  constexpr std::int64_t length = 150, dim = 32;
  Generator generator(19);
  const auto draw = [&](std::int64_t count) { return randn({1, count, length, dim}, generator, Dtype::f32).to(dtype); };
  const Tensor q = draw(2 * heads), k = draw(heads), v = draw(heads), grad = draw(2 * heads);
  const AttentionOptions options{
      .mask = Mask::causal(), .bias = Bias::alibi(Bias::alibi_slopes(2 * heads)), .dropout_p = 0.1, .dropout_seed = 3};
  const std::vector<std::int64_t> rows = rank_rows(ranks, layout, length);
  const Tensor indices = tensor<std::int64_t>(rows, {static_cast<std::int64_t>(rows.size())});
  const auto own = [&](const Tensor& x) { return x.index_select(2, indices); };
  const auto wanted = [](const Tensor& of) { return AttentionBackwardOptions{.grad_output = of, .bias = false}; };
  AttentionSaved saved, whole_saved;
  const Tensor output = rank_attention_forward(own(q), own(k), own(v), length, layout, ranks, options, saved).output;
  const AttentionGradients gradients =
      rank_attention_backward(own(q), own(k), own(v), length, layout, ranks, options, saved, wanted(own(grad)));
  const Tensor whole_output = attention_forward(q, k, v, options, whole_saved).output;
  const AttentionGradients whole = attention_backward(q, k, v, options, whole_saved, wanted(grad));
  return equal(output, own(whole_output)) && equal(gradients.q, own(whole.q)) && equal(gradients.k, own(whole.k)) &&
         equal(gradients.v, own(whole.v));
}

}  // namespace

std::vector<RankRow> verify_ranks(const Ranks& ranks) {
  std::vector<RankRow> rows;
  const auto row = [&](std::string name, const auto& same) {
    rows.push_back({std::move(name)});
    const std::int64_t n = ranks.size();
    for (const std::int64_t parts : {n, n + 1, 2 * n, 3 * n + 1}) {
      ++rows.back().cases;
      if (ranks.any(!same(parts))) ++rows.back().different;
    }
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    row(runtime::format("sum_ordered {}", name_of(dtype)),
        [&](std::int64_t parts) { return verify_sum(ranks, parts, dtype); });
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    row(runtime::format("training {}", name_of(dtype)),
        [&](std::int64_t parts) { return verify_training(ranks, parts, dtype); });
  for (const auto& [layout, name] : {std::pair{RankLayout::heads, "heads"}, {RankLayout::stripes, "stripes"}})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
      row(runtime::format("attention by {} {}", name, name_of(dtype)),
          [&, layout = layout](std::int64_t heads) { return verify_attention(ranks, layout, heads, dtype); });
  return rows;
}

}  // namespace attn
