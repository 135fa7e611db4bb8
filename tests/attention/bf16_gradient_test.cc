// tests/attention/bf16_gradient_test.cc: gradients in bf16 do not depend on batch, padding, threads or what is hidden;
// they are near f32's; memory stays flat.
#include <attn/attention.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/schedule/backward_steps.h"
#include "attention/truth.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "support/golden.h"
#include "verify/run.h"

#include <gtest/gtest.h>

#include <limits>
#include <optional>

namespace attn::testing {
namespace {

struct Gradient3 {
  Tensor q, k, v;
};

/// Of the output, for the incoming gradient dy.
Gradient3 gradients(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& dy,
                    const AttentionOptions& options) {
  const Tensor x[] = {q.detach().requires_grad_(), k.detach().requires_grad_(), v.detach().requires_grad_()};
  backward(attention(x[0], x[1], x[2], options).output, dy);
  return {x[0].grad(), x[1].grad(), x[2].grad()};
}

void expect_same(const Gradient3& a, const Gradient3& b) {
  EXPECT_TRUE(same_bits(a.q, b.q)) << "q";
  EXPECT_TRUE(same_bits(a.k, b.k)) << "k";
  EXPECT_TRUE(same_bits(a.v, b.v)) << "v";
}

Tensor bf16(const Dims& sizes, std::uint64_t seed) { return normal(sizes, seed).to(Dtype::bf16); }

/// 330 rows: five blocks and an odd pair; odd head dims end in a pair of one.
struct Bf16Gradient : ::testing::Test {
  static constexpr std::int64_t batch = 3, heads = 4, k_heads = 2, tokens = 331, dim = 24, width = 17;
  Tensor q = bf16({batch, heads, tokens, dim}, 1), k = bf16({batch, k_heads, tokens, dim}, 2),
         v = bf16({batch, k_heads, tokens, width}, 3);
  Tensor dy = bf16({batch, heads, tokens, width}, 4);
  AttentionOptions causal{.mask = Mask::causal(Align::bottom_right)};
  Gradient3 all = gradients(q, k, v, dy, causal);
};

TEST_F(Bf16Gradient, RunsByPairsWhereTheProcessorHasThem) {
  kernels::AttentionProblem problem;
  problem.element = kernels::Element::bf16;
  EXPECT_EQ(plan_backward(problem).kernel != nullptr,
            runtime::vectors_of(runtime::target()) == "avx512" && runtime::cpu().avx512_bf16);
}

TEST_F(Bf16Gradient, AloneAndInABatch) {
  for (std::int64_t b = 0; b < batch; ++b) {
    const auto one = [b](const Tensor& x) { return x.narrow(0, b, 1).contiguous(); };
    expect_same(gradients(one(q), one(k), one(v), one(dy), causal), {one(all.q), one(all.k), one(all.v)});
  }
}

TEST_F(Bf16Gradient, PaddedWithNan) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto padded = [&](const Tensor& x, std::int64_t left, std::int64_t right) {
    const auto rows = [&](std::int64_t count) {
      return full({x.size(0), x.size(1), count, x.size(3)}, nan, Dtype::bf16);
    };
    return cat({rows(left), x, rows(right)}, 2);
  };
  const AttentionOptions right{.mask = causal.mask,
                               .query_lengths = full({batch}, tokens, Dtype::i64),
                               .key_lengths = full({batch}, tokens, Dtype::i64)};
  const Gradient3 a = gradients(padded(q, 0, 70), padded(k, 0, 100), padded(v, 0, 100), padded(dy, 0, 70), right);
  const auto inside = [](const Tensor& x, std::int64_t first) { return x.narrow(2, first, tokens).contiguous(); };
  expect_same({inside(a.q, 0), inside(a.k, 0), inside(a.v, 0)}, all);
  EXPECT_EQ(sum(abs(cat({a.k, a.v}, 3).narrow(2, tokens, 100))).item() + sum(abs(a.q.narrow(2, tokens, 70))).item(), 0);
  const AttentionOptions left{.mask = causal.mask,
                              .key_lengths = full({batch}, tokens + 37, Dtype::i64),
                              .key_start = full({batch}, 37, Dtype::i64)};
  const Gradient3 b = gradients(q, padded(k, 37, 0), padded(v, 37, 0), dy, left);
  expect_same({b.q, inside(b.k, 37), inside(b.v, 37)}, all);
}

TEST_F(Bf16Gradient, PackedSequencesAreThoseAlone) {
  const std::int64_t cuts[] = {0, 130, 131, 331};
  const Tensor cu = integers({cuts[0], cuts[1], cuts[2], cuts[3]});
  const auto first = [](const Tensor& x) { return x.narrow(0, 0, 1).contiguous(); };
  const Gradient3 packed =
      gradients(first(q), first(k), first(v), first(dy), {.mask = causal.mask, .cu_seqlens_q = cu, .cu_seqlens_k = cu});
  for (int s = 0; s < 3; ++s) {
    const auto part = [&](const Tensor& x) {
      return x.narrow(0, 0, 1).narrow(2, cuts[s], cuts[s + 1] - cuts[s]).contiguous();
    };
    expect_same({part(packed.q), part(packed.k), part(packed.v)},
                gradients(part(q), part(k), part(v), part(dy), causal));
  }
}

// Memory that was in use holds something before each call.
TEST_F(Bf16Gradient, KeysOfASequenceWithoutRowsHaveNone) {
  const int before = num_threads();
  set_num_threads(3);
  const Tensor one_q = bf16({1, 1, 20, 32}, 5), one_k = bf16({1, 1, 60, 32}, 6), one_dy = bf16({1, 1, 20, 32}, 7);
  const AttentionOptions options{.cu_seqlens_q = integers({0, 20, 20}), .cu_seqlens_k = integers({0, 20, 60})};
  for (int n = 0; n < 10; ++n) {
    for (std::size_t bytes = 1024; bytes <= 65536; bytes *= 2)
      const std::vector<std::vector<char>> used(20, std::vector<char>(bytes, 0x55));
    const Gradient3 found = gradients(one_q, one_k, one_k, one_dy, options);
    for (const Tensor& x : {found.k, found.v}) EXPECT_EQ(max(abs(x.narrow(2, 20, 40))).item(), 0);
  }
  set_num_threads(before);
}

TEST_F(Bf16Gradient, AnyNumberOfThreads) {
  const int before = num_threads();
  struct Call {
    Tensor q, k, v, dy;
    AttentionOptions options;
  };
  const auto head = [](const Tensor& x) { return x.narrow(0, 0, 1).narrow(1, 0, 1).contiguous(); };
  const Call calls[] = {{q, k, v, dy, causal},
                        {head(q), head(k), head(v), head(dy), causal},  // a wave
                        {head(q), head(k), head(v), head(dy), {.mask = ~Mask::causal(Align::top_left)}},
                        {head(q),
                         head(k),
                         head(v),
                         head(dy),
                         {.mask = Mask::documents(cat({zeros({100}, Dtype::i64), ones({tokens - 100}, Dtype::i64)}, 0)),
                          .dropout_p = 0.2,
                          .dropout_seed = 7}}};
  for (const Call& call : calls) {
    std::optional<Gradient3> one;
    for (const int threads : {1, 2, 3, 8}) {
      SCOPED_TRACE(threads);
      set_num_threads(threads);
      const Gradient3 g = gradients(call.q, call.k, call.v, call.dy, call.options);
      if (one) expect_same(g, *one);
      else one = g;
    }
  }
  set_num_threads(before);
}

TEST_F(Bf16Gradient, WhatIsHiddenMayHoldAnything) {
  Tensor allowed = ones({tokens, tokens}, Dtype::boolean);
  allowed.slice(1, 100, 110).fill_(0);  // keys that nobody sees
  allowed.slice(0, 30, 35).fill_(0);    // rows that see nothing
  const AttentionOptions options{.mask = Mask::attend(allowed) & Mask::causal()};
  const Gradient3 clean = gradients(q, k, v, dy, options);
  for (const double what : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const auto dirty = [what](const Tensor& x, std::int64_t begin, std::int64_t end) {
      const Tensor y = x.clone();
      y.slice(2, begin, end).fill_(what);
      return y;
    };
    expect_same(gradients(dirty(q, 30, 35), dirty(k, 100, 110), dirty(v, 100, 110), dirty(dy, 30, 35), options), clean);
  }
}

TEST_F(Bf16Gradient, ANanReachesThoseThatSeeIt) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  // rows of batch item 0 that hold a NaN in the column
  const auto rows = [&](const Tensor& x, std::int64_t h, std::int64_t column) {
    std::vector<std::int64_t> found;
    for (std::int64_t i = 0; i < tokens; ++i)
      if (std::isnan(x.narrow(0, 0, 1).narrow(1, h, 1).narrow(2, i, 1).narrow(3, column, 1).sum().item()))
        found.push_back(i);
    return found;
  };
  const auto counted = [](std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> all;
    for (; begin < end; ++begin) all.push_back(begin);
    return all;
  };
  const auto spoiled = [&](const Tensor& x, std::int64_t row, std::int64_t column) {
    const Tensor y = x.clone();
    y.narrow(0, 0, 1).narrow(1, 0, 1).narrow(2, row, 1).narrow(3, column, 1).fill_(nan);
    return y;
  };
  const Gradient3 by_q = gradients(spoiled(q, 150, 3), k, v, dy, causal),
                  by_k = gradients(q, spoiled(k, 150, 3), v, dy, causal);
  const Gradient3 by_v = gradients(q, k, spoiled(v, 150, 3), dy, causal),
                  by_dy = gradients(q, k, v, spoiled(dy, 150, 3), causal);
  const std::vector<std::int64_t> before = counted(0, 151), after = counted(150, tokens), none, it{150},
                                  all_rows = counted(0, tokens);
  EXPECT_EQ(rows(by_q.q, 0, 0), it);
  EXPECT_EQ(rows(by_q.k, 0, 0), before);
  EXPECT_EQ(rows(by_q.v, 0, 0), before);
  EXPECT_EQ(rows(by_k.q, 0, 0), after);
  EXPECT_EQ(rows(by_k.k, 0, 0), all_rows);  // row 150 sees keys 0 ... 150, the last row all
  EXPECT_EQ(rows(by_v.q, 0, 0), after);
  EXPECT_EQ(rows(by_v.v, 0, 0), none);
  EXPECT_EQ(rows(by_dy.q, 0, 0), it);
  EXPECT_EQ(rows(by_dy.v, 0, 3), before);  // in its own column alone
  EXPECT_EQ(rows(by_dy.v, 0, 2), none);
  EXPECT_EQ(rows(by_q.q, 1, 0), none);
  EXPECT_EQ(rows(by_q.k, 1, 0), none);
}

