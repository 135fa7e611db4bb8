// tests/attention/bits_test.cc: what may not change a bit of a row: masked keys, batch, padding, threads, the cut of
// the work.
#include <attn/runtime.h>

#include "attention/calls.h"
#include "attention/call/check.h"
#include "kernels/attention/reference.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cstring>

namespace attn::testing {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

TEST(Bits, NanInAKeyOrValueChangesOnlyTheRowsThatSeeIt) {
  const std::int64_t rows = 70, keys = 200;
  const Tensor allowed = gt(normal({rows, keys}, 9), 0), padding = gt(normal({2, keys}, 10), 1);
  const Tensor shut = masked_fill(zeros({rows, keys}), allowed, -std::numeric_limits<double>::infinity());
  const std::pair<const char*, AttentionOptions> options[] = {
      {"causal", {.mask = Mask::causal(Align::bottom_right)}},
      {"window", {.mask = Mask::window(9, 2, Align::bottom_right)}},
      {"attend", {.mask = Mask::attend(allowed)}},
      {"padding", {.mask = Mask::key_padding(padding) & Mask::causal(Align::bottom_right)}},
      {"lengths", {.key_lengths = integers({150, 66}), .key_start = integers({3, 60})}},
      {"bias", {.bias = Bias::dense(shut)}},
      {"softcap", {.mask = Mask::attend(allowed), .softcap = 3}},
  };
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
    for (const auto& [name, option] : options) {
      SCOPED_TRACE(::testing::Message() << name << " " << name_of(dtype));
      const Inputs in = inputs({2, 2, rows, 16}, {2, 2, keys, 16}, 8, dtype);
      const Tensor clean = run(in, option);
      Mask mask = option.mask;
      if (!option.bias.empty()) mask = Mask::block(allowed);
      const Tensor seen =
          mask.dense(2, 2, rows, keys, {.key_lengths = option.key_lengths, .key_start = option.key_start});
      for (const std::int64_t j : {0, 1, 65, 100, 149, 150, 199}) {
        for (const double poison : {nan, std::numeric_limits<double>::infinity()}) {
          Inputs bad{in.q, in.k.clone(), in.v.clone()};
          bad.k.select(2, j).fill_(poison);
          bad.v.select(2, j).fill_(poison);
          const Tensor dirty = run(bad, option), sees = seen.select(3, j).unsqueeze(-1);
          ASSERT_TRUE(bits_equal(masked_fill(dirty, sees, 0), masked_fill(clean, sees, 0))) << "key " << j;
        }
      }
    }
}

TEST(Bits, BatchChangesNothing) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Inputs in = inputs({3, 4, 33, 20}, {3, 2, 130, 20}, 12, dtype);
    const Tensor all = run(in, {.mask = Mask::causal(Align::bottom_right)});
    for (std::int64_t b = 0; b < 3; ++b)
      EXPECT_TRUE(
          bits_equal(all.narrow(0, b, 1), run({in.q.narrow(0, b, 1), in.k.narrow(0, b, 1), in.v.narrow(0, b, 1)},
                                              {.mask = Mask::causal(Align::bottom_right)})));
  }
}

TEST(Bits, PaddingOnEitherSideChangesNothing) {
  const std::int64_t keys = 1100, rows = 5;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const std::int64_t pad : {1, 63, 64, 200}) {
      const Inputs in = inputs({1, 2, rows, 8}, {1, 2, keys, 8}, 8, dtype);
      const Tensor waste = full({1, 2, pad, 8}, nan, dtype);
      const Tensor slopes = Bias::alibi_slopes(2);
      const AttentionOptions alone{.mask = Mask::causal(Align::bottom_right),
                                   .bias = Bias::alibi(slopes, Align::bottom_right)};
      const Tensor expected = run(in, alone);
      AttentionOptions right = alone, left = alone;
      right.key_lengths = integers({keys});
      left.key_start = integers({pad});
      EXPECT_TRUE(bits_equal(run({in.q, cat({in.k, waste}, 2), cat({in.v, waste}, 2)}, right), expected));
      EXPECT_TRUE(bits_equal(run({in.q, cat({waste, in.k}, 2), cat({waste, in.v}, 2)}, left), expected));
      AttentionOptions matrix = alone;  // a boolean matrix, padding on the right
      matrix.mask =
          Mask::attend(cat({ones({1, keys}, Dtype::boolean), zeros({1, pad}, Dtype::boolean)}, -1)) & Mask::causal();
      matrix.query_start = integers({keys - rows});
      EXPECT_TRUE(bits_equal(run({in.q, cat({in.k, waste}, 2), cat({in.v, waste}, 2)}, matrix), expected));
      AttentionOptions padded_rows = alone;
      padded_rows.query_lengths = integers({rows});
      EXPECT_TRUE(bits_equal(
          run({cat({in.q, full({1, 2, pad, 8}, nan, dtype)}, 2), in.k, in.v}, padded_rows).narrow(2, 0, rows),
          expected));
    }
}

