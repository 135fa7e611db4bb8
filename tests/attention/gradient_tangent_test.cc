// tests/attention/gradient_tangent_test.cc: tangents of gradients (products with second derivatives) beside double
// backward, differences and the specification; their bits over targets and threads; memory; errors.
#include <attn/attention_jvp.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/call/check.h"
#include "attention/jvp_inputs.h"
#include "attention/own_cases.h"
#include "attention/score/dropout.h"
#include "attention/tangent.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "runtime/memory.h"
#include "support/errors.h"
#include "support/golden.h"
#include "support/sanitized.h"
#include "verify/run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

/// The options whose gradients have a tangent.
std::vector<Option> twice_moving_options() {
  std::vector<Option> all = moving_options();
  std::erase_if(all, [](const Option& option) { return std::string(option.name) == "score expression"; });
  return all;
}

/// A direction, the incoming gradients and their tangents.
struct SecondDirection : Direction {
  AttentionBackwardOptions flow;
  AttentionFlowTangents moves;

  explicit SecondDirection(const OptionSizes& z, const AttentionOptions& options = {}, bool logsumexp = false)
      : Direction(z, options) {
    flow.grad_output = exact(v.sizes(), z.dtype, 20, 1);
    moves.grad_output = exact(v.sizes(), z.dtype, 21, 1);
    if (!logsumexp) return;
    flow.grad_logsumexp = exact({1, z.heads, z.rows}, z.computed(), 22, 1);
    moves.grad_logsumexp = exact({1, z.heads, z.rows}, z.computed(), 23, 1);
  }
  AttentionGradients by_library(const AttentionOptions& options) const {
    AttentionSaved saved;
    attention_forward(q, k, v, options, saved);
    return attention_backward_tangent(q, k, v, options, saved, flow, tangents, moves);
  }
};

std::vector<Tensor> all_of(const AttentionGradients& g) {
  std::vector<Tensor> all{g.q, g.k, g.v};
  if (g.sinks.defined()) all.push_back(g.sinks);
  all.insert(all.end(), g.bias.begin(), g.bias.end());
  return all;
}

/// In plain operations of `dtype`, by reverse mode twice: the derivative of <x', g(x)> by x, because second derivatives
/// are symmetric, and the gradients for the tangent of the incoming gradient.
std::vector<Tensor> plain_second(const Option& option, const OptionSizes& z, const SecondDirection& at, Dtype dtype) {
  std::vector<Tensor> x;
  for (const Tensor& value : {at.q, at.k, at.v}) x.push_back(value.to(dtype).clone().requires_grad_());
  const Tensor y = in_plain_operations(option, z, x[0], x[1], x[2], dtype);
  const std::vector<Tensor> first =
      grad({y}, x, {.grad_outputs = {at.flow.grad_output.to(dtype)}, .create_graph = true});
  Tensor sum;
  const Tensor along[] = {at.tangents.q, at.tangents.k, at.tangents.v};
  for (std::size_t n = 0; n < x.size(); ++n) {
    const Tensor part = mul(first[n], along[n].to(dtype)).sum();
    sum = sum.defined() ? add(sum, part) : part;
  }
  std::vector<Tensor> found = grad({sum}, x, {.create_graph = true});
  const std::vector<Tensor> by_flow = grad({y}, x, {.grad_outputs = {at.moves.grad_output.to(dtype)}});
  for (std::size_t n = 0; n < found.size(); ++n) found[n] = add(found[n].detach(), by_flow[n]);
  return found;
}