TEST_F(Bf16Gradient, IsNearThatOfF32ThroughEverythingAroundTheScore) {
  const Tensor sinks = normal({heads}, 5), table = normal({8, heads}, 6), slopes = normal({heads}, 7) * 0.05,
               values = normal({tokens, tokens}, 8);
  for (const double dropout : {0.0, 0.25}) {
    Tensor by[2][7];
    for (const bool wide : {false, true}) {
      const auto leaf = [wide](const Tensor& x) {
        return (wide ? x.to(Dtype::f32) : x.clone()).detach().requires_grad_();
      };
      const Tensor x[] = {leaf(q), leaf(k), leaf(v), leaf(sinks), leaf(slopes), leaf(table), leaf(values)};
      AttentionOptions options{.mask = Mask::window(90, 20, Align::bottom_right),
                               .bias = Bias::alibi(x[4]) + Bias::relative(x[5], true, 64) + Bias::dense(x[6])};
      options.sinks = x[3];
      options.softcap = 4;
      options.temperature = 1.5;
      options.dropout_p = dropout;
      options.dropout_seed = 5;
      backward(attention(x[0], x[1], x[2], options).output, wide ? dy.to(Dtype::f32) : dy);
      for (int n = 0; n < 7; ++n) by[wide][n] = x[n].grad();
    }
    for (int n = 0; n < 7; ++n) {
      SCOPED_TRACE(n);
      EXPECT_EQ(by[0][n].dtype(), n < 3 ? Dtype::bf16 : Dtype::f32);
      const std::vector<double> truth = by[1][n].to_vector();
      expect_within(by[0][n], truth, truth, 0x1p-8);
    }
  }
}