TEST(Bits, ThreadsChangeNothing) {
  const Inputs in = inputs({2, 4, 150, 16}, {2, 2, 300, 16}, 16);
  const AttentionOptions options{.mask = Mask::causal(Align::bottom_right)};
  const int before = num_threads();
  const Tensor expected = run(in, options);
  for (const int threads : {1, 2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_TRUE(bits_equal(run(in, options), expected)) << threads;
    manual_seed(3);
    const Tensor dropped =
        scaled_dot_product_attention(in.q, in.k.repeat({1, 2, 1, 1}), in.v.repeat({1, 2, 1, 1}), {.dropout_p = 0.3});
    set_num_threads(1);
    manual_seed(3);
    EXPECT_TRUE(bits_equal(
        scaled_dot_product_attention(in.q, in.k.repeat({1, 2, 1, 1}), in.v.repeat({1, 2, 1, 1}), {.dropout_p = 0.3}),
        dropped));
  }
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {  // decoding: spans of keys go to different threads
    const Inputs one = inputs({1, 8, 1, 24}, {1, 2, 5000, 24}, 16, dtype);
    set_num_threads(1);
    const Tensor alone = run(one, {});
    for (const int threads : {2, 3, 8}) {
      set_num_threads(threads);
      EXPECT_TRUE(bits_equal(run(one, {}), alone)) << threads;
    }
  }
  set_num_threads(before);
}

TEST(Bits, ARowAloneIsThatRow) {
  const std::int64_t tokens = 1300;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Inputs in = inputs({1, 4, tokens, 8}, {1, 2, tokens, 8}, 8, dtype);
    const Tensor prefill = run(in, {.mask = Mask::causal()});
    for (const std::int64_t i : {0, 63, 64, 1023, 1024, 1299}) {
      const Inputs decode{in.q.narrow(2, i, 1), in.k.narrow(2, 0, i + 1), in.v.narrow(2, 0, i + 1)};
      EXPECT_TRUE(bits_equal(run(decode, {}), prefill.narrow(2, i, 1))) << i;
      EXPECT_TRUE(bits_equal(run({decode.q, in.k, in.v}, {.mask = Mask::causal(), .query_start = integers({i})}),
                             prefill.narrow(2, i, 1)))
          << i;
    }
  }
}

TEST(Bits, DocumentsInOneSequenceAreEachAlone) {
  const std::int64_t lengths[] = {70, 1, 130, 1100};
  std::vector<std::int64_t> ids;
  for (std::int64_t d = 0; d < 4; ++d) ids.insert(ids.end(), static_cast<std::size_t>(lengths[d]), d);
  const Inputs in = inputs({1, 2, 1301, 8}, {1, 2, 1301, 8}, 8);
  const Tensor packed = run(in, {.mask = Mask::causal() & Mask::documents(integers(ids))});
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    const Inputs alone{in.q.narrow(2, start, length), in.k.narrow(2, start, length), in.v.narrow(2, start, length)};
    EXPECT_TRUE(bits_equal(packed.narrow(2, start, length), run(alone, {.mask = Mask::causal()}))) << start;
    start += length;
  }
}