TEST(GradientTangent, IsAsNearTheTruthAsPlainOperationsOfItsType) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const Option& option : twice_moving_options()) {
      SCOPED_TRACE(::testing::Message() << option.name << " " << name_of(dtype));
      const OptionSizes z{.rows = 150, .dtype = dtype};
      const SecondDirection at(z);
      const AttentionGradients ours = at.by_library(option.make(z, as_it_is));
      const bool f64 = dtype == Dtype::f64;
      const std::vector<Tensor> truth = plain_second(option, z, at, Dtype::f64),
                                plain = plain_second(option, z, at, f64 ? Dtype::f64 : Dtype::f32);
      // of f64 the truth has rounding errors of its own
      const double eps = f64 ? 0x1p-51 : dtype == Dtype::f32 ? 0x1p-23 : dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
      const Tensor results[] = {ours.q, ours.k, ours.v};
      for (std::size_t n = 0; n < 3; ++n) {
        EXPECT_EQ(results[n].dtype(), dtype);
        expect_within(results[n], plain[n].to_vector(), truth[n].to_vector(), eps);
      }
    }
}

/// Everything moves, in f64, the gradients of sinks and biases too, beside central differences of the gradients. The
/// bound is the error of the difference: with steps h and 2h it has h^2 and 4 h^2 times the same derivative, and
/// rounding errors of eps / h.
TEST(GradientTangent, OfEveryOperandIsTheLimitOfDifferences) {
  for (const Option& option : twice_moving_options())
    for (const bool logsumexp : {false, true}) {
      SCOPED_TRACE(::testing::Message() << option.name << " " << logsumexp);
      const OptionSizes z{.rows = 40, .dtype = Dtype::f64};
      const AttentionOptions options = option.make(z, as_it_is);
      const SecondDirection at(z, options, logsumexp);
      const auto gradients = [&](double h) {
        const Direction there = at.moved(h);
        const AttentionOptions moved = at.moved(options, h);
        AttentionSaved saved;
        attention_forward(there.q, there.k, there.v, moved, saved);
        AttentionBackwardOptions flow = at.flow;
        flow.grad_output = Direction::by(at.flow.grad_output, at.moves.grad_output, h);
        if (logsumexp) flow.grad_logsumexp = Direction::by(at.flow.grad_logsumexp, at.moves.grad_logsumexp, h);
        return all_of(attention_backward(there.q, there.k, there.v, moved, saved, flow));
      };
      const double h = 0x1p-14;
      const std::vector<Tensor> ours = all_of(at.by_library(options)), up = gradients(h), down = gradients(-h),
                                far_up = gradients(2 * h), far_down = gradients(-2 * h);
      ASSERT_EQ(ours.size(), up.size());
      for (std::size_t n = 0; n < ours.size(); ++n) {
        const std::vector<double> x = ours[n].to_vector(), a = up[n].to_vector(), b = down[n].to_vector(),
                                  c = far_up[n].to_vector(), d = far_down[n].to_vector();
        double largest = 0, bend = 0, error = 0;
        for (std::size_t m = 0; m < x.size(); ++m) {
          const double near = (a[m] - b[m]) / (2 * h), far = (c[m] - d[m]) / (4 * h);
          largest = std::max({largest, std::abs(a[m]), std::abs(b[m])});
          bend = std::max(bend, std::abs(near - far));
          error = std::max(error, std::abs(x[m] - near));
        }
        EXPECT_LE(error, bend + 64 * 0x1p-52 * largest / h) << "result " << n;
      }
    }
}

AttentionGradients by_kernel(const SecondDirection& at, const AttentionOptions& options, const AttentionSaved& saved,
                             const kernels::GradientKernel& kernel) {
  Call call = check("test", at.q, at.k, at.v, options);
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, saved.dropout_seed, call.dtype() == Dtype::f64, call.problem);
  const BackwardPlan plan{"test", &kernel, &kernels::gradient_tangent_reference(kernels::reference())};
  AttentionBackward flows;
  flows.output = call.with_heads(at.flow.grad_output);
  flows.logsumexp = at.flow.grad_logsumexp;
  return gradient_tangent_of(call, checked_saved(call, saved), options, flows,
                             {at.tangents, at.moves.grad_output, at.moves.grad_logsumexp}, &plan);
}
void expect_same(const AttentionGradients& a, const AttentionGradients& b, const std::string& what) {
  const std::vector<Tensor> x = all_of(a), y = all_of(b);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t n = 0; n < x.size(); ++n) EXPECT_TRUE(bits_equal(x[n], y[n])) << what << ", result " << n;
}

