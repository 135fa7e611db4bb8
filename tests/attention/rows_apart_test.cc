// tests/attention/rows_apart_test.cc: rows that stand far apart in memory, as [B, T, H, D] has them, are copied by
// tasks of many strips: the same bits as side by side.
#include <attn/autograd.h>
#include <attn/runtime.h>

#include "attention/calls.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

constexpr std::int64_t apart_bytes = 8192;

/// The same numbers in rows 8 KB apart, what lies between them NaN.
Tensor apart(const Tensor& x) {
  const std::int64_t columns = x.size(3),
                     heads = apart_bytes / (static_cast<std::int64_t>(size_of(x.dtype())) * columns);
  const std::int64_t width = apart_bytes / static_cast<std::int64_t>(size_of(x.dtype()));
  EXPECT_LE(x.size(1), heads);
  const Tensor memory = full({x.size(0), x.size(2), width}, std::numeric_limits<double>::quiet_NaN(), x.dtype());
  const Tensor rows =
      memory.narrow(2, 0, x.size(1) * columns).reshape({x.size(0), x.size(2), x.size(1), columns}).transpose(1, 2);
  rows.copy_(x);
  EXPECT_EQ(rows.stride(2) * static_cast<std::int64_t>(size_of(x.dtype())), apart_bytes);
  return rows;
}
Inputs apart(const Inputs& in) { return {apart(in.q), apart(in.k), apart(in.v)}; }

/// One thread, so that few heads are tasks enough to have many strips each.
class RowsApart : public ::testing::TestWithParam<Dtype> {
 protected:
  void SetUp() override { set_num_threads(1); }
  void TearDown() override { set_num_threads(threads_); }

 private:
  const int threads_ = num_threads();
};

TEST_P(RowsApart, ChangeNoBit) {
  const std::int64_t rows = 257, keys = 330;  // the last strip has one row
  const AttentionOptions options[] = {
      {},
      {.mask = Mask::causal(Align::bottom_right)},
      {.mask = Mask::window(70, 5, Align::bottom_right), .sinks = normal({12}, 5)},
      {.mask = Mask::attend(gt(normal({rows, keys}, 9), 0))},
      {.mask = Mask::causal(Align::bottom_right), .key_lengths = integers({150, 320}), .key_start = integers({3, 60})},
      {.bias = Bias::alibi(Bias::alibi_slopes(12), Align::bottom_right), .softcap = 3},
      {.dropout_p = 0.3, .dropout_seed = 7},
  };
  for (const std::int64_t dim : {16, 33})
    for (std::size_t n = 0; n < std::size(options); ++n) {
      const Inputs in = inputs({2, 12, rows, dim}, {2, 4, keys, dim}, 40, GetParam());
      EXPECT_TRUE(bits_equal(run(apart(in), options[n]), run(in, options[n])))
          << name_of(GetParam()) << " " << dim << " " << n;
    }
}

TEST_P(RowsApart, MoreThanCopiesAreKeptOfChangeNoBit) {
  const std::int64_t dim = 224;
  const Inputs in = inputs({1, 4, 520, dim}, {1, 4, 1400, dim}, dim, GetParam());
  EXPECT_TRUE(bits_equal(run(apart(in), {.mask = Mask::causal(Align::bottom_right)}),
                         run(in, {.mask = Mask::causal(Align::bottom_right)})));
}

/// Of keys beyond those that stay, against calls of so few rows that nothing stays.
TEST_P(RowsApart, StripsOfATaskAgreeWithStripsAlone) {
  const std::int64_t rows = 260, keys = 17000;
  for (const std::int64_t dim : {5, 6}) {
    const Inputs in = inputs({1, 3, rows, dim}, {1, 3, keys, dim}, 4, GetParam());
    const Inputs far = apart(in);
    for (const Inputs* of : {&in, &far}) {
      const Tensor all =
          run({of->q.repeat({4, 1, 1, 1}), of->k.expand({4, -1, -1, -1}), of->v.expand({4, -1, -1, -1})}, {});
      for (std::int64_t row = 0; row < rows; row += 32) {
        const std::int64_t count = std::min<std::int64_t>(32, rows - row);
        EXPECT_TRUE(
            bits_equal(all.narrow(0, 3, 1).narrow(2, row, count), run({in.q.narrow(2, row, count), in.k, in.v}, {})))
            << dim << " " << row;
      }
    }
  }
}

TEST_P(RowsApart, HiddenNanIsSilent) {
  Inputs in = inputs({1, 12, 300, 24}, {1, 12, 300, 24}, 24, GetParam());
  const AttentionOptions options{.mask = Mask::causal(), .key_lengths = integers({270})};
  const Tensor expected = run(in, options);
  for (const Tensor& x : {in.k, in.v}) x.narrow(2, 270, 30).fill_(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(bits_equal(run(apart(in), options), expected));
}

TEST_P(RowsApart, PackedSequencesChangeNoBit) {
  const Tensor ends = integers({0, 300, 310, 700, 1000});
  const AttentionOptions options{.mask = Mask::causal(), .cu_seqlens_q = ends, .cu_seqlens_k = ends};
  const Inputs in = inputs({1, 6, 1000, 32}, {1, 6, 1000, 32}, 32, GetParam());
  EXPECT_TRUE(bits_equal(run(apart(in), options), run(in, options)));
}

/// K and V are copied for all steps of their head, again after a number that is not finite.
TEST_P(RowsApart, GradientsChangeNoBit) {
  const AttentionOptions options[] = {
      {},
      {.mask = Mask::causal(Align::bottom_right), .dropout_p = 0.3, .dropout_seed = 7},
      {.mask = Mask::causal(Align::bottom_right), .key_lengths = integers({150, 320}), .key_start = integers({3, 60})},
      {.bias = Bias::alibi(Bias::alibi_slopes(6), Align::bottom_right), .softcap = 3},
  };
  for (const std::int64_t heads : {2, 6})
    for (const double hidden : {0.0, std::numeric_limits<double>::quiet_NaN()})
      for (std::size_t n = 0; n < std::size(options); ++n) {
        const Inputs in = inputs({2, 6, 257, 24}, {2, heads, 330, 24}, 40, GetParam());
        if (n == 2)
          for (const Tensor& x : {in.k, in.v}) x.narrow(2, 320, 10).fill_(hidden);
        const Tensor dy = normal({2, 6, 257, 40}, 5, GetParam());
        const auto gradients = [&](const Inputs& of) {
          std::vector<Tensor> leaves;
          for (const Tensor& x : {of.q, of.k, of.v}) leaves.push_back(x.detach().requires_grad_());
          attention(leaves[0], leaves[1], leaves[2], options[n]).output.backward(dy);
          for (Tensor& x : leaves) x = x.grad().contiguous();
          return leaves;
        };
        const std::vector<Tensor> expected = gradients(in), ours = gradients(apart(in));
        for (std::size_t i = 0; i < ours.size(); ++i)
          EXPECT_TRUE(bits_equal(ours[i], expected[i])) << heads << " " << hidden << " " << n << " " << "qkv"[i];
      }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, RowsApart, ::testing::Values(Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16),
                         [](const ::testing::TestParamInfo<Dtype>& info) { return std::string(name_of(info.param)); });

}  // namespace
}  // namespace attn::testing