TEST(Bits, TheSameMaskSaidInManyWays) {
  const std::int64_t rows = 90, keys = 140;
  const Inputs in = inputs({2, 2, rows, 16}, {2, 2, keys, 16}, 8);
  const Tensor expected = run(in, {.mask = Mask::causal(Align::bottom_right)});
  const Tensor allowed = Mask::causal(Align::bottom_right).dense(1, 1, rows, keys);
  const Mask ways[] = {Mask::attend(allowed), Mask::block(logical_not(allowed)),
                       ~Mask::block(allowed) & Mask::attend(allowed), Mask::window(-1, 0, Align::bottom_right),
                       Mask::causal(Align::bottom_right) | (Mask::none() & Mask::prefix(9))};
  for (const Mask& mask : ways) EXPECT_TRUE(bits_equal(run(in, {.mask = mask}), expected)) << mask.to_string();
  const Tensor shut = masked_fill(zeros({rows, keys}), logical_not(allowed).squeeze(0).squeeze(0),
                                  -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(bits_equal(run(in, {.bias = Bias::dense(shut)}), expected));
  EXPECT_TRUE(
      bits_equal(run(in, {.mask = Mask::causal(), .query_start = integers({keys - rows, keys - rows})}), expected));
}

/// The problem of a call with results of the specification's two builds and of the plan's kernel side by side.
TEST(Bits, BothBuildsOfTheSpecificationAndThePlanAgree) {
  const auto* fma = kernels::reference_fma();
  const std::int64_t rows = 40, keys = 1200;
  const Tensor dense = normal({1, 4, rows, keys}, 7), sinks = normal({4}, 8);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    const Inputs in = inputs({2, 4, rows, 24}, {2, 2, keys, 24}, 16, dtype);
    const Tensor table = normal({32, 4}, 11, dtype);
    const AttentionOptions options[] = {
        {},
        {.mask = Mask::causal(Align::bottom_right), .softcap = 2, .temperature = 0.7},
        {.bias = Bias::dense(dense.to(dtype)) + Bias::alibi(Bias::alibi_slopes(4), Align::bottom_right) +
                 Bias::relative(table, true, 128, Align::bottom_right),
         .sinks = sinks},
        {.score = Score::additive(normal({5, 24}, 4, dtype), normal({5, 24}, 5, dtype), normal({5}, 6, dtype))}};
    for (const AttentionOptions& option : options) {
      const Call call = check("attention", in.q, in.k, in.v, option);
      const Tensor generic = by_specification(*kernels::reference_generic()->attention, call);
      if (fma != nullptr) { EXPECT_TRUE(bits_equal(by_specification(*fma->attention, call), generic)); }
      EXPECT_TRUE(bits_equal(run(in, option), generic));
    }
  }
}

/// Rows of queries and keys that are NaN, inf, or beyond what one exponential in f32 holds, seen or hidden.
TEST(Bits, AdditiveScoresOfAnyMagnitudeHaveTheBitsOfTheSpecification) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensor allowed = gt(normal({70, 200}, 9), 0);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const std::int64_t channels : {1, 7})
      for (const double value : {nan, infinity, -infinity, 25.0, -1e4, 1e30})
        for (const bool query : {false, true}) {
          // one channel: inf reaches the score as inf; seven: a projection makes NaN of it
          const Dims weight{channels, channels};
          const Tensor w_q = channels == 1 ? ones(weight, dtype) : normal(weight, 4, dtype),
                       w_k = channels == 1 ? w_q : normal(weight, 5, dtype);
          const AttentionOptions option{.score = Score::additive(w_q, w_k, normal({channels}, 6, dtype)),
                                        .mask = Mask::attend(allowed)};
          const Inputs in = inputs({1, 2, 70, channels}, {1, 1, 200, channels}, 16, dtype);
          (query ? in.q : in.k).select(2, 67).fill_(value);
          const Call call = check("attention", in.q, in.k, in.v, option);
          ASSERT_TRUE(bits_equal(run(in, option), by_specification(kernels::attention_reference(), call)))
              << value << " " << query << " " << channels;
        }
}

}  // namespace
}  // namespace attn::testing