/// Numbers of any size: sums that are not exact, products and sums too small to be normal.
TEST(Bf16GradientKernels, HaveTheBitsOfTheSpecificationOnEveryTarget) {
  int compared = 0;
  for (const char* line :
       {"B=2 Hq=4 Hk=2 Tq=331 D=24 Dv=17 mask=causal(bottom_right)", "Tq=70 Tk=200 D=64 lengths=all",
        "Hq=2 Tq=33 Tk=47 D=33 Dv=65 dropout=0.2", "Tq=130 Tk=97 D=96 mask=window(40,3,bottom_right)",
        "Hq=2 Tq=65 Tk=81 D=130 Dv=1 mask=bool softcap=3 temperature=1.5 sinks=1 bias=alibi"})
    for (const double size : {1.0, 0x1p-62}) {
      SCOPED_TRACE(::testing::Message() << line << " " << size);
      const cases::Case c = cases::parse_case(std::string("attention_backward bf16 ") + line);
      cases::Inputs in = cases::make_inputs(c);
      std::uint64_t seed = 1;
      for (Tensor* x : {&in.q, &in.k, &in.v, &in.doutput}) *x = (normal(x->sizes(), seed++) * size).to(Dtype::bf16);
      for (const std::string& target : runtime::targets()) {
        std::optional<cases::Results> first;
        for (const cases::Way& way : cases::target_ways(target)) {
          const cases::Results results = way.run(c, in);
          if (results.empty()) continue;
          if (!first) first = results;
          for (std::size_t n = 0; n < results.size(); ++n, ++compared)
            EXPECT_TRUE(bits_equal(results[n].values, (*first)[n].values)) << way.name << " " << results[n].name;
        }
      }
    }
  EXPECT_EQ(compared > 0, runtime::cpu().avx512_bf16);
}

