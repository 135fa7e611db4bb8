// tests/attention/jvp_test.cc: forward mode: tangents beside differences, double backward and the specification; their
// bits over targets, threads, batches and padding; memory; errors.
#include <attn/attention_jvp.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/call/check.h"
#include "attention/jvp_inputs.h"
#include "attention/score/dropout.h"
#include "attention/tangent.h"
#include "kernels/attention/tangent_problem.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();

/// The tangent in plain operations of `dtype`, by reverse mode twice: J^T w is linear in w, and its derivative by w
/// along u is J u.
Tensor plain_tangent(const Option& option, const OptionSizes& z, const Direction& at, Dtype dtype) {
  std::vector<Tensor> x, along;
  for (const auto& [value, tangent] :
       {std::pair{&at.q, &at.tangents.q}, {&at.k, &at.tangents.k}, {&at.v, &at.tangents.v}}) {
    x.push_back(value->to(dtype).clone().requires_grad_());
    along.push_back(tangent->to(dtype));
  }
  const Tensor y = in_plain_operations(option, z, x[0], x[1], x[2], dtype);
  const Tensor w = zeros(y.sizes(), dtype).requires_grad_();
  const std::vector<Tensor> pulled = grad({y}, x, {.grad_outputs = {w}, .create_graph = true});
  Tensor sum;
  for (std::size_t n = 0; n < x.size(); ++n) {
    const Tensor part = mul(pulled[n], along[n]).sum();
    sum = sum.defined() ? add(sum, part) : part;
  }
  return grad({sum}, {w})[0];
}

TEST(Jvp, IsAsNearTheTruthAsPlainOperationsOfItsType) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const Option& option : moving_options()) {
      SCOPED_TRACE(::testing::Message() << option.name << " " << name_of(dtype));
      const OptionSizes z{.rows = 150, .dtype = dtype};
      const AttentionOptions options = option.make(z, as_it_is);
      Direction at(z);
      const AttentionJvp ours = attention_jvp(at.q, at.k, at.v, at.tangents, options);
      const Tensor truth = plain_tangent(option, z, at, Dtype::f64), plain = plain_tangent(option, z, at, dtype);
      expect_within(ours.tangent.output, plain.to_vector(), truth.to_vector(), dtype == Dtype::f32 ? 0x1p-23 : 0x1p-7);
      const AttentionResult primal = attention(at.q, at.k, at.v, options);
      EXPECT_TRUE(bits_equal(ours.output, primal.output));
      EXPECT_TRUE(bits_equal(ours.logsumexp, primal.logsumexp));
    }
}

/// Everything moves, in f64, beside central differences of the call itself. The bound is the error of the difference:
/// with steps h and 2h it has h^2 and 4 h^2 times the same derivative, and rounding errors of eps / h.
TEST(Jvp, OfEveryOperandIsTheLimitOfDifferences) {
  for (const Option& option : moving_options()) {
    SCOPED_TRACE(option.name);
    const OptionSizes z{.rows = 40, .dtype = Dtype::f64};
    const AttentionOptions options = option.make(z, as_it_is);
    const Direction at(z, options);
    const auto moved = [&](double h) {
      const Direction there = at.moved(h);
      return attention(there.q, there.k, there.v, at.moved(options, h));
    };
    const AttentionJvp ours = attention_jvp(at.q, at.k, at.v, at.tangents, options);
    const double h = 0x1p-14;
    const AttentionResult up = moved(h), down = moved(-h), far_up = moved(2 * h), far_down = moved(-2 * h);
    const auto expect_near = [&](const Tensor& tangent, auto&& of) {
      const std::vector<double> x = tangent.to_vector(), a = of(up).to_vector(), b = of(down).to_vector(),
                                c = of(far_up).to_vector(), d = of(far_down).to_vector();
      double largest = 0, bend = 0, error = 0;
      for (std::size_t n = 0; n < x.size(); ++n) {
        if (std::isinf(a[n])) continue;  // the logsumexp of a row that sees no key
        const double near = (a[n] - b[n]) / (2 * h), far = (c[n] - d[n]) / (4 * h);
        largest = std::max({largest, std::abs(a[n]), std::abs(b[n])});
        bend = std::max(bend, std::abs(near - far));
        error = std::max(error, std::abs(x[n] - near));
      }
      EXPECT_LE(error, bend + 16 * 0x1p-52 * largest / h);
    };
    expect_near(ours.tangent.output, [](const AttentionResult& r) { return r.output; });
    expect_near(ours.tangent.logsumexp, [](const AttentionResult& r) { return r.logsumexp; });
  }
}

