// tests/attention/relative_product_bits_test.cc: relative products have the same bits over threads, batch, padding,
// packed sequences and caches, and those of their table of digests.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/cache.h>
#include <attn/runtime.h>

#include "attention/relative_product.h"
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

TEST(RelativeProductBits, FewRowsHaveTheBitsOfMany) {
  for (const Form& form : relative_forms(70))
    for (const std::int64_t rows : {1, 3, 8}) {
      const Operands x = relative_inputs({}, form, Dtype::f32);
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

TEST(RelativeProductBits, PackedSequencesCountFromTheirStart) {
  for (const Form& form : relative_forms(70)) {
    AttentionOptions options{.bias = {}};
    options.cu_seqlens_q = integers({0, 20, 20, 70});
    Operands x = relative_inputs({}, form, Dtype::f32);
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

TEST(RelativeProductBits, PaddingAndBatchChangeNoBit) {
  for (const Form& form : relative_forms(70)) {
    const Operands x = relative_inputs({}, form, Dtype::f32);
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

/// With fewer units than threads, the threads share the steps of a unit.
TEST(RelativeProductBits, ThreadsChangeNoBit) {
  const int before = num_threads();
  std::vector<std::pair<Sizes, Form>> all;
  for (const Form& form : relative_forms(150))
    for (const Sizes& z : {Sizes{.batch = 2, .heads = 4, .key_heads = 2, .rows = 150, .keys = 150},
                           Sizes{.heads = 1, .key_heads = 1, .rows = 400, .keys = 150},
                           Sizes{.heads = 3, .key_heads = 1, .rows = 150, .keys = 150}})
      if (z.rows == 150 || form.index.form().coordinate == RelativeIndex::Coordinate::position)
        all.emplace_back(z, form);
  // more sums than a thread keeps before its turn
  all.emplace_back(Sizes{.heads = 1, .key_heads = 1, .rows = 200, .keys = 3000, .dim = 160},
                   Form{"many distances", RelativeIndex::distance(2999, 2999)});
  all.emplace_back(Sizes{.heads = 2, .key_heads = 1, .rows = 130, .keys = 3000, .dim = 160},
                   Form{"many distances of keys", RelativeIndex::distance(2999, 2999), true});
  for (const auto& [z, form] : all) {
    std::vector<Tensor> first;
    for (const int threads : {1, 2, 3, 8}) {
      set_num_threads(threads);
      Operands x = relative_inputs(z, form, Dtype::f32);
      Tensor shared = normal({z.rows, z.keys}, 6).requires_grad_();
      for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->requires_grad_();
      const Bias product =
          Bias::relative_product(x.table, form.index, {.of_keys = form.of_keys, .align = Align::top_left});
      std::vector<Tensor> found;
      for (const Bias& bias : {product, product + Bias::dense(shared)}) {
        for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->set_grad({});
        const Tensor y = attention(x.q, x.k, x.v, {.bias = bias}).output;
        y.backward(x.dy);
        for (const Tensor& t : {y.detach(), x.q.grad(), x.k.grad(), x.v.grad(), x.table.grad()}) found.push_back(t);
      }
      found.push_back(shared.grad());
      if (threads == 1) first = found;
      for (std::size_t n = 0; n < found.size(); ++n)
        EXPECT_TRUE(bits_equal(found[n], first[n])) << form.name << ' ' << threads << ' ' << n;
    }
  }
  set_num_threads(before);
}

TEST(RelativeProductBits, MaskedKeysMayHoldAnythingOnAnyNumberOfThreads) {
  const int before = num_threads();
  const double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  const Sizes z{.heads = 1, .key_heads = 1, .rows = 200, .keys = 200};
  Tensor seen = full({200, 200}, 1, Dtype::boolean);
  for (const std::int64_t key : {3, 70, 199}) seen.select(1, key).fill_(0);
  for (const Form& form : relative_forms(200)) {
    std::vector<Tensor> first;
    for (const double other : {0.0, nan, infinity})
      for (const int threads : {1, 2, 3}) {
        set_num_threads(threads);
        Operands x = relative_inputs(z, form, Dtype::f32);
        for (const Tensor& t : {x.k, x.v})
          for (const std::int64_t key : {3, 70, 199}) t.select(2, key).fill_(other);
        for (Tensor* leaf : {&x.q, &x.k, &x.v, &x.table}) leaf->requires_grad_();
        const Tensor y = attention(x.q, x.k, x.v,
                                   {.mask = Mask::attend(seen),
                                    .bias = Bias::relative_product(x.table, form.index, {.of_keys = form.of_keys})})
                             .output;
        y.backward(x.dy);
        const std::vector<Tensor> found{y.detach(), x.q.grad(), x.k.grad(), x.v.grad(), x.table.grad()};
        if (first.empty()) first = found;
        for (std::size_t n = 0; n < found.size(); ++n)
          EXPECT_TRUE(bits_equal(found[n], first[n])) << form.name << ' ' << other << ' ' << threads << ' ' << n;
      }
  }
  set_num_threads(before);
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
TEST(RelativeProductBits, CasesHaveTheDigestsOfTheirTable) {
  for (const FixedCase& c : fixed_cases)
    for (const Form& form : relative_forms(c.sizes.rows)) {
      if (std::string(form.name) != c.form) continue;
      const Operands like = relative_inputs(c.sizes, form, c.dtype);
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

TEST(RelativeProductBits, RowsOverACacheHaveTheBitsOfOneCall) {
  for (const Form& form : relative_forms(70)) {
    if (form.of_keys) continue;  // keys of a cache: an operand is needed
    const Operands x = relative_inputs({}, form, Dtype::f32);
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

}  // namespace
}  // namespace attn::testing
