// tests/attention/relative_product_test.cc: relative products against their definition in kernels/ref, bit by bit, with
// every other option; gradients against differences.
#include <attn/attention.h>
#include <attn/autograd.h>

#include "attention/relative_product.h"
#include "attention/truth.h"
#include "support/golden.h"
#include "verify/compare.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

using Form = RelativeForm;
using Sizes = RelativeSizes;
using Operands = RelativeInputs;

template <typename T>
constexpr Dtype dtype_of = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;

/// Output, logsumexp, and gradients of q, k, v and the table, by products; and by the definition's matrix as a dense
/// bias, whose gradient the definition takes back.
template <typename T>
void expect_definition(const Sizes& z, const Form& form, AttentionOptions options, Align align = Align::unset) {
  SCOPED_TRACE(std::string(form.name) + (sizeof(T) == 8 ? " f64" : " f32"));
  Operands x = relative_inputs(z, form, dtype_of<T>);
  for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->requires_grad_();
  const double scale = form.scale.value_or(1 / std::sqrt(static_cast<double>(z.dim)));
  const RelativeDefinition<T> definition{x.table.detach(),
                                         (form.of_keys ? x.k : x.q).detach(),
                                         form.index,
                                         form.of_keys,
                                         scale,
                                         align == Align::bottom_right};
  const AttentionOptions before = options;
  options.bias = before.bias +
                 Bias::relative_product(x.table, form.index,
                                        {.operand = {}, .of_keys = form.of_keys, .scale = form.scale, .align = align});
  const AttentionResult ours = attention(x.q, x.k, x.v, options);
  ours.output.backward(x.dy);

  Operands other = relative_inputs(z, form, dtype_of<T>);
  for (Tensor* leaf : {&other.q, &other.k, &other.v}) leaf->requires_grad_();
  Tensor matrix = definition.matrix(z.heads, z.rows, z.keys).requires_grad_();
  AttentionOptions dense = before;
  dense.bias = before.bias + Bias::dense(matrix);
  const AttentionResult theirs = attention(other.q, other.k, other.v, dense);
  theirs.output.backward(x.dy);
  EXPECT_TRUE(bits_equal(ours.output.detach(), theirs.output.detach()));
  EXPECT_TRUE(bits_equal(ours.logsumexp.detach(), theirs.logsumexp.detach()));
  const auto [dx, dtable] = definition.gradients(matrix.grad());
  const Tensor dq = form.of_keys ? other.q.grad() : other.q.grad() + dx,
               dk = form.of_keys ? other.k.grad() + dx : other.k.grad();
  EXPECT_TRUE(bits_equal(x.q.grad(), dq)) << "q";
  EXPECT_TRUE(bits_equal(x.k.grad(), dk)) << "k";
  EXPECT_TRUE(bits_equal(x.v.grad(), other.v.grad())) << "v";
  EXPECT_TRUE(bits_equal(x.table.grad(), dtable)) << "table";
}

TEST(RelativeProduct, EveryFormHasTheBitsOfItsDefinition) {
  for (const Form& form : relative_forms(70)) {
    expect_definition<float>({}, form, {});
    expect_definition<double>({}, form, {});
    expect_definition<float>({.batch = 2, .heads = 4, .key_heads = 2}, form, {});
  }
}

TEST(RelativeProduct, RowsOfTheTableAreThoseOfTheLiterature) {
  const auto floor_div = [](std::int64_t a, std::int64_t b) { return a / b - (a % b != 0 && a < 0); };
  const std::tuple<RelativeIndex, std::function<std::int64_t(std::int64_t p, std::int64_t j)>> all[] = {
      {RelativeIndex::distance(9, 5), [](auto p, auto j) { return std::clamp<std::int64_t>(j - p, -9, 5) + 9; }},
      {RelativeIndex::distance(0, 0), [](auto, auto) { return 0; }},
      {RelativeIndex::distance(3, 0).reversed(),
       [](auto p, auto j) { return -std::clamp<std::int64_t>(j - p, -3, 0); }},
      {RelativeIndex::picture_rows(12, 7), [&](auto p, auto j) { return floor_div(p, 7) - floor_div(j, 7) + 11; }},
      {RelativeIndex::picture_columns(7).reversed(), [](auto p, auto j) { return 12 - (p % 7 - j % 7 + 6); }}};
  for (const auto& [index, row] : all) {
    // a table whose rows are their numbers, and operands of 1: the product is the number of the row
    const RelativeDefinition<double> definition{arange(0, index.rows(), 1, Dtype::f64).reshape({index.rows(), 1}),
                                                ones({1, 1, 84, 1}, Dtype::f64), index};
    const Tensor rows = definition.matrix(1, 84, 84);
    for (std::int64_t n = 0; n < 84 * 84; ++n)
      ASSERT_EQ(rows.data<double>()[n], static_cast<double>(row(n / 84, n % 84))) << index.to_string() << ' ' << n;
  }
}