/// The tangents of a call by a given kernel; what the forward pass saved is the same for all.
AttentionResultTangents by_kernel(const Direction& at, const AttentionOptions& options, const AttentionSaved& saved,
                                  const kernels::TangentKernel& kernel) {
  Call call = check("test", at.q, at.k, at.v, options);
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, saved.dropout_seed, call.dtype() == Dtype::f64, call.problem);
  return tangent_of(call, checked_saved(call, saved), options, at.tangents, &kernel);
}
void expect_same(const AttentionResultTangents& a, const AttentionResultTangents& b, const std::string& what) {
  EXPECT_TRUE(bits_equal(a.output, b.output)) << what;
  EXPECT_TRUE(bits_equal(a.logsumexp, b.logsumexp)) << what;
}

void expect_bits_everywhere(const Direction& at, const AttentionOptions& options) {
  AttentionSaved saved;
  attention_forward(at.q, at.k, at.v, options, saved);
  const bool f64 = at.q.dtype() == Dtype::f64;
  const AttentionResultTangents expected =
      by_kernel(at, options, saved, kernels::tangent_reference(*kernels::reference_generic()));
  if (kernels::reference_fma() != nullptr)
    expect_same(by_kernel(at, options, saved, kernels::tangent_reference(*kernels::reference_fma())), expected, "fma");
  for (const std::string& name : runtime::targets())
    if (const auto* target = kernels::tangent_target(name.c_str()); target != nullptr)
      expect_same(by_kernel(at, options, saved, f64 ? target->f64 : target->f32), expected, name);
  const int before = num_threads();
  for (const int threads : {1, 3, 16}) {
    set_num_threads(threads);
    expect_same(attention_tangent(at.q, at.k, at.v, options, saved, at.tangents), expected, std::to_string(threads));
  }
  set_num_threads(before);
}

TEST(JvpBits, EveryTargetAndThreadCountHasTheBitsOfTheSpecification) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const auto& [rows, dim] : {std::pair{1, 1}, {7, 5}, {67, 17}, {150, 33}, {130, 80}})
      for (const Option& option : moving_options()) {
        SCOPED_TRACE(::testing::Message() << option.name << " " << name_of(dtype) << " " << rows << " x " << dim);
        const OptionSizes z{.rows = rows, .dim = dim, .dtype = dtype};
        const AttentionOptions options = option.make(z, as_it_is);
        expect_bits_everywhere(Direction(z, options), options);
      }
}

/// A tangent that is not given has no terms.
TEST(JvpBits, OfSomeTangentsAreThoseOfTheSpecification) {
  const OptionSizes z{.rows = 100, .dim = 20};
  const AttentionOptions options{.mask = Mask::causal(),
                                 .bias = Bias::dense(exact({z.rows, z.rows}, Dtype::f32, 9)),
                                 .softcap = 3,
                                 .sinks = exact({z.heads}, Dtype::f32, 10)};
  for (int given = 0; given < 32; ++given) {
    SCOPED_TRACE(given);
    Direction at(z, options);
    if ((given & 1) == 0) at.tangents.q = {};
    if ((given & 2) == 0) at.tangents.k = {};
    if ((given & 4) == 0) at.tangents.v = {};
    if ((given & 8) == 0) at.tangents.bias = {};
    if ((given & 16) == 0) at.tangents.sinks = {};
    expect_bits_everywhere(at, options);
    if (given == 0) {
      const AttentionResultTangents still = attention_jvp(at.q, at.k, at.v, at.tangents, options).tangent;
      EXPECT_TRUE(bits_equal(still.output, zeros(at.v.sizes())));
      EXPECT_TRUE(bits_equal(still.logsumexp, zeros({1, z.heads, z.rows})));
    }
  }
}

/// Grouped heads of K and of V, other lengths of K, more keys than a split, rows in the middle of the keys.
TEST(JvpBits, OfGroupedHeadsAndLongKeys) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    Direction at(OptionSizes{.rows = 1, .dtype = dtype});
    const auto make = [&](Dims sizes, std::uint64_t seed) { return exact(sizes, dtype, seed); };
    at.q = make({2, 6, 70, 24}, 1), at.k = make({2, 2, 1300, 24}, 2), at.v = make({2, 3, 1300, 10}, 3);
    at.tangents = {make(at.q.sizes(), 4), make(at.k.sizes(), 5), make(at.v.sizes(), 6), {}, {}};
    expect_bits_everywhere(at, {.mask = Mask::window(1100, 3, Align::bottom_right),
                                .query_lengths = tensor<std::int64_t>({70, 31}),
                                .key_lengths = tensor<std::int64_t>({1300, 1111})});
  }
}

