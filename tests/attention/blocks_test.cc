// tests/attention/blocks_test.cc: masks that choose blocks of keys by index: the bits of the same mask as a matrix, on
// every target; caches, packed sequences; what the indices may be.
#include <attn/attention_jvp.h>
#include <attn/autograd.h>
#include <attn/cache.h>
#include <attn/latent_attention.h>

#include "attention/own_cases.h"
#include "attention/truth.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <random>

namespace attn::testing {
namespace {

const OwnCase own_cases[] = {
#include "cases/blocks.inc"
};

TEST(Blocks, CasesHaveTheDigestsOfTheirTableOnEveryTarget) { expect_digests(own_cases); }

Tensor random_lists(std::mt19937_64& random, const Dims& sizes, std::int64_t blocks) {
  Tensor indices = empty(sizes, Dtype::i64);
  for (std::int64_t n = 0; n < indices.numel(); ++n)
    indices.data<std::int64_t>()[n] = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(blocks + 1)) - 1;
  return indices;
}

/// Output and the gradients of q, k and v.
std::vector<Tensor> results(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  std::vector<Tensor> inputs{q, k, v};
  for (Tensor& x : inputs) x = x.detach().requires_grad_();
  const AttentionResult r = attention(inputs[0], inputs[1], inputs[2], options);
  std::vector<Tensor> all{r.output.detach(), r.logsumexp.detach()};
  for (const Tensor& g : grad({r.output}, inputs, {.grad_outputs = {normal(r.output.sizes(), 9, q.dtype())}}))
    all.push_back(g);
  return all;
}

TEST(Blocks, HaveTheBitsOfTheirMatrixForwardAndBackward) {
  std::mt19937_64 random(3);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const auto& [rows, keys, q_block, k_block, n] : {std::array<std::int64_t, 5>{200, 200, 64, 64, 2},
                                                          {70, 333, 16, 32, 3},
                                                          {130, 130, 1, 1, 9},
                                                          {100, 1100, 128, 16, 11},
                                                          {5, 90, 1, 8, 4},
                                                          {66, 40, 3, 100, 1}})
      for (const std::int64_t heads : {1, 2, 4}) {
        SCOPED_TRACE(::testing::Message() << name_of(dtype) << " " << rows << " x " << keys << " in " << q_block
                                          << " x " << k_block << ", " << heads << " heads of lists");
        const Mask mask = Mask::blocks(
            random_lists(random, {2, heads, (rows + q_block - 1) / q_block, n}, (keys + k_block - 1) / k_block),
            q_block, k_block);
        const Tensor q = normal({2, 4, rows, 24}, 1, dtype), k = normal({2, 2, keys, 24}, 2, dtype),
                     v = normal({2, 2, keys, 10}, 3, dtype);
        for (const Mask& more : {Mask(), Mask::causal(Align::bottom_right), ~Mask::window(9, 3, Align::top_left)}) {
          const Mask whole = mask & more;
          const std::vector<Tensor> ours = results(q, k, v, {.mask = whole}),
                                    dense = results(q, k, v, {.mask = Mask::attend(whole.dense(2, 4, rows, keys))});
          for (std::size_t x = 0; x < ours.size(); ++x) EXPECT_TRUE(bits_equal(ours[x], dense[x])) << x;
        }
      }
}

TEST(Blocks, OrderRepeatsAndNoneChangeNothing) {
  const Tensor q = normal({1, 2, 6, 8}, 1);
  const auto run = [&](const std::vector<std::int64_t>& list, Dtype dtype = Dtype::i64) {
    const auto n = static_cast<std::int64_t>(list.size());
    const Tensor lists = tensor<std::int64_t>(list, {1, 1, 1, n}).to(dtype);
    return attention(q, q, q, {.mask = Mask::blocks(lists.expand({1, 1, 3, n}), 2)}).output;
  };
  EXPECT_TRUE(bits_equal(run({0, 2}), run({2, 0})));
  EXPECT_TRUE(bits_equal(run({0, 2}), run({-1, 2, 2, -1, 0, 2}, Dtype::i32)));
  EXPECT_TRUE(bits_equal(run({0, 1, 2}), attention(q, q, q).output));
  EXPECT_TRUE(bits_equal(run({-1}), zeros({1, 2, 6, 8})));
  EXPECT_TRUE(bits_equal(run({}), zeros({1, 2, 6, 8})));
}