void expect_bits_everywhere(const SecondDirection& at, const AttentionOptions& options) {
  AttentionSaved saved;
  attention_forward(at.q, at.k, at.v, options, saved);
  const bool f64 = at.q.dtype() == Dtype::f64;
  const AttentionGradients expected =
      by_kernel(at, options, saved, kernels::gradient_tangent_reference(*kernels::reference_generic()));
  if (kernels::reference_fma() != nullptr)
    expect_same(by_kernel(at, options, saved, kernels::gradient_tangent_reference(*kernels::reference_fma())), expected,
                "fma");
  for (const std::string& name : runtime::targets())
    if (const auto* target = kernels::tangent_target(name.c_str()); target != nullptr)
      expect_same(by_kernel(at, options, saved, f64 ? target->gradient_f64 : target->gradient_f32), expected, name);
  const int before = num_threads();
  for (const int threads : {1, 3, 16}) {
    set_num_threads(threads);
    expect_same(attention_backward_tangent(at.q, at.k, at.v, options, saved, at.flow, at.tangents, at.moves), expected,
                std::to_string(threads));
  }
  set_num_threads(before);
}

TEST(GradientTangentBits, EveryTargetAndThreadCountHasTheBitsOfTheSpecification) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const auto& [rows, dim] : {std::pair{1, 1}, {7, 5}, {67, 17}, {150, 33}, {130, 80}})
      for (const Option& option : twice_moving_options()) {
        SCOPED_TRACE(::testing::Message() << option.name << " " << name_of(dtype) << " " << rows << " x " << dim);
        const OptionSizes z{.rows = rows, .dim = dim, .dtype = dtype};
        const AttentionOptions options = option.make(z, as_it_is);
        expect_bits_everywhere(SecondDirection(z, options, rows == 67), options);
      }
}

/// A tangent that is not given has no terms.
TEST(GradientTangentBits, OfSomeTangentsAreThoseOfTheSpecification) {
  const OptionSizes z{.rows = 100, .dim = 20};
  const AttentionOptions options{.mask = Mask::causal(),
                                 .bias = Bias::dense(exact({z.rows, z.rows}, Dtype::f32, 9)),
                                 .softcap = 3,
                                 .sinks = exact({z.heads}, Dtype::f32, 10)};
  for (int given = 0; given < 64; ++given) {
    SCOPED_TRACE(given);
    SecondDirection at(z, options);
    if ((given & 1) == 0) at.tangents.q = {};
    if ((given & 2) == 0) at.tangents.k = {};
    if ((given & 4) == 0) at.tangents.v = {};
    if ((given & 8) == 0) at.tangents.bias = {};
    if ((given & 16) == 0) at.tangents.sinks = {};
    if ((given & 32) == 0) at.moves = {};
    expect_bits_everywhere(at, options);
    if (given != 0) continue;
    for (const Tensor& x : all_of(at.by_library(options))) EXPECT_TRUE(bits_equal(abs(x), zeros(x.sizes())));
  }
}

/// Grouped heads of K and of V, other lengths of K, rows in the middle of the keys.
TEST(GradientTangentBits, OfGroupedHeadsAndLongKeys) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    SecondDirection at(OptionSizes{.rows = 1, .dtype = dtype});
    const auto make = [&](Dims sizes, std::uint64_t seed) { return exact(sizes, dtype, seed, 1); };
    at.q = make({2, 6, 70, 24}, 1), at.k = make({2, 2, 700, 24}, 2), at.v = make({2, 3, 700, 10}, 3);
    at.tangents = {make(at.q.sizes(), 4), make(at.k.sizes(), 5), make(at.v.sizes(), 6), {}, {}};
    at.flow.grad_output = make({2, 6, 70, 10}, 7), at.moves.grad_output = make({2, 6, 70, 10}, 8);
    expect_bits_everywhere(at, {.mask = Mask::window(500, 3, Align::bottom_right),
                                .query_lengths = tensor<std::int64_t>({70, 31}),
                                .key_lengths = tensor<std::int64_t>({700, 611})});
  }
}