/// A sequence alone, in a batch with left padding, and packed behind others has the same bits.
TEST(JvpBits, DoNotDependOnBatchPaddingAndPacking) {
  const std::int64_t lengths[] = {90, 33}, longest = 100, heads = 2, dim = 16;
  std::vector<Direction> alone;
  std::vector<AttentionResultTangents> expected;
  for (int n = 0; n < 2; ++n) {
    Direction at(OptionSizes{.heads = heads, .rows = lengths[n], .dim = dim});
    Tensor* all[] = {&at.q, &at.k, &at.v, &at.tangents.q, &at.tangents.k, &at.tangents.v};
    for (std::size_t m = 0; m < 6; ++m) *all[m] = normal(at.q.sizes(), 10 * static_cast<std::uint64_t>(n) + m);
    expected.push_back(
        attention_jvp(at.q, at.k, at.v, at.tangents, {.mask = Mask::causal(Align::bottom_right)}).tangent);
    alone.push_back(at);
  }
  // padded on the left with NaN
  const auto of = [](const Direction& at, std::size_t n) {
    return std::array{at.q, at.k, at.v, at.tangents.q, at.tangents.k, at.tangents.v}[n];
  };
  Direction padded = alone[0], packed = alone[0];
  Tensor* to_padded[] = {&padded.q, &padded.k, &padded.v, &padded.tangents.q, &padded.tangents.k, &padded.tangents.v};
  Tensor* to_packed[] = {&packed.q, &packed.k, &packed.v, &packed.tangents.q, &packed.tangents.k, &packed.tangents.v};
  for (std::size_t n = 0; n < 6; ++n) {
    std::vector<Tensor> items, rows;
    const bool keys = n % 3 != 0;
    for (std::size_t b = 0; b < 2; ++b) {
      const Tensor filler = full({1, heads, longest - lengths[b], dim}, nan), x = of(alone[b], n);
      items.push_back(cat(keys ? std::vector{filler, x} : std::vector{x, filler}, 2));
      rows.push_back(x.squeeze(0).transpose(0, 1));
    }
    *to_padded[n] = cat(items, 0);
    *to_packed[n] = cat(rows, 0);
  }
  const AttentionResultTangents in_batch =
      attention_jvp(padded.q, padded.k, padded.v, padded.tangents,
                    {.mask = Mask::causal(Align::bottom_right),
                     .query_lengths = tensor<std::int64_t>({lengths[0], lengths[1]}),
                     .key_start = tensor<std::int64_t>({longest - lengths[0], longest - lengths[1]})})
          .tangent;
  const AttentionResultTangents behind =
      attention_jvp(packed.q, packed.k, packed.v, packed.tangents,
                    {.mask = Mask::causal(Align::bottom_right),
                     .cu_seqlens_q = tensor<std::int64_t>({0, lengths[0], lengths[0] + lengths[1]})})
          .tangent;
  for (std::int64_t b = 0, first = 0; b < 2; first += lengths[b++]) {
    const auto& here = expected[static_cast<std::size_t>(b)];
    EXPECT_TRUE(bits_equal(in_batch.output.slice(0, b, b + 1).slice(2, 0, lengths[b]), here.output));
    EXPECT_TRUE(bits_equal(in_batch.logsumexp.slice(0, b, b + 1).slice(2, 0, lengths[b]), here.logsumexp));
    EXPECT_TRUE(bits_equal(behind.output.slice(0, first, first + lengths[b]).transpose(0, 1), here.output.squeeze(0)));
    EXPECT_TRUE(bits_equal(behind.logsumexp.slice(1, first, first + lengths[b]), here.logsumexp.squeeze(0)));
  }
  EXPECT_TRUE(
      bits_equal(in_batch.output.slice(0, 1, 2).slice(2, lengths[1]), zeros({1, heads, longest - lengths[1], dim})));
}

