// tests/attention/half_bias_test.cc: biases of 16 bits are widened, not the call: the bits of the same bias in f32, on
// the same kernel.
#include <attn/autograd.h>
#include <attn/cache.h>

#include "attention/every_option.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

constexpr std::int64_t batch = 2, heads = 4, dim = 24;
const Dtype halves[] = {Dtype::bf16, Dtype::f16};

struct Form {
  const char* name;
  std::function<Tensor(std::int64_t rows, std::int64_t keys)> values;  // in f32, numbers that bf16 and f16 hold
  std::function<Bias(const Tensor& values)> bias = [](const Tensor& x) { return Bias::dense(x); };
};

Tensor numbers(const Dims& sizes) { return exact(sizes, Dtype::f32, 8); }

std::vector<Form> forms() {
  return {
      {"pairs", [](auto rows, auto keys) { return numbers({rows, keys}); }},
      {"pairs of each head", [](auto rows, auto keys) { return numbers({heads, rows, keys}); }},
      {"pairs of each item", [](auto rows, auto keys) { return numbers({batch, 1, rows, keys}); }},
      {"all", [](auto rows, auto keys) { return numbers({batch, heads, rows, keys}); }},
      {"keys, some hidden",
       [](auto, auto keys) {
         const Tensor x = numbers({batch, 1, 1, keys});
         x.narrow(3, keys / 2, keys / 4).fill_(-INFINITY);
         return x;
       }},
      {"keys of each head", [](auto, auto keys) { return numbers({heads, 1, keys}); }},
      {"rows", [](auto rows, auto) { return numbers({1, heads, rows, 1}); }},
      {"one number", [](auto, auto) { return numbers({1}); }},
      {"pairs, hidden here and there",
       [](auto rows, auto keys) {
         const Tensor x = numbers({rows, keys});
         for (std::int64_t n = 0; n < x.numel(); n += 7) x.data<float>()[n] = -INFINITY;
         return x;
       }},
      {"ALiBi", [](auto, auto) { return numbers({heads}); },
       [](const Tensor& x) { return Bias::alibi(x, Align::bottom_right); }},
      {"relative", [](auto, auto) { return numbers({8, heads}); },
       [](const Tensor& x) { return Bias::relative(x, true, 20, Align::bottom_right); }},
      {"two", [](auto rows, auto keys) { return numbers({rows, keys}); },
       [](const Tensor& x) { return Bias::dense(x) + Bias::dense(x.narrow(0, 0, 1)); }},
  };
}

/// The same numbers as neighbours, with gaps, or with rows and keys changed in memory.
std::vector<Tensor> layouts(const Tensor& x) {
  std::vector<Tensor> all{x};
  if (x.dim() < 2) return all;
  all.push_back(x.transpose(-1, -2).contiguous().transpose(-1, -2));
  all.push_back(cat({x, x}, -1).narrow(-1, 0, x.size(-1)));
  return all;
}

struct Rows {
  Tensor q, k, v, dy;
  Rows(Dtype dtype, std::int64_t rows, std::int64_t keys)
      : q(exact({batch, heads, rows, dim}, dtype, 1)), k(exact({batch, 2, keys, dim}, dtype, 2)),
        v(exact({batch, 2, keys, dim}, dtype, 3)), dy(exact({batch, heads, rows, dim}, dtype, 4)) {}
};

TEST(HalfBias, HasTheBitsAndTheKernelOfTheSameBiasInF32) {
  for (const Dtype dtype : halves)
    for (const Dtype of_bias : halves)
      for (const auto& [rows, keys] : {std::pair<std::int64_t, std::int64_t>{70, 150}, {1, 1100}, {5, 37}})
        for (const Form& form : forms())
          for (const Tensor& values : layouts(form.values(rows, keys).to(of_bias))) {
            SCOPED_TRACE(::testing::Message()
                         << form.name << " " << to_string(values.strides()) << " " << name_of(of_bias) << ", q "
                         << name_of(dtype) << " " << rows << " x " << keys);
            const Rows in(dtype, rows, keys);
            for (const bool around : {false, true}) {
              AttentionOptions half{.bias = form.bias(values)}, wide{.bias = form.bias(values.to(Dtype::f32))};
              for (AttentionOptions* options : {&half, &wide}) {
                options->weights = Weights::full;
                if (!around) continue;
                options->mask = Mask::causal(Align::bottom_right);
                options->score_mod = ScoreExpression::parse("2.0 * tanh(s / 2.0)");
                options->softcap = 3;
                options->temperature = 2;
                options->sinks = numbers({heads});
              }
              const AttentionResult ours = attention(in.q, in.k, in.v, half),
                                    expected = attention(in.q, in.k, in.v, wide);
              EXPECT_EQ(ours.plan.kernel(), expected.plan.kernel());
              EXPECT_TRUE(bits_equal(ours.output, expected.output));
              EXPECT_TRUE(bits_equal(ours.logsumexp, expected.logsumexp));
              EXPECT_TRUE(bits_equal(ours.weights, expected.weights));
            }
          }
}

