// tests/attention/relative_product_test.cc: relative products against their definition in plain loops, bit by bit, with
// every other option; gradients against differences; bits over threads, batch and padding.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/cache.h>
#include <attn/runtime.h>

#include "attention/relative_product.h"
#include "attention/truth.h"
#include "support/golden.h"
#include "verify/compare.h"
#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <limits>

namespace attn::testing {
namespace {

struct Form {
  const char* name;
  RelativeIndex index;
  bool of_keys = false, one_table = false;
  std::optional<double> scale = std::nullopt;
};

std::vector<Form> forms(std::int64_t rows) {
  return {{"Shaw", RelativeIndex::distance(9, 5), false, true},
          {"Conformer", RelativeIndex::distance(rows - 1, rows - 1)},
          {"Transformer-XL", RelativeIndex::distance(rows - 1, 0).reversed()},
          {"content to position", RelativeIndex::log_buckets(8, 40), false, false, 0.3},
          {"position to content", RelativeIndex::log_buckets(8, 40), true, false, 0.3},
          {"of keys by distance", RelativeIndex::distance(70, 20), true, true},
          {"rows of a picture", RelativeIndex::picture_rows(rows / 10 + 1, 10), false, true, 1.0},
          {"columns of a picture", RelativeIndex::picture_columns(10), false, true, 1.0},
          {"rows of a picture, of keys", RelativeIndex::picture_rows(rows / 10 + 1, 10), true, false}};
}

template <typename T>
constexpr Dtype dtype_of = sizeof(T) == 8 ? Dtype::f64 : Dtype::f32;

struct Sizes {
  std::int64_t batch = 1, heads = 2, key_heads = 2, rows = 70, keys = 70, dim = 8;
};

struct Operands {
  Tensor q, k, v, table, dy;
};
Operands operands(const Sizes& z, const Form& form, Dtype dtype) {
  const Dims table = form.one_table ? Dims{form.index.rows(), z.dim} : Dims{z.heads, form.index.rows(), z.dim};
  return {normal({z.batch, z.heads, z.rows, z.dim}, 1, dtype), normal({z.batch, z.key_heads, z.keys, z.dim}, 2, dtype),
          normal({z.batch, z.key_heads, z.keys, 5}, 3, dtype), normal(table, 4, dtype),
          normal({z.batch, z.heads, z.rows, 5}, 5, dtype)};
}

/// Output, logsumexp, and gradients of q, k, v and the table, by products; and by the definition's matrix as a dense
/// bias, whose gradient the definition takes back.
template <typename T>
void expect_definition(const Sizes& z, const Form& form, AttentionOptions options, RelativePlaces places = {},
                       Align align = Align::unset) {
  SCOPED_TRACE(std::string(form.name) + (sizeof(T) == 8 ? " f64" : " f32"));
  Operands x = operands(z, form, dtype_of<T>);
  for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->requires_grad_();
  const double scale = form.scale.value_or(1 / std::sqrt(static_cast<double>(z.dim)));
  const RelativeDefinition<T> definition{
      x.table.detach(), (form.of_keys ? x.k : x.q).detach(), form.index, form.of_keys, scale, places};
  const AttentionOptions before = options;
  options.bias = before.bias +
                 Bias::relative_product(x.table, form.index,
                                        {.operand = {}, .of_keys = form.of_keys, .scale = form.scale, .align = align});
  const AttentionResult ours = attention(x.q, x.k, x.v, options);
  ours.output.backward(x.dy);

  Operands other = operands(z, form, dtype_of<T>);
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
  for (const Form& form : forms(70)) {
    expect_definition<float>({}, form, {});
    expect_definition<double>({}, form, {});
    expect_definition<float>({.batch = 2, .heads = 4, .key_heads = 2}, form, {});
  }
}

TEST(RelativeProduct, ManyKeysHaveSpans) {
  const Sizes z{.heads = 1, .key_heads = 1, .rows = 70, .keys = 1100};
  RelativePlaces end;
  end.row = [](auto, std::int64_t i) { return i + 1030; };
  for (const Form& form : {Form{"distance", RelativeIndex::distance(1099, 3)},
                           Form{"buckets of keys", RelativeIndex::log_buckets(8, 600), true},
                           Form{"columns", RelativeIndex::picture_columns(33), false, true}})
    expect_definition<float>(z, form, {}, end, Align::bottom_right);
}

TEST(RelativeProduct, FewRowsHaveTheBitsOfMany) {
  for (const Form& form : forms(70))
    for (const std::int64_t rows : {1, 3, 8}) {
      const Operands x = operands({}, form, Dtype::f32);
      const auto options = [&](const Tensor& start) {
        AttentionOptions o{.bias = Bias::relative_product(x.table, form.index, {.of_keys = form.of_keys})};
        o.query_start = start;
        return o;
      };
      const Tensor all = attention(x.q, x.k, x.v, options({})).output;
      const Tensor some = attention(x.q.narrow(2, 40, rows), x.k, x.v, options(integers({40}))).output;
      EXPECT_TRUE(bits_equal(some, all.narrow(2, 40, rows).contiguous())) << form.name << ' ' << rows;
    }
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
    for (const Form& form : forms(rows)) expect_definition<float>({}, form, options);
  }
}

TEST(RelativeProduct, PackedSequencesCountFromTheirStart) {
  for (const Form& form : forms(70)) {
    AttentionOptions options{.bias = {}};
    options.cu_seqlens_q = integers({0, 20, 20, 70});
    Operands x = operands({}, form, Dtype::f32);
    options.bias = Bias::relative_product(x.table, form.index, {.of_keys = form.of_keys});
    for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->requires_grad_();
    const Tensor y = attention(x.q, x.k, x.v, options).output;
    y.backward(x.dy);
    // each sequence alone
    Tensor dtable = zeros(x.table.sizes());
    for (const auto& [begin, end] : {std::pair{0, 20}, {20, 70}}) {
      const auto part = [&, b = begin, e = end](const Tensor& t) {
        return t.detach().narrow(2, b, e - b).contiguous().requires_grad_();
      };
      const Tensor q = part(x.q), k = part(x.k), v = part(x.v), table = x.table.detach().requires_grad_();
      const Tensor alone =
          attention(q, k, v, {.bias = Bias::relative_product(table, form.index, {.of_keys = form.of_keys})}).output;
      alone.backward(x.dy.narrow(2, begin, end - begin));
      EXPECT_TRUE(bits_equal(y.detach().narrow(2, begin, end - begin).contiguous(), alone.detach())) << form.name;
      EXPECT_TRUE(bits_equal(x.q.grad().narrow(2, begin, end - begin).contiguous(), q.grad())) << form.name;
      EXPECT_TRUE(bits_equal(x.k.grad().narrow(2, begin, end - begin).contiguous(), k.grad())) << form.name;
      if (!form.one_table) dtable = dtable + table.grad();
    }
    if (!form.one_table) { EXPECT_TRUE(bits_equal(x.table.grad(), dtable)) << form.name; }
  }
}

TEST(RelativeProduct, PaddingAndBatchChangeNoBit) {
  for (const Form& form : forms(70)) {
    const Operands x = operands({}, form, Dtype::f32);
    const auto run = [&](const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options,
                         const Tensor& dy) {
      std::vector<Tensor> leaves;
      for (const Tensor& t : {q, k, v, x.table}) leaves.push_back(t.detach().contiguous().requires_grad_());
      options.bias = Bias::relative_product(leaves[3], form.index, {.of_keys = form.of_keys, .align = Align::top_left});
      const Tensor y = attention(leaves[0], leaves[1], leaves[2], options).output;
      y.backward(dy);
      return std::vector<Tensor>{y.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad(), leaves[3].grad()};
    };
    const std::vector<Tensor> alone = run(x.q, x.k, x.v, {}, x.dy);
    // left padding by NaN, in a batch with another item
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto padded = [&](const Tensor& t) {
      const Tensor wide = full({2, t.size(1), 77, t.size(3)}, nan);
      wide.narrow(0, 0, 1).narrow(2, 7, 70).copy_(t);
      wide.narrow(0, 1, 1).narrow(2, 0, 3).copy_(t.narrow(2, 11, 3));
      return wide;
    };
    const auto twice = [](const Tensor& t) { return cat({t, t}, 0); };
    AttentionOptions options;
    options.key_start = integers({7, 0});
    options.key_lengths = integers({77, 3});
    const std::vector<Tensor> batch = run(twice(x.q), padded(x.k), padded(x.v), options, twice(x.dy));
    EXPECT_TRUE(bits_equal(batch[0].narrow(0, 0, 1).contiguous(), alone[0])) << form.name;
    EXPECT_TRUE(bits_equal(batch[1].narrow(0, 0, 1).contiguous(), alone[1])) << form.name;
    EXPECT_TRUE(bits_equal(batch[2].narrow(0, 0, 1).narrow(2, 7, 70).contiguous(), alone[2])) << form.name;
    for (const Tensor& t : batch)
      for (const double value : t.to_vector()) ASSERT_TRUE(std::isfinite(value)) << form.name;
  }
}

TEST(RelativeProduct, ThreadsChangeNoBit) {
  const int before = num_threads();
  const Sizes z{.batch = 2, .heads = 4, .key_heads = 2, .rows = 150, .keys = 150};
  for (const Form& form : forms(150)) {
    std::vector<Tensor> first;
    for (const int threads : {1, 2, 3, 8}) {
      set_num_threads(threads);
      Operands x = operands(z, form, Dtype::f32);
      Tensor shared = normal({150, 150}, 6).requires_grad_();
      for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->requires_grad_();
      const Tensor y = attention(x.q, x.k, x.v,
                                 {.bias = Bias::relative_product(x.table, form.index, {.of_keys = form.of_keys}) +
                                          Bias::dense(shared)})
                           .output;
      y.backward(x.dy);
      const std::vector<Tensor> found{y.detach(), x.q.grad(), x.k.grad(), x.v.grad(), x.table.grad(), shared.grad()};
      if (threads == 1) first = found;
      for (std::size_t n = 0; n < found.size(); ++n)
        EXPECT_TRUE(bits_equal(found[n], first[n])) << form.name << ' ' << threads << ' ' << n;
    }
  }
  set_num_threads(before);
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
  for (const Form& form : forms(7)) {
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
  for (const Form& form : forms(70)) {
    const Operands x = operands({.batch = 2, .heads = 4, .key_heads = 2}, form, Dtype::f32);
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
    for (const Form& form : forms(70)) {
      const Operands x = operands({}, form, half);
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

struct FixedCase {
  const char* form;
  Sizes sizes;
  Dtype dtype;
  bool causal;
  const char* digest;
};
const FixedCase fixed_cases[] = {
#include "cases/relative.inc"
};

/// Inputs of integers, the same on every machine; what a call and its backward pass give, on this target.
TEST(RelativeProduct, CasesHaveTheDigestsOfTheirTable) {
  for (const FixedCase& c : fixed_cases)
    for (const Form& form : forms(c.sizes.rows)) {
      if (std::string(form.name) != c.form) continue;
      const Operands like = operands(c.sizes, form, c.dtype);
      std::vector<Tensor> x;
      std::uint64_t seed = 1;
      for (const Tensor& t : {like.q, like.k, like.v, like.table, like.dy})
        x.push_back(cases::integers(t.sizes(), c.dtype, seed++, 1));
      for (std::size_t n = 0; n < 4; ++n) x[n].requires_grad_();
      AttentionOptions options{
          .bias = Bias::relative_product(x[3], form.index, {.of_keys = form.of_keys, .scale = form.scale})};
      if (c.causal) options.mask = Mask::causal();
      const AttentionResult r = attention(x[0], x[1], x[2], options);
      r.output.backward(x[4]);
      cases::Results results{{"output", r.output.detach()}, {"logsumexp", r.logsumexp.detach()}};
      for (std::size_t n = 0; n < 4; ++n) results.push_back({"gradient", x[n].grad()});
      cases::Digest digest;
      digest.add(results);
      EXPECT_EQ(digest.text(), c.digest) << c.form << ' ' << &c - fixed_cases;
    }
}

TEST(RelativeProduct, RowsOverACacheHaveTheBitsOfOneCall) {
  for (const Form& form : forms(70)) {
    if (form.of_keys) continue;  // keys of a cache: an operand is needed
    const Operands x = operands({}, form, Dtype::f32);
    const Bias bias = Bias::relative_product(x.table, form.index, {.scale = form.scale});
    const Tensor all = attention(x.q, x.k, x.v, {.mask = Mask::causal(), .bias = bias}).output;
    KvCache cache({.key_heads = 2, .head_dim = 8, .value_dim = 5, .page_rows = 16, .pages = 8});
    const KvSequence sequence = cache.create();
    for (std::int64_t row = 0; row < 70; ++row) {
      cache.append(sequence, x.k.narrow(2, row, 1).squeeze(0), x.v.narrow(2, row, 1).squeeze(0));
      const Tensor y = attention_cached(x.q.narrow(2, row, 1), cache, {sequence},
                                        {.mask = Mask::causal(Align::bottom_right),
                                         .bias = Bias::relative_product(
                                             x.table, form.index, {.scale = form.scale, .align = Align::bottom_right})})
                           .output;
      ASSERT_TRUE(bits_equal(y, all.narrow(2, row, 1).contiguous())) << form.name << ' ' << row;
    }
  }
}

TEST(RelativeProduct, ReturnedWeightsHaveIt) {
  const Form form{"distance", RelativeIndex::distance(69, 0)};
  const Operands x = operands({}, form, Dtype::f32);
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
