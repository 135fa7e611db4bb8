// tests/attention/guard_test.cc: nothing beyond the end of an input or output is touched: each ends where the readable
// memory ends.
#include <attn/attention.h>
#include <attn/ops.h>
#include <attn/plain.h>

#include "support/guarded.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <vector>

namespace attn::testing {
namespace {

struct Sizes {
  std::int64_t heads, k_heads, rows, keys, dim, width;
};
constexpr Sizes all_sizes[] = {{1, 1, 1, 1, 1, 1},     {2, 1, 3, 7, 5, 3},     {3, 3, 17, 33, 9, 31},
                               {4, 2, 65, 67, 17, 19}, {2, 2, 5, 1030, 33, 7}, {2, 2, 64, 64, 64, 64}};

Tensor odd_mask(std::int64_t rows, std::int64_t keys) {
  Tensor mask = empty({rows, keys}, Dtype::boolean);
  for (std::int64_t n = 0; n < mask.numel(); ++n) mask.data<bool>()[n] = n % 3 != 1;
  return mask;
}

class Guard : public ::testing::TestWithParam<Dtype> {};

TEST_P(Guard, TensorEntry) {
  for (const Sizes& s : all_sizes) {
    SCOPED_TRACE(::testing::Message() << s.rows << " x " << s.keys << " x " << s.dim);
    const Dtype dtype = GetParam(), computed = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    const Tensor q = cases::integers({1, s.heads, s.rows, s.dim}, dtype, 1),
                 k = cases::integers({1, s.k_heads, s.keys, s.dim}, dtype, 2);
    const Tensor v = cases::integers({1, s.k_heads, s.keys, s.width}, dtype, 3),
                 bias = cases::integers({s.heads, s.rows, s.keys}, computed, 4);
    const Tensor sinks = cases::integers({s.heads}, computed, 5), mask = odd_mask(s.rows, s.keys);
    const auto run = [&](auto&& place, const Tensor& out) {
      std::vector<Tensor> results;
      const AttentionOptions options[] = {{},
                                          {.mask = Mask::attend(place(mask))},
                                          {.bias = Bias::dense(place(bias))},
                                          {.mask = Mask::causal(Align::bottom_right), .sinks = place(sinks)}};
      for (AttentionOptions option : options) {
        option.out = out;
        const AttentionResult r = attention(place(q), place(k), place(v), option);
        results.push_back(r.output.clone());
        results.push_back(r.logsumexp);
      }
      return results;
    };
    const auto plain = run([](const Tensor& x) { return x; }, {});
    const auto ends = run([](const Tensor& x) { return guarded(x); }, guarded({1, s.heads, s.rows, s.width}, dtype));
    for (std::size_t n = 0; n < plain.size(); ++n) EXPECT_TRUE(same_bits(plain[n], ends[n])) << n;
  }
}

TEST_P(Guard, PlainEntry) {
  for (const Sizes& s : all_sizes) {
    const Dtype dtype = GetParam(), computed = dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
    const Tensor q = guarded(cases::integers({1, s.heads, s.rows, s.dim}, dtype, 1)),
                 k = guarded(cases::integers({1, s.k_heads, s.keys, s.dim}, dtype, 2));
    const Tensor v = guarded(cases::integers({1, s.k_heads, s.keys, s.width}, dtype, 3)),
                 mask = guarded(odd_mask(s.rows, s.keys));
    const Tensor output = guarded({1, s.heads, s.rows, s.width}, dtype),
                 logsumexp = guarded({1, s.heads, s.rows}, computed);
    plain::Attention call;
    call.q_heads = s.heads;
    call.k_heads = call.v_heads = s.k_heads;
    call.q_rows = s.rows;
    call.k_rows = s.keys;
    call.dim = s.dim;
    call.value_dim = s.width;
    call.element = dtype == Dtype::f64    ? plain::Element::f64
                   : dtype == Dtype::bf16 ? plain::Element::bf16
                                          : plain::Element::f32;
    call.q = q.data();
    call.k = k.data();
    call.v = v.data();
    call.output = output.data();
    call.logsumexp = logsumexp.data();
    call.mask = static_cast<const std::uint8_t*>(mask.data());
    call.mask_strides = {.batch = 0, .head = 0, .row = s.keys, .key = 1};
    const std::size_t bytes = plain::workspace_bytes(call);
    const Tensor workspace = guarded({static_cast<std::int64_t>(bytes)}, Dtype::boolean);
    ASSERT_EQ(plain::attention(call, workspace.data(), bytes), plain::Status::ok);
    const AttentionResult expected = attention(q, k, v, {.mask = Mask::attend(mask)});
    EXPECT_TRUE(same_bits(output, expected.output));
    EXPECT_TRUE(same_bits(logsumexp, expected.logsumexp));
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, Guard, ::testing::Values(Dtype::f32, Dtype::f64, Dtype::bf16),
                         [](const auto& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace attn::testing