/// Its weight is 1 whatever q and k are: delta and dP are the same sum, in the same order.
TEST_F(Bf16Gradient, OfARowWithOneKeyIsExactlyZero) {
  for (const std::int64_t width : {5, 16, 33, 64, 100}) {
    const Tensor q = bf16({1, 2, 70, 33}, 1).requires_grad_(), k = bf16({1, 2, 70, 33}, 2).requires_grad_(),
                 v = bf16({1, 2, 70, width}, 3).requires_grad_();
    const Tensor dout = bf16({1, 2, 70, width}, 4), output = attention(q, k, v, {.mask = Mask::window(0, 0)}).output;
    const std::vector<Tensor> found = grad({output}, {q, k, v}, {.grad_outputs = {dout}});
    EXPECT_TRUE(bits_equal(output, v)) << width;
    for (int n = 0; n < 2; ++n) EXPECT_EQ(max(abs(found[static_cast<std::size_t>(n)])).item(), 0) << width;
    EXPECT_TRUE(bits_equal(found[2], dout)) << width;
  }
}

TEST(Bf16GradientMemory, StaysFarUnderTheMatrixOfWeights) {
  const Dims sizes{1, 4, 8192, 64};
  const Tensor x = bf16(sizes, 1).requires_grad_(), y = attention(x, x, x, {.mask = Mask::causal()}).output,
               dy = bf16(sizes, 2);
  runtime::reset_peak();
  const std::size_t before = runtime::allocated_bytes();
  backward(y, dy);
  const std::size_t results = 5 * 2 * static_cast<std::size_t>(x.numel()),
                    sums = static_cast<std::size_t>(num_threads()) * 8192 * 128 * sizeof(float);
  EXPECT_LT(runtime::peak_bytes() - before, results + sums + (std::size_t{8} << 20));
  // of one of the 4 heads
  EXPECT_LT(results + sums + (std::size_t{8} << 20), std::size_t{8192} * 8192 * sizeof(float));
}

}  // namespace
}  // namespace attn::testing