/// NaN and infinities of masked pairs change nothing, in the operands and in their tangents; a NaN that is seen makes
/// its rows NaN. Rows that see no key are 0.
TEST(Jvp, WhatIsHiddenTakesNoPart) {
  const OptionSizes z{.rows = 70, .dim = 8};
  const Tensor mask = empty({z.rows, z.rows}, Dtype::boolean);
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t j = 0; j < z.rows; ++j) mask.data<bool>()[i * z.rows + j] = i != 5 && (i != 7 || j == 3) && j % 2;
  for (const bool softcap : {false, true}) {
    const AttentionOptions options{.mask = Mask::attend(mask), .softcap = softcap ? 2.0 : 0.0};
    const Direction at(z);
    const AttentionResultTangents expected = attention_jvp(at.q, at.k, at.v, at.tangents, options).tangent;
    for (const double what : {nan, infinity, -infinity}) {
      Direction other(z);
      for (Tensor* x : {&other.k, &other.v, &other.tangents.k, &other.tangents.v}) {
        *x = x->clone();
        for (std::int64_t j = 0; j < z.rows; j += 2) x->slice(2, j, j + 1).fill_(what);
      }
      for (Tensor* x : {&other.q, &other.tangents.q}) {
        *x = x->clone();
        x->slice(2, 5, 6).fill_(what);
      }
      const AttentionResultTangents ours = attention_jvp(other.q, other.k, other.v, other.tangents, options).tangent;
      EXPECT_TRUE(bits_equal(ours.output, expected.output)) << what;
      EXPECT_TRUE(bits_equal(ours.logsumexp, expected.logsumexp)) << what;
    }
    EXPECT_TRUE(bits_equal(expected.output.slice(2, 5, 6), zeros({1, z.heads, 1, z.dim})));
    Direction seen(z);
    seen.tangents.k = seen.tangents.k.clone();
    seen.tangents.k.slice(2, 3, 4).fill_(nan);
    const Tensor output = attention_jvp(seen.q, seen.k, seen.v, seen.tangents, options).tangent.output;
    EXPECT_TRUE(std::isnan(output[0][0][7][0].item()));
    EXPECT_EQ(output[0][0][5][0].item(), 0);
  }
}

/// A matrix of all pairs would be 512 MiB here.
TEST(Jvp, NeedsNoMemoryForPairs) {
  const OptionSizes z{.rows = sanitized ? 2048 : 8192, .dim = 4};
  for (const Option& option : moving_options()) {
    const AttentionOptions options = option.make(z, as_it_is);
    const Direction at(z, options);
    const std::size_t before = runtime::allocated_bytes();
    runtime::reset_peak();
    attention_jvp(at.q, at.k, at.v, at.tangents, options);
    EXPECT_LT(runtime::peak_bytes() - before, std::size_t{8} << 20) << option.name;
  }
}

TEST(Jvp, ErrorsNameWhatIsGivenAndWhatIsNeeded) {
  const Tensor x = exact({1, 2, 5, 4}, Dtype::f32, 1), small = exact({1, 2, 5, 3}, Dtype::f32, 1);
  EXPECT_EQ(error_of<ShapeError>([&] { attention_jvp(x, x, x, {.q = small}); }),
            "attention_jvp: the tangent of q has shape [1, 2, 5, 3]; it must be [1, 2, 5, 4] as q");
  EXPECT_EQ(error_of<DtypeError>([&] { attention_jvp(x, x, x, {.v = x.to(Dtype::f64)}); }),
            "attention_jvp: the tangent of v is f64; it must be f32 as v");
  EXPECT_EQ(error_of<ValueError>([&] { attention_jvp(x, x, x, {.sinks = x}); }),
            "attention_jvp: the tangent of sinks is given and there are none in the call");
  EXPECT_EQ(error_of<ValueError>([&] { attention_jvp(x, x, x, {.bias = {x}}); }),
            "attention_jvp: 1 bias tangents are given; the bias has 0 terms");
  EXPECT_EQ(error_of<ValueError>([&] { attention_jvp(x, x, x, {.q = x}, {.weights = Weights::full}); }),
            "attention_jvp: weights are requested; they have no tangent here");
  EXPECT_EQ(error_of<ValueError>([&] { attention_jvp(x, x, x, {.q = x}, {.out = x.clone()}); }),
            "attention_jvp: out is given; the results are always new");
  EXPECT_EQ(
      error_of<ValueError>(
          [&] { attention_jvp(x, x, x, {.q = x}, {.score = Score::general(exact({4, 4}, Dtype::f32, 2))}); }),
      "attention_jvp: the score is general or additive; it must be the (scaled) dot product, or a score_mod of it");
  EXPECT_EQ(error_of<ValueError>([&] {
              attention_jvp(x, x, x, {.q = x}, {.score_callback = [](const ScoreTile& tile) { tile.tanh(); }});
            }),
            "attention_jvp: a score_callback has no derivative; write it as a score_mod, which has one");
  EXPECT_EQ(error_of<ValueError>([&] { attention_jvp(x.clone().requires_grad_(), x, x, {.q = x}); }),
            "attention_jvp: an operand or a tangent requires a gradient, which the results do not have; call it under "
            "NoGrad");
  AttentionSaved saved;
  const Tensor half = x.to(Dtype::bf16);
  attention_forward(half, half, half, {}, saved);
  EXPECT_EQ(error_of<DtypeError>([&] { attention_tangent(half, half, half, {}, saved, {.q = half}); }),
            "attention_tangent: q is bf16; it must be f32 or f64 (attention_jvp takes 16 bits)");
}

}  // namespace
}  // namespace attn::testing
