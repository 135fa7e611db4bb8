// tests/attention/linear_attention_bits_test.cc: bits of linear attention with a state over targets, threads, batches,
// splits after any row, and the digests of its cases.
#include <attn/autograd.h>
#include <attn/linear_attention.h>
#include <attn/runtime.h>

#include "attention/linear_attention_inputs.h"
#include "attention/recurrent/call.h"
#include "kernels/recurrent/target.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "support/errors.h"
#include "verify/compare.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace attn::testing {
namespace {

/// Every result of a call, forward and backward, by some kernels.
std::vector<Tensor> everything(const Given& in, const kernels::RecurrentKernels& kernels) {
  const RecurrentCall call = check_recurrent("test", in.q, in.k, in.v, in.options);
  const Tensor states = kept_states(call);
  const LinearAttentionResult r = run_recurrent(call, kernels, states);
  const LinearAttentionGradients g = run_recurrent_backward(
      call, kernels, states, normal(in.v.sizes(), 8, in.v.dtype()), normal(r.state.sizes(), 9, r.state.dtype()));
  std::vector<Tensor> all{r.output, r.state, states};
  for (const Tensor& x : {g.q, g.k, g.v, g.g, g.beta, g.initial_state})
    if (x.defined()) all.push_back(x);
  return all;
}
void expect_same(const std::vector<Tensor>& ours, const std::vector<Tensor>& expected, const std::string& what) {
  ASSERT_EQ(ours.size(), expected.size());
  for (std::size_t n = 0; n < ours.size(); ++n)
    EXPECT_TRUE(same_bits(ours[n], expected[n])) << what << ", result " << n;
}

TEST(LinearAttentionBits, EveryTargetAndThreadCountHasTheBitsOfTheSpecification) {
  const int before = num_threads();
  for (const Shape& s : shapes()) {
    const Given in = given(s);
    const std::vector<Tensor> expected = everything(in, kernels::recurrent_reference(*kernels::reference_generic()));
    if (kernels::reference_fma() != nullptr)
      expect_same(everything(in, kernels::recurrent_reference(*kernels::reference_fma())), expected, "fma");
    for (const std::string& name : runtime::targets())
      if (const auto* target = kernels::recurrent_target(name.c_str()); target != nullptr)
        expect_same(everything(in, *target), expected, name);
    for (const int threads : {1, 3, 16}) {
      set_num_threads(threads);
      expect_same(everything(in, kernels::recurrent_kernels()), expected, std::to_string(threads));
    }
    set_num_threads(before);
  }
}

/// Inputs of integers, the same on every machine.
Given fixed(const Shape& s) {
  const Dims keys{s.batch, s.k_heads, s.rows, s.dim}, rows{s.batch, s.v_heads, s.rows};
  Dims channels = rows;
  channels.push_back(s.dim);
  const auto make = [&](const Dims& sizes, std::uint64_t seed, double width) {
    return cases::integers(sizes, s.dtype, seed, width);
  };
  Given in{make(keys, 1, 1), make(keys, 2, 0.25), make({s.batch, s.v_heads, s.rows, s.value_dim}, 3, 1), {}};
  in.options.l2norm = s.l2norm;
  if (s.gate != Gate::none) in.options.g = make(s.gate == Gate::head ? rows : channels, 4, 0.5) - 0.5;
  if (s.delta) in.options.beta = make(rows, 5, 0.5) + 0.5;
  if (s.state) in.options.initial_state = make({s.batch, s.v_heads, s.dim, s.value_dim}, 6, 1);
  return in;
}

struct FixedCase {
  Shape shape;
  const char* digest;
};
const FixedCase fixed_cases[] = {
#include "cases/recurrent.inc"
};

TEST(LinearAttentionBits, CasesHaveTheDigestsOfTheirTable) {
  for (const FixedCase& c : fixed_cases) {
    const Given in = fixed(c.shape);
    const RecurrentCall call = check_recurrent("test", in.q, in.k, in.v, in.options);
    const Tensor states = kept_states(call);
    const LinearAttentionResult r = run_recurrent(call, kernels::recurrent_kernels(), states);
    const LinearAttentionGradients g = run_recurrent_backward(call, kernels::recurrent_kernels(), states,
                                                              cases::integers(in.v.sizes(), c.shape.dtype, 7, 1),
                                                              cases::integers(r.state.sizes(), c.shape.dtype, 8, 1));
    cases::Results results{{"output", r.output}, {"state", r.state}, {"states", states}};
    for (const Tensor& x : {g.q, g.k, g.v, g.g, g.beta, g.initial_state})
      if (x.defined()) results.push_back({"gradient", x});
    cases::Digest digest;
    digest.add(results);
    EXPECT_EQ(digest.text(), c.digest) << &c - fixed_cases;
  }
}

TEST(LinearAttentionBits, GoesOnFromAStateAfterAnyRow) {
  for (const Gate gate : {Gate::none, Gate::head, Gate::channel})
    for (const bool delta : {false, true}) {
      const Shape s{.batch = 2,
                    .k_heads = 1,
                    .v_heads = 2,
                    .rows = 70,
                    .dim = 20,
                    .value_dim = 33,
                    .gate = gate,
                    .delta = delta,
                    .l2norm = true};
      const Given in = given(s);
      const LinearAttentionResult whole = linear_attention(in.q, in.k, in.v, in.options);
      for (std::int64_t split = 0; split <= s.rows; ++split) {
        Given first = in.rows(0, split), second = in.rows(split, s.rows - split);
        const LinearAttentionResult one = linear_attention(first.q, first.k, first.v, first.options);
        second.options.initial_state = one.state;
        const LinearAttentionResult two = linear_attention(second.q, second.k, second.v, second.options);
        ASSERT_TRUE(same_bits(cat({one.output, two.output}, 2), whole.output)) << split;
        ASSERT_TRUE(same_bits(two.state, whole.state)) << split;
      }
      Tensor state;  // row by row: decode
      for (std::int64_t t = 0; t < s.rows; ++t) {
        Given row = in.rows(t, 1);
        row.options.initial_state = state;
        const LinearAttentionResult r = linear_attention(row.q, row.k, row.v, row.options);
        state = r.state;
        ASSERT_TRUE(same_bits(r.output, whole.output.narrow(2, t, 1))) << t;
      }
      ASSERT_TRUE(same_bits(state, whole.state));
    }
}

TEST(LinearAttentionBits, BatchPaddingPackingAndLayoutChangeNoBit) {
  const Shape s{.batch = 3,
                .k_heads = 2,
                .v_heads = 4,
                .rows = 80,
                .dim = 16,
                .value_dim = 24,
                .gate = Gate::head,
                .delta = true,
                .state = true};
  const Given in = given(s);
  Given padded = in;
  const std::vector<std::int64_t> lengths{80, 13, 0};
  padded.options.lengths = tensor(lengths);
  const auto run = [](const Given& x) { return everything(x, kernels::recurrent_kernels()); };
  const std::vector<Tensor> batch = run(in), ends = run(padded);
  std::vector<Tensor> packed[6];
  std::vector<std::int64_t> starts{0};
  for (std::int64_t b = 0; b < s.batch; ++b) {
    const Given alone = in.item(b);
    const LinearAttentionResult one = linear_attention(alone.q, alone.k, alone.v, alone.options);
    EXPECT_TRUE(same_bits(batch[0].narrow(0, b, 1), one.output));
    EXPECT_TRUE(same_bits(batch[1].narrow(0, b, 1), one.state));
    const std::int64_t rows = lengths[static_cast<std::size_t>(b)];
    const Given cut = alone.rows(0, rows);
    const LinearAttentionResult part = linear_attention(cut.q, cut.k, cut.v, cut.options);
    EXPECT_TRUE(same_bits(ends[0].narrow(0, b, 1).narrow(2, 0, rows), part.output));
    EXPECT_TRUE(same_bits(ends[1].narrow(0, b, 1), part.state));
    const Tensor behind = ends[0].narrow(0, b, 1).narrow(2, rows, s.rows - rows);
    EXPECT_TRUE(same_bits(behind, zeros(behind.sizes())));
    for (std::size_t n = 0; n < 6; ++n) {
      const Tensor* const all[] = {
          &cut.q, &cut.k, &cut.v, &cut.options.g, &cut.options.beta, &cut.options.initial_state};
      packed[n].push_back(*all[n]);
    }
    starts.push_back(starts.back() + rows);
  }
  Given joined{cat(packed[0], 2), cat(packed[1], 2), cat(packed[2], 2), {}};
  joined.options.g = cat(packed[3], 2);
  joined.options.beta = cat(packed[4], 2);
  joined.options.initial_state = cat(packed[5], 0);
  joined.options.cu_seqlens = tensor(starts);
  const LinearAttentionResult together = linear_attention(joined.q, joined.k, joined.v, joined.options);
  EXPECT_TRUE(same_bits(together.state, ends[1]));
  for (std::size_t b = 0; b < 3; ++b)
    EXPECT_TRUE(same_bits(together.output.narrow(2, starts[b], lengths[b]),
                          ends[0].narrow(0, static_cast<std::int64_t>(b), 1).narrow(2, 0, lengths[b])));
  Given transposed = in;
  for (Tensor* x : {&transposed.q, &transposed.k, &transposed.v, &transposed.options.g, &transposed.options.beta})
    *x = x->transpose(1, 2).clone().transpose(1, 2);
  expect_same(run(transposed), batch, "transposed");
  EXPECT_TRUE(linear_attention(transposed.q, transposed.k, transposed.v, transposed.options)
                  .output.transpose(1, 2)
                  .is_contiguous());
}

}  // namespace
}  // namespace attn::testing