TEST(HalfBias, HasTheGradientsOfTheSameBiasInF32) {
  for (const Dtype dtype : halves)
    for (const Dtype of_bias : halves)
      for (const auto& [rows, keys] : {std::pair<std::int64_t, std::int64_t>{70, 150}, {1, 1100}, {5, 37}})
        for (const Form& form : forms()) {
          SCOPED_TRACE(::testing::Message() << form.name << " " << name_of(of_bias) << ", q " << name_of(dtype) << " "
                                            << rows << " x " << keys);
          const auto run = [&](Dtype read) {
            const Rows in(dtype, rows, keys);
            std::vector<Tensor> leaves{in.q, in.k, in.v, form.values(rows, keys).to(read)};
            for (Tensor& leaf : leaves) leaf.requires_grad_();
            attention(leaves[0], leaves[1], leaves[2], {.bias = form.bias(leaves[3])}).output.backward(in.dy);
            for (Tensor& leaf : leaves) leaf = leaf.grad();
            return leaves;
          };
          const std::vector<Tensor> ours = run(of_bias), expected = run(Dtype::f32);
          for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(bits_equal(ours[n], expected[n])) << n;
          EXPECT_EQ(ours[3].dtype(), of_bias);
          if (std::string(form.name) == "two") continue;  // each is rounded before they are added
          EXPECT_TRUE(bits_equal(add(ours[3], 0), add(expected[3].to(of_bias), 0)));  // + 0: what rounds to -0 is 0
        }
}

TEST(HalfBias, OfZerosChangesNoBit) {
  for (const Dtype dtype : halves)
    for (const Dtype of_bias : halves)
      for (const std::int64_t rows : {1, 70}) {
        const Rows in(dtype, rows, 150);
        const AttentionResult none = attention(in.q, in.k, in.v);
        const Tensor zero = zeros({batch, heads, rows, 150}, of_bias);
        for (const Tensor& values : {zero, zero.narrow(1, 0, 1), zero.narrow(2, 0, 1), zero.narrow(3, 0, 1)}) {
          const AttentionResult ours = attention(in.q, in.k, in.v, {.bias = Bias::dense(values)});
          EXPECT_EQ(ours.plan.kernel(), none.plan.kernel());
          EXPECT_TRUE(bits_equal(ours.output, none.output)) << to_string(values.sizes());
        }
        EXPECT_TRUE(bits_equal(scaled_dot_product_attention(
                                   in.q, in.k, in.v, {.attn_mask = zeros({rows, 150}, dtype), .enable_gqa = true}),
                               scaled_dot_product_attention(in.q, in.k, in.v, {.enable_gqa = true})));
      }
}

TEST(HalfBias, OverCaches) {
  constexpr std::int64_t keys = 1100;
  for (const Dtype dtype : halves)
    for (const KvStorage storage : {KvStorage::same, KvStorage::int8})
      for (const std::int64_t page : {16, 0})
        for (const std::int64_t rows : {1, 3, 30}) {
          SCOPED_TRACE(::testing::Message() << name_of(dtype) << (storage == KvStorage::int8 ? " int8" : "") << " page "
                                            << page << " rows " << rows);
          KvCache cache({.key_heads = 2,
                         .head_dim = dim,
                         .page_rows = page,
                         .pages = page == 0 ? 1 : (keys + page - 1) / page,
                         .dtype = dtype,
                         .storage = storage});
          const KvSequence s = cache.create();
          cache.append(s, exact({2, keys, dim}, dtype, 2), exact({2, keys, dim}, dtype, 3));
          const Tensor q = exact({1, heads, rows, dim}, dtype, 1);
          for (const Tensor& bias : {numbers({heads, rows, keys}), numbers({1, keys})}) {
            const AttentionResult ours = attention_cached(q, cache, {s}, {.bias = Bias::dense(bias.to(Dtype::bf16))}),
                                  expected = attention_cached(q, cache, {s}, {.bias = Bias::dense(bias)});
            EXPECT_EQ(ours.plan.kernel(), expected.plan.kernel());
            EXPECT_TRUE(bits_equal(ours.output, expected.output));
          }
        }
}

TEST(HalfBias, ThatIsChangedBeforeTheBackwardPassIsAnError) {
  const Rows in(Dtype::bf16, 5, 9);
  for (const Form& form : forms()) {
    const Tensor q = in.q.clone().requires_grad_(), values = form.values(5, 9).to(Dtype::bf16);
    const Tensor y = attention(q, in.k, in.v, {.bias = form.bias(values)}).output;
    values.fill_(1);
    EXPECT_NE(error_of<ValueError>([&] { y.backward(in.dy); }).find("changed in place"), std::string::npos)
        << form.name;
  }
}

TEST(HalfBias, OtherDtypesAreNamed) {
  const Rows in(Dtype::bf16, 5, 9);
  EXPECT_EQ(
      error_of<DtypeError>([&] { attention(in.q, in.k, in.v, {.bias = Bias::dense(zeros({5, 9}, Dtype::f64))}); }),
      "attention: a bias is f64; it must be f32, bf16 or f16");
}

}  // namespace
}  // namespace attn::testing