TEST(Blocks, AreCopiedFromTheirIndices) {
  Tensor indices = zeros({1, 1, 2, 1}, Dtype::i64);
  const Mask mask = Mask::blocks(indices, 2);
  const Tensor before = mask.dense(1, 1, 4, 4);
  indices.fill_(1);
  EXPECT_TRUE(bits_equal(mask.dense(1, 1, 4, 4), before));
}

/// A cache, row by row and some rows at a time, against the keys in one tensor.
TEST(Blocks, ChooseKeysOfACache) {
  constexpr std::int64_t length = 300;
  std::mt19937_64 random(4);
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const Tensor k = normal({2, length, 8}, 1, dtype), v = normal({2, length, 8}, 2, dtype);
    KvCache cache({.key_heads = 2, .head_dim = 8, .page_rows = 16, .pages = 40, .dtype = dtype});
    const KvSequence s = cache.create();
    cache.append(s, k, v);
    for (const std::int64_t rows : {1, 3, 20}) {
      const Tensor q = normal({1, 4, rows, 8}, 3, dtype);
      const AttentionOptions options{.mask = Mask::blocks(random_lists(random, {1, 2, rows, 4}, 19), 1, 16) &
                                             Mask::causal(Align::bottom_right)};
      EXPECT_TRUE(bits_equal(attention_cached(q, cache, {s}, options).output,
                             attention(q, k.unsqueeze(0), v.unsqueeze(0), options).output))
          << rows;
    }
  }
}

TEST(Blocks, InForwardModeAndLatentAttention) {
  std::mt19937_64 random(7);
  const Mask mask = Mask::causal() & Mask::blocks(random_lists(random, {2, 2, 9, 3}, 9), 8);
  const Mask dense = Mask::attend(mask.dense(2, 4, 70, 70));
  const Tensor q = normal({2, 4, 70, 24}, 1), k = normal({2, 2, 70, 24}, 2), v = normal({2, 2, 70, 10}, 3);
  const AttentionTangents along{
      .q = normal({2, 4, 70, 24}, 4), .k = normal({2, 2, 70, 24}, 5), .v = normal({2, 2, 70, 10}, 6)};
  const AttentionJvp ours = attention_jvp(q, k, v, along, {.mask = mask}),
                     theirs = attention_jvp(q, k, v, along, {.mask = dense});
  EXPECT_TRUE(bits_equal(ours.output, theirs.output));
  EXPECT_TRUE(bits_equal(ours.tangent.output, theirs.tangent.output));
  EXPECT_TRUE(bits_equal(ours.tangent.logsumexp, theirs.tangent.logsumexp));
  const LatentOperands latent{.q_nope = normal({2, 4, 70, 8}, 7),
                              .q_rope = normal({2, 4, 70, 4}, 8),
                              .latent = normal({2, 70, 12}, 9),
                              .k_rope = normal({2, 70, 4}, 10),
                              .w_uk = normal({4, 8, 12}, 11),
                              .w_uv = normal({4, 6, 12}, 12)};
  for (const LatentForm form : {LatentForm::expanded, LatentForm::absorbed})
    EXPECT_TRUE(bits_equal(latent_attention(latent, {.mask = mask}, form).output,
                           latent_attention(latent, {.mask = dense}, form).output));
}