TEST(RelativeProduct, BothBuildsOfTheDefinitionHaveTheSameBits) {
  const kernels::Reference* const fma = kernels::reference_fma();
  if (fma == nullptr) return;
  for (const Form& form : relative_forms(70)) {
    const Operands x = relative_inputs({.batch = 2, .heads = 4, .key_heads = 2}, form, Dtype::f32);
    const Tensor pairs = normal({2, 4, 70, 70}, 6);
    std::vector<Tensor> found[2];
    for (const kernels::Reference* build : {kernels::reference_generic(), fma}) {
      const RelativeDefinition<float> definition{
          x.table, form.of_keys ? x.k : x.q, form.index, form.of_keys, 0.3, false, *build};
      const auto [dx, dtable] = definition.gradients(pairs);
      found[build == fma] = {definition.matrix(4, 70, 70), dx, dtable};
    }
    for (std::size_t n = 0; n < 3; ++n) EXPECT_TRUE(bits_equal(found[0][n], found[1][n])) << form.name << ' ' << n;
  }
}

TEST(RelativeProduct, ManyKeysHaveSpans) {
  const Sizes z{.heads = 1, .key_heads = 1, .rows = 70, .keys = 1100};
  for (const Form& form : {Form{"distance", RelativeIndex::distance(1099, 3)},
                           Form{"buckets of keys", RelativeIndex::log_buckets(8, 600), true},
                           Form{"columns", RelativeIndex::picture_columns(33), false, true}})
    expect_definition<float>(z, form, {}, Align::bottom_right);
}

TEST(RelativeProduct, CombinesWithTheOtherOptions) {
  const std::int64_t rows = 70;
  const Tensor bias = normal({2, 1, 70}, 7), slopes = normal({2}, 8), sinks = normal({2}, 9);
  std::vector<std::pair<const char*, AttentionOptions>> all;
  all.emplace_back("causal", AttentionOptions{.mask = Mask::causal()});
  all.emplace_back("window", AttentionOptions{.mask = Mask::window(20, 3)});
  all.emplace_back("softcap and temperature", AttentionOptions{.softcap = 3, .temperature = 1.5});
  all.emplace_back("biases", AttentionOptions{.bias = Bias::dense(bias) + Bias::alibi(slopes, Align::top_left)});
  all.emplace_back("sinks", AttentionOptions{.sinks = sinks});
  all.emplace_back("dropout", AttentionOptions{.dropout_p = 0.25, .dropout_seed = 5});
  all.emplace_back("score_mod", AttentionOptions{.score_mod = ScoreExpression::parse("s * 0.5 + tanh(s)")});
  for (auto& [name, options] : all) {
    SCOPED_TRACE(name);
    for (const Form& form : relative_forms(rows)) expect_definition<float>({}, form, options);
  }
}

/// Transformer-XL's two products: content with u, position with v, which are operands of their own.
Tensor with_biases(const std::vector<Tensor>& x, bool of_keys = false) {
  const Tensor &q = x[0], &k = x[1], &v = x[2], &table = x[3], &of_content = x[4], &of_position = x[5];
  const RelativeProductOptions options{.operand = of_keys ? k * 2 : q + of_position, .of_keys = of_keys};
  return attention(
             q + of_content, k, v,
             {.mask = Mask::causal(), .bias = Bias::relative_product(table, RelativeIndex::distance(6, 6), options)})
      .output;
}