/// Sequences packed one after another have the bits of each alone.
TEST(GradientTangentBits, DoNotDependOnPacking) {
  const std::int64_t lengths[] = {90, 33}, heads = 2, dim = 16;
  std::vector<SecondDirection> alone;
  SecondDirection packed(OptionSizes{.rows = 1});
  const auto all = [](SecondDirection& at) {
    return std::array{&at.q,
                      &at.k,
                      &at.v,
                      &at.tangents.q,
                      &at.tangents.k,
                      &at.tangents.v,
                      &at.flow.grad_output,
                      &at.moves.grad_output};
  };
  for (const std::int64_t rows : lengths) alone.emplace_back(OptionSizes{.heads = heads, .rows = rows, .dim = dim});
  for (std::size_t n = 0; n < 8; ++n) {
    std::vector<Tensor> rows;
    for (SecondDirection& at : alone) rows.push_back(all(at)[n]->squeeze(0).transpose(0, 1));
    *all(packed)[n] = cat(rows, 0);
  }
  const AttentionGradients together =
      packed.by_library({.mask = Mask::causal(), .cu_seqlens_q = tensor<std::int64_t>({0, 90, 123})});
  std::int64_t first = 0;
  for (std::size_t n = 0; n < alone.size(); ++n) {
    const AttentionGradients expected = alone[n].by_library({.mask = Mask::causal()});
    const auto of = [&](const Tensor& x) { return x.reshape({heads, 123, dim}).slice(1, first, first + lengths[n]); };
    EXPECT_TRUE(bits_equal(of(together.q), expected.q.squeeze(0)));
    EXPECT_TRUE(bits_equal(of(together.k), expected.k.squeeze(0)));
    EXPECT_TRUE(bits_equal(of(together.v), expected.v.squeeze(0)));
    first += lengths[n];
  }
}

/// NaN and infinities of masked keys, and of rows that see none, change nothing; a NaN that is seen reaches what sees
/// it.
TEST(GradientTangent, WhatIsHiddenTakesNoPart) {
  const OptionSizes z{.rows = 70, .dim = 8};
  const Tensor mask = empty({z.rows, z.rows}, Dtype::boolean);
  for (std::int64_t i = 0; i < z.rows; ++i)
    for (std::int64_t j = 0; j < z.rows; ++j) mask.data<bool>()[i * z.rows + j] = i != 5 && (i != 7 || j == 3) && j % 2;
  constexpr double nan = std::numeric_limits<double>::quiet_NaN(), infinity = std::numeric_limits<double>::infinity();
  for (const bool softcap : {false, true}) {
    const AttentionOptions options{.mask = Mask::attend(mask), .softcap = softcap ? 2.0 : 0.0};
    const AttentionGradients expected = SecondDirection(z).by_library(options);
    for (const double what : {nan, infinity, -infinity}) {
      SecondDirection other(z);
      for (Tensor* x : {&other.k, &other.v, &other.tangents.k, &other.tangents.v}) {
        *x = x->clone();
        for (std::int64_t j = 0; j < z.rows; j += 2) x->slice(2, j, j + 1).fill_(what);
      }
      for (Tensor* x : {&other.q, &other.tangents.q, &other.flow.grad_output, &other.moves.grad_output}) {
        *x = x->clone();
        x->slice(2, 5, 6).fill_(what);
      }
      expect_same(other.by_library(options), expected, std::to_string(what));
    }
    SecondDirection seen(z);
    seen.tangents.k = seen.tangents.k.clone();
    seen.tangents.k.slice(2, 3, 4).fill_(nan);
    const AttentionGradients g = seen.by_library(options);
    EXPECT_TRUE(std::isnan(g.q[0][0][7][0].item()));
    EXPECT_EQ(g.q[0][0][5][0].item(), 0);
    EXPECT_EQ(g.k[0][0][4][0].item(), 0);
  }
}

