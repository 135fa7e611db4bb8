// src/attention/call/call.cc: visits the tensors of a call, converts shapes to the rank that the caller used, and
// lowers the mask of sequences that see all of their keys.
#include "attention/call/call.h"

#include "attention/mask/mask_expression.h"
#include "tensor/build.h"

namespace attn {
namespace {

// These functions visit the tensors of a call without copying handles, because every call checks whether its output
// overlaps one of its operands, and a small call takes about a microsecond.

template <class F>
void for_each_of(const Mask::Expression& e, F& f) {
  for (const Tensor* x : {&e.first, &e.second})
    if (x->defined()) f(*x);
  for (const auto* part : {&e.a, &e.b})
    if (*part) for_each_of(**part, f);
}

template <class F>
void for_each_input(const Call& call, F&& f) {
  for (const Tensor* x : {&call.q, &call.k, &call.v, &call.sinks, &call.additive_w})
    if (x->defined()) f(*x);
  for (const Tensor& x : call.bias.values) f(x);
  if (call.score_mod)
    for (const Tensor& x : call.score_mod->any_rows.values) f(x);
  if (call.normalizer)
    for (const Tensor& x : call.normalizer->weight_mod.values) f(x);
}

template <class F>
void for_each_constant(const Call& call, F&& f) {
  const Lengths& lengths = call.lengths;
  for (const Tensor* x : {&lengths.query_lengths, &lengths.key_lengths, &lengths.key_start, &lengths.query_start})
    if (x->defined()) f(*x);
  if (call.mask.expression()) for_each_of(*call.mask.expression(), f);
  if (call.score_mod)
    for (const Tensor& x : call.score_mod->any_rows.looked_up)
      if (!is_floating(x.dtype())) f(x);
  if (call.normalizer)
    for (const Tensor& x : call.normalizer->weight_mod.looked_up)
      if (!is_floating(x.dtype())) f(x);
}

}  // namespace

bool share_memory(const Tensor& a, const Tensor& b) {
  return a.impl()->data == b.impl()->data ? a.numel() > 0 && b.numel() > 0 : overlaps(a, b);
}

Tensor Call::with_heads(const Tensor& x) const { return viewed(x, packed); }

Dims Call::shown(Dims sizes) const {
  if (rank < 4) sizes.erase(packed ? 0 : 1);
  if (rank < 3) sizes.erase(0);
  return sizes;
}

Dims Call::shown_rows(std::int64_t width) const {
  if (packed && rank == 3) return {problem.q_rows, problem.q_heads, width};
  const auto all = [&] { return Dims{problem.batch, problem.q_heads, problem.q_rows, width}; };
  return rank == 4 ? all() : shown(all());
}

bool Call::wants_grad() const {
  using attn::wants_grad;
  return wants_grad(q) || wants_grad(k) || wants_grad(v) || wants_grad(sinks) || wants_grad(additive_w) ||
         wants_grad(bias.values) || (score_mod && wants_grad(score_mod->any_rows.values)) ||
         (normalizer && wants_grad(normalizer->weight_mod.values));
}

std::vector<Tensor> Call::looked_up() const {
  std::vector<Tensor> values;
  if (score_mod) values = score_mod->any_rows.values;
  if (normalizer)
    values.insert(values.end(), normalizer->weight_mod.values.begin(), normalizer->weight_mod.values.end());
  return values;
}

std::vector<Tensor> Call::inputs() const {
  std::vector<Tensor> inputs;
  for_each_input(*this, [&](const Tensor& x) { inputs.push_back(x); });
  return inputs;
}

std::vector<Tensor> Call::constants() const {
  std::vector<Tensor> constants;
  for_each_constant(*this, [&](const Tensor& x) { constants.push_back(x); });
  return constants;
}

bool Call::reads_from(const Tensor& memory) const {
  bool reads = false;
  const auto look = [&](const Tensor& x) { reads = reads || share_memory(memory, x); };
  for_each_input(*this, look);
  for_each_constant(*this, look);
  return reads;
}

void Call::forget_history() {
  for (Tensor* x : {&q, &k, &v, &sinks, &additive_w})
    if (x->defined()) *x = x->detach();
  for (Tensor& x : bias.values) x = x.detach();
}

kernels::AttentionProblem inside_sequences(const Call& call, const kernels::AttentionProblem& problem) {
  kernels::AttentionProblem result = problem;
  result.mask.nodes = call.program.inside.data();
  return result;
}

}  // namespace attn