TEST(RelativeProduct, GradientsAgreeWithDifferences) {
  const auto leaf = [](const Dims& sizes, std::uint64_t seed) {
    return normal(sizes, seed, Dtype::f64).requires_grad_();
  };
  for (const bool of_keys : {false, true}) {
    const std::vector<Tensor> x{leaf({1, 2, 7, 3}, 1), leaf({1, 2, 7, 3}, 2), leaf({1, 2, 7, 2}, 3),
                                leaf({2, 13, 3}, 4),   leaf({2, 1, 3}, 5),    leaf({2, 1, 3}, 6)};
    EXPECT_EQ(
        check_gradients([&](const std::vector<Tensor>& in) { return with_biases(in, of_keys); }, x, {.second = true}),
        "");
  }
  for (const Form& form : relative_forms(7)) {
    const Dims sizes = form.one_table ? Dims{form.index.rows(), 3} : Dims{2, form.index.rows(), 3};
    const std::vector<Tensor> x{leaf({1, 2, 7, 3}, 1), leaf({1, 1, 7, 3}, 2), leaf({1, 1, 7, 2}, 3), leaf(sizes, 4)};
    EXPECT_EQ(check_gradients(
                  [&](const std::vector<Tensor>& in) {
                    return attention(in[0], in[1], in[2],
                                     {.bias = Bias::relative_product(in[3], form.index,
                                                                     {.of_keys = form.of_keys, .scale = form.scale})})
                        .output;
                  },
                  x, {.second = true}),
              "")
        << form.name;
  }
}

TEST(RelativeProduct, OperandsOfTheirOwnAreWhatTheyWouldBeOtherwise) {
  for (const Form& form : relative_forms(70)) {
    const Operands x = relative_inputs({.batch = 2, .heads = 4, .key_heads = 2}, form, Dtype::f32);
    const auto run = [&](const Tensor& operand) {
      return attention(x.q, x.k, x.v,
                       {.bias = Bias::relative_product(
                            x.table, form.index, {.operand = operand, .of_keys = form.of_keys, .scale = form.scale})})
          .output;
    };
    EXPECT_TRUE(bits_equal(run({}), run(form.of_keys ? x.k : x.q))) << form.name;
  }
}

TEST(RelativeProduct, HalvesAreComputedInF32AndRoundedOnce) {
  for (const Dtype half : {Dtype::bf16, Dtype::f16})
    for (const Form& form : relative_forms(70)) {
      const Operands x = relative_inputs({}, form, half);
      const auto run = [&](const auto& as) {
        std::vector<Tensor> leaves;
        for (const Tensor& t : {x.q, x.k, x.v, x.table}) leaves.push_back(as(t).detach().requires_grad_());
        const Tensor y = attention(leaves[0], leaves[1], leaves[2],
                                   {.bias = Bias::relative_product(leaves[3], form.index, {.of_keys = form.of_keys})})
                             .output;
        y.backward(as(x.dy));
        return std::vector<Tensor>{y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad(), leaves[3].grad()};
      };
      const std::vector<Tensor> ours = run([](const Tensor& t) { return t; }),
                                wide = run([](const Tensor& t) { return t.to(Dtype::f32); });
      for (std::size_t n = 0; n < ours.size(); ++n)
        EXPECT_TRUE(bits_equal(ours[n], add(wide[n].to(half), 0))) << form.name << ' ' << n;
    }
}

TEST(RelativeProduct, ReturnedWeightsHaveIt) {
  const Form form{"distance", RelativeIndex::distance(69, 0)};
  const Operands x = relative_inputs({}, form, Dtype::f32);
  AttentionOptions options{.mask = Mask::causal(), .bias = Bias::relative_product(x.table, form.index)};
  const Tensor all = attention(x.q, x.k, x.v, options).output;
  options.weights = Weights::full;
  const AttentionResult full = attention(x.q, x.k, x.v, options);
  EXPECT_TRUE(bits_equal(full.output, all));
  const std::vector<double> sums = sum(full.weights, {-1}).to_vector();
  for (const double s : sums) EXPECT_NEAR(s, 1, 1e-5);
}

}  // namespace
}  // namespace attn::testing