/// A matrix of all pairs would be 128 MiB here.
TEST(GradientTangent, NeedsNoMemoryForPairs) {
  const OptionSizes z{.rows = sanitized ? 2048 : 4096, .dim = 4};
  for (const Option& option : twice_moving_options()) {
    const AttentionOptions options = option.make(z, as_it_is);
    const SecondDirection at(z, options);
    AttentionSaved saved;
    attention_forward(at.q, at.k, at.v, options, saved);
    const std::size_t before = runtime::allocated_bytes();
    runtime::reset_peak();
    attention_backward_tangent(at.q, at.k, at.v, options, saved, at.flow, at.tangents, at.moves);
    EXPECT_LT(runtime::peak_bytes() - before, std::size_t{8} << 20) << option.name;
  }
}

const OwnCase own_cases[] = {
#include "cases/jvp.inc"
};

TEST(ForwardMode, CasesHaveTheDigestsOfTheirTableOnEveryTarget) { expect_digests(own_cases); }

TEST(GradientTangent, ErrorsNameWhatIsGivenAndWhatIsNeeded) {
  const Tensor x = exact({1, 2, 5, 4}, Dtype::f32, 1), small = exact({1, 2, 5, 3}, Dtype::f32, 1);
  const auto call = [&](const AttentionBackwardOptions& flow, const AttentionTangents& tangents,
                        const AttentionFlowTangents& moves, const AttentionOptions& options = {}) {
    AttentionSaved saved;
    attention_forward(x, x, x, {}, saved);
    return attention_backward_tangent(x, x, x, options, saved, flow, tangents, moves);
  };
  EXPECT_EQ(error_of<ValueError>([&] { call({}, {}, {}); }),
            "attention_backward_tangent: grad_output is undefined; it is needed");
  EXPECT_EQ(error_of<ShapeError>([&] { call({.grad_output = small}, {}, {}); }),
            "attention_backward_tangent: grad_output has shape [1, 2, 5, 3]; it must be [1, 2, 5, 4]");
  EXPECT_EQ(error_of<DtypeError>([&] { call({.grad_output = x}, {}, {.grad_output = x.to(Dtype::f64)}); }),
            "attention_backward_tangent: the tangent of grad_output is f64; it must be f32");
  EXPECT_EQ(error_of<ShapeError>([&] { call({.grad_output = x}, {.q = small}, {}); }),
            "attention_backward_tangent: the tangent of q has shape [1, 2, 5, 3]; it must be [1, 2, 5, 4] as q");
  EXPECT_EQ(error_of<ValueError>([&] { call({.grad_output = x, .grad_q = x.clone()}, {}, {}); }),
            "attention_backward_tangent: memory for gradients is given; the results are always new");
  EXPECT_EQ(error_of<ValueError>(
                [&] { call({.grad_output = x}, {.q = x}, {}, {.score_mod = ScoreExpression::parse("tanh(s)")}); }),
            "attention_backward_tangent: score_mod is given, whose second derivative this pass does not have; "
            "differentiate twice (autograd.h)");
  EXPECT_EQ(error_of<ValueError>([&] { call({.grad_output = x}, {.q = x.clone().requires_grad_()}, {}); }),
            "attention_backward_tangent: an operand or a tangent requires a gradient, which the results do not have; "
            "call it under NoGrad");
}

}  // namespace
}  // namespace attn::testing
