// src/attention/short_forms.cc: implements attention_scores, self_attention, cross_attention and additive_attention.
#include <attn/attention.h>
#include <attn/ops.h>

#include "attention/call/check.h"
#include "attention/unfused/unfused_attention.h"
#include "kernels/attention/reference.h"
#include "runtime/thread_scratch.h"
#include "runtime/parallel.h"
#include "tensor/record.h"

namespace attn {

Tensor attention_scores(const Tensor& q, const Tensor& k, const AttentionOptions& options) {
  Call call = check_scores("attention_scores", q, k, options);
  kernels::AttentionProblem problem = call.problem;
  const Tensor scores = empty({problem.batch, problem.q_heads, problem.q_rows, problem.k_rows}, call.compute_dtype());
  problem.weights = scores.data();
  for (int d = 0; d < 3; ++d) problem.weights_stride[d] = scores.stride(d);
  const kernels::AttentionReference& reference = kernels::attention_reference();
  runtime::parallel_for(problem.batch * problem.q_heads, [&](std::int64_t head) {
    void* scratch = runtime::thread_scratch(reference.scratch_bytes(problem));
    reference.scores(problem, {head / problem.q_heads, head % problem.q_heads, 1, 0, problem.q_rows}, scratch);
  });
  const Tensor result = scores.reshape(call.shown(scores.sizes())).to(call.dtype());
  if (const std::vector<Tensor> inputs = call.inputs(); wants_grad(inputs)) {
    call.forget_history();
    const auto kept = std::make_shared<const Call>(std::move(call));
    record({"AttentionScoresBackward0", inputs, inputs}, {result},
           [kept](const Backward& at) { return unfused_gradients(*kept, {}, at); });
  }
  return result;
}

Weights Weights::rows(const Tensor& indices) {
  Weights weights(row_subset);
  weights.indices = indices;
  return weights;
}

Weights Weights::top_k(std::int64_t n) {
  Weights weights(largest);
  weights.count = n;
  return weights;
}

ScoresAndContext cross_attention(const Tensor& x, const Tensor& memory, const Tensor& w_q, const Tensor& w_k,
                                 const Tensor& w_v, const AttentionOptions& options) {
  const Tensor q = matmul(x, w_q), k = matmul(memory, w_k), v = matmul(memory, w_v);
  AttentionOptions with_weights = options;
  if (options.weights == Weights::none) with_weights.weights = Weights::full;
  const AttentionResult result = attention(q, k, v, with_weights);
  return {attention_scores(q, k, options), result.weights, result.output};
}

ScoresAndContext self_attention(const Tensor& x, const Tensor& w_q, const Tensor& w_k, const Tensor& w_v,
                                const AttentionOptions& options) {
  return cross_attention(x, x, w_q, w_k, w_v, options);
}

AttentionResult additive_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& w_q,
                                   const Tensor& w_k, const Tensor& w, const AttentionOptions& options) {
  AttentionOptions additive = options;
  additive.score = Score::additive(w_q, w_k, w);
  return attention(query, key, value, additive);
}

}  // namespace attn