/// The blocks of packed sequences and documents are those of the whole call, as a dense mask is.
TEST(Blocks, OfPackedSequencesAndDocumentsCountInTheWholeCall) {
  std::mt19937_64 random(5);
  const Tensor q = normal({100, 2, 8}, 1), ends = integers({0, 30, 41, 100});
  const Mask blocks = Mask::blocks(random_lists(random, {1, 2, 25, 9}, 25), 4);
  const AttentionOptions packed{.mask = blocks, .cu_seqlens_q = ends},
      dense{.mask = Mask::attend(blocks.dense(1, 2, 100, 100)), .cu_seqlens_q = ends};
  EXPECT_TRUE(bits_equal(attention(q, q, q, packed).output, attention(q, q, q, dense).output));
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < 100; ++i) ids.push_back(i < 30 ? 0 : i < 41 ? 1 : 2);
  const Tensor x = q.transpose(0, 1).unsqueeze(0);
  const Mask documents = Mask::documents(integers(ids));
  EXPECT_TRUE(bits_equal(
      attention(x, x, x, {.mask = documents & blocks & Mask::causal()}).output,
      attention(x, x, x, {.mask = documents & Mask::attend(blocks.dense(1, 2, 100, 100)) & Mask::causal()}).output));
}

TEST(Blocks, TextPictureAndErrors) {
  const Tensor indices = tensor<std::int64_t>({0, -1, 1, 0, 2, 2}, {1, 1, 3, 2});
  const Mask mask = Mask::blocks(indices, 2);
  EXPECT_EQ(mask.to_string(), "blocks(i64 [1, 1, 3, 2], 2, 2)");
  EXPECT_EQ(mask.print(6, 6),
            "■ ■ · · · ·\n■ ■ · · · ·\n"
            "■ ■ ■ ■ · ·\n■ ■ ■ ■ · ·\n"
            "· · · · ■ ■\n· · · · ■ ■\n");
  const Mask halves = Mask::blocks(zeros({1, 2, 3, 1}, Dtype::i64), 2),
             thirds = Mask::blocks(zeros({1, 3, 3, 1}, Dtype::i64), 2);
  EXPECT_EQ((halves | thirds).print(6, 6), (thirds | halves).print(6, 6));  // 6 heads have both
  EXPECT_EQ(error_of<DtypeError>([] { Mask::blocks(ones({1, 1, 1, 1}), 2); }),
            "Mask::blocks: the tensor is f32; it must be i64 or i32");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::blocks(zeros({3, 2}, Dtype::i64), 2); }),
            "Mask::blocks: indices have shape [3, 2]; they must be [B, H, Tq / block, n]");
  EXPECT_EQ(error_of<ValueError>([] { Mask::blocks(full({1, 1, 1, 1}, -2, Dtype::i64), 2); }),
            "Mask::blocks: indices hold -2; each must be at least 0, or -1 for none");
  EXPECT_EQ(error_of<ValueError>([&] { Mask::blocks(indices, 0); }),
            "Mask::blocks: blocks are of 0 rows and 0 keys; each must be from 1 to 2^40");
  EXPECT_EQ(error_of<ValueError>([&] { mask.dense(1, 1, 6, 4); }),
            "Mask::dense: the mask blocks holds the index 2; 4 keys are 2 blocks of 2");
  EXPECT_EQ(error_of<ShapeError>([&] { mask.dense(2, 3, 7, 8); }),
            "Mask::dense: the mask blocks has indices of shape [1, 1, 3, 2]; 7 rows in blocks of 2 need [1 or 2, H, 4, "
            "n], where H divides the 3 query heads");
  EXPECT_EQ(error_of<ShapeError>([] { Mask::blocks(zeros({1, 2, 1, 1}, Dtype::i64), 4).dense(1, 3, 4, 4); }),
            "Mask::dense: the mask blocks has indices of shape [1, 2, 1, 1]; 4 rows in blocks of 4 need [1 or 1, H, 1, "
            "n], where H divides the 3 query heads");
}

}  // namespace
}  // namespace attn::testing
