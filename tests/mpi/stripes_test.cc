// tests/mpi/stripes_test.cc: attention on ranks whose rows are in stripes has the bits of one process, forward and
// backward; a mistake of one rank is an error of all.
#include "mpi/counted.h"
#include "mpi/world.h"

#include "support/golden.h"

#include <attn/attention_backward.h>
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/rank_attention.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>

namespace attn {
namespace {

using testing::bits_equal;
using testing::on_each_number;
using testing::rank_error;

Tensor drawn(const Dims& sizes, std::uint64_t seed, Dtype dtype) {
  Generator generator(seed);
  return randn(sizes, generator, Dtype::f64).to(dtype);
}

/// Returns this rank's rows of x [B, H, T, ...].
Tensor own_rows(const Tensor& x, const Ranks& ranks) {
  const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::stripes, x.size(2));
  return x.index_select(2, tensor<std::int64_t>(rows, {static_cast<std::int64_t>(rows.size())}));
}

struct StripesCase {
  Dtype dtype;
  std::int64_t length, q_heads, k_heads, v_heads;
  std::int64_t batch = 2, dim = 16, width = 24;
  std::string options;
};

std::ostream& operator<<(std::ostream& out, const StripesCase& c) {
  return out << name_of(c.dtype) << " T " << c.length << " Hq " << c.q_heads << " Hk " << c.k_heads << " Hv "
             << c.v_heads << " " << c.options;
}

AttentionOptions options_of(const StripesCase& c) {
  const Dtype computed = c.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  AttentionOptions o;
  const std::string& name = c.options;
  if (name == "causal") o.mask = Mask::causal();
  if (name == "window, sinks") o.mask = Mask::window(500, 10), o.sinks = drawn({c.q_heads}, 7, computed);
  if (name == "alibi") o.mask = Mask::causal(), o.bias = Bias::alibi(drawn({c.q_heads}, 8, computed)), o.softcap = 4;
  if (name == "relative") o.bias = Bias::relative(drawn({32, c.q_heads}, 9, computed)), o.temperature = 1.5;
  if (name == "dropout, sinks")
    o.mask = Mask::causal(), o.dropout_p = 0.2, o.dropout_seed = 5, o.sinks = drawn({c.q_heads}, 7, computed);
  if (name == "lengths, prefix") {
    o.key_lengths = tensor<std::int64_t>({c.length, c.length / 2}, {2}).narrow(0, 0, c.batch).contiguous();
    o.query_lengths = tensor<std::int64_t>({c.length - c.length / 3, c.length}, {2}).narrow(0, 0, c.batch).contiguous();
    o.mask = Mask::causal(Align::bottom_right) | Mask::prefix(c.length / 4);
  }
  return o;
}

void expect_bits(const StripesCase& c) {
  const Tensor q = drawn({c.batch, c.q_heads, c.length, c.dim}, 1, c.dtype),
               k = drawn({c.batch, c.k_heads, c.length, c.dim}, 2, c.dtype),
               v = drawn({c.batch, c.v_heads, c.length, c.width}, 3, c.dtype),
               dout = drawn({c.batch, c.q_heads, c.length, c.width}, 4, c.dtype),
               dlse = drawn({c.batch, c.q_heads, c.length}, 5, c.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
  const AttentionOptions options = options_of(c);
  AttentionSaved whole_saved;
  const AttentionResult whole = attention_forward(q, k, v, options, whole_saved);
  AttentionBackwardOptions wanted{.grad_output = dout, .grad_logsumexp = dlse};
  wanted.bias = false;
  const AttentionGradients expected = attention_backward(q, k, v, options, whole_saved, wanted);
  on_each_number([&](const Ranks& ranks) {
    const auto own = [&](const Tensor& x) { return own_rows(x, ranks); };
    AttentionSaved saved;
    const AttentionResult result =
        rank_attention_forward(own(q), own(k), own(v), c.length, RankLayout::stripes, ranks, options, saved);
    EXPECT_TRUE(bits_equal(result.output, own(whole.output))) << c;
    EXPECT_TRUE(bits_equal(result.logsumexp, own(whole.logsumexp))) << c;
    EXPECT_TRUE(bits_equal(saved.max, own(whole_saved.max))) << c;
    AttentionBackwardOptions of_rank = wanted;
    of_rank.grad_output = own(dout), of_rank.grad_logsumexp = own(dlse);
    const AttentionGradients gradients =
        rank_attention_backward(own(q), own(k), own(v), c.length, RankLayout::stripes, ranks, options, saved, of_rank);
    EXPECT_TRUE(bits_equal(gradients.q, own(expected.q))) << c;
    EXPECT_TRUE(bits_equal(gradients.k, own(expected.k))) << c;
    EXPECT_TRUE(bits_equal(gradients.v, own(expected.v))) << c;
    ASSERT_EQ(gradients.sinks.defined(), expected.sinks.defined());
    if (expected.sinks.defined()) { EXPECT_TRUE(bits_equal(gradients.sinks, expected.sinks)) << c; }
  });
}

const char* const option_names[] = {"full",     "causal",         "window, sinks",  "alibi",
                                    "relative", "dropout, sinks", "lengths, prefix"};

TEST(Stripes, HaveTheBitsOfOneProcess) {
  const bool all = std::getenv("ATTN_TEST_FULL") != nullptr;
  int number = 0, calls = 0;
  for (const std::int64_t length : {0, 1, 63, 64, 65, 1023, 1024, 1025, 3000})
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
      for (const std::int64_t group : {1, 2, 4})
        for (const char* name : option_names) {
          // a sample that meets each length, dtype, group and option, of which the long ones are few
          if (!all && number++ % (length < 100 ? 23 : length < 2000 ? 37 : 41) != 0) continue;
          expect_bits({dtype, length, 4, 4 / group, 4 / group, 2, 16, 24, name});
          ++calls;
        }
  expect_bits({Dtype::f32, 1100, 8, 4, 2, 1, 16, 24, "causal"});
  expect_bits({Dtype::bf16, 1100, 8, 2, 4, 1, 16, 24, "dropout, sinks"});
  // more chunks than are on their way together
  expect_bits({Dtype::f32, 6200, 2, 1, 1, 1, 16, 16, "causal"});
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const char* name : option_names)
      if (all) expect_bits({dtype, 8192, 4, 2, 2, 1, 16, 24, name}), ++calls;
  const Ranks world = mpi::Ranks(MPI_COMM_WORLD);
  if (world.rank() == 0) std::printf("%d calls on 1 to %d ranks, forward and backward\n", calls + 3, world.size());
}

TEST(Stripes, NumbersThatAreNotFiniteStayWhereTheyAre) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    Tensor q = drawn({1, 2, 1200, 16}, 1, dtype), k = drawn({1, 2, 1200, 16}, 2, dtype),
           v = drawn({1, 2, 1200, 16}, 3, dtype), dout = drawn({1, 2, 1200, 16}, 4, dtype);
    const double infinity = std::numeric_limits<double>::infinity();
    k.narrow(2, 1100, 1).fill_(infinity), v.narrow(2, 300, 1).fill_(std::nan(""));
    q.narrow(2, 700, 1).fill_(infinity), dout.narrow(2, 70, 1).fill_(infinity);
    const AttentionOptions options{.mask = Mask::causal()};
    AttentionSaved saved;
    const Tensor whole = attention_forward(q, k, v, options, saved).output;
    const AttentionGradients expected = attention_backward(q, k, v, options, saved, {.grad_output = dout});
    on_each_number([&](const Ranks& ranks) {
      const auto own = [&](const Tensor& x) { return own_rows(x, ranks); };
      AttentionSaved mine;
      EXPECT_TRUE(bits_equal(
          rank_attention_forward(own(q), own(k), own(v), 1200, RankLayout::stripes, ranks, options, mine).output,
          own(whole)));
      const AttentionGradients g = rank_attention_backward(own(q), own(k), own(v), 1200, RankLayout::stripes, ranks,
                                                           options, mine, {.grad_output = own(dout)});
      EXPECT_TRUE(bits_equal(g.q, own(expected.q)) && bits_equal(g.k, own(expected.k)) &&
                  bits_equal(g.v, own(expected.v)))
          << name_of(dtype);
    });
  }
}

/// Returns the bytes that all ranks send together in a forward and in a backward pass.
std::pair<std::int64_t, std::int64_t> bytes_of(std::int64_t length, const Ranks& ranks) {
  const auto own = [&](const Dims& sizes) { return own_rows(drawn(sizes, 1, Dtype::f32), ranks); };
  const Tensor q = own({2, 4, length, 16}), k = own({2, 2, length, 16}), v = own({2, 1, length, 24}),
               dout = own({2, 4, length, 24});
  const auto count = [&](const std::function<void()>& work) {
    testing::counted = {};
    work();
    return testing::sum_over(ranks, testing::counted.bytes);
  };
  AttentionSaved saved;
  const std::int64_t forward =
      count([&] { rank_attention_forward(q, k, v, length, RankLayout::stripes, ranks, {}, saved); });
  const std::int64_t backward = count(
      [&] { rank_attention_backward(q, k, v, length, RankLayout::stripes, ranks, {}, saved, {.grad_output = dout}); });
  return {forward, backward};
}

TEST(Stripes, SendAsManyBytesAsTheFormulasSay) {
  on_each_number([](const Ranks& ranks) {
    // the difference of two lengths is without the texts that ranks compare
    const auto [forward, backward] = bytes_of(3000, ranks);
    const auto [less_forward, less_backward] = bytes_of(2000, ranks);
    const std::int64_t keys = 2 * 16 + 1 * 24, rows = 4 * (16 + 24 + 3), each = 2 * 1000 * 4 * (ranks.size() - 1);
    EXPECT_EQ(forward - less_forward, each * keys);
    EXPECT_EQ(backward - less_backward, each * (keys + rows));
  });
}

TEST(Stripes, ADrawnSeedIsThatOfAll) {
  on_each_number([](const Ranks& ranks) {
    Generator generator(static_cast<std::uint64_t>(ranks.rank()) + 1);
    const Tensor q = own_rows(drawn({1, 2, 200, 16}, 1, Dtype::f32), ranks);
    AttentionOptions options{.dropout_p = 0.5, .generator = &generator};
    const AttentionResult r = rank_attention(q, q, q, 200, RankLayout::stripes, ranks, options);
    for (const std::string& each : ranks.gather(std::to_string(r.dropout_seed)))
      EXPECT_EQ(each, std::to_string(r.dropout_seed));
  });
}

TEST(Stripes, WriteIntoMemoryThatIsGiven) {
  on_each_number([](const Ranks& ranks) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const Tensor x = own_rows(drawn({1, 2, 200, 16}, 1, dtype), ranks);
      AttentionSaved saved, given{.output = {}, .max = empty({1, 2, x.size(2)}), .sum = empty({1, 2, x.size(2)})};
      const Tensor max = given.max, sum = given.sum;
      given.weight_keys = zeros({1});
      rank_attention_forward(x, x, x, 200, RankLayout::stripes, ranks, {}, saved);
      rank_attention_forward(x, x, x, 200, RankLayout::stripes, ranks, {}, given);
      EXPECT_TRUE(bits_equal(max, saved.max) && bits_equal(sum, saved.sum)) << name_of(dtype);
      EXPECT_FALSE(given.weight_keys.defined());
    }
  });
}

/// Expects that a call which is wrong at one rank gives all the text, and that the ranks still work together.
void expect_error_at_all(const Ranks& ranks, const std::string& text,
                         const std::function<void(bool wrong, Tensor& q, AttentionOptions& options)>& change) {
  for (int guilty = 0; guilty < ranks.size(); ++guilty) {
    const Tensor x = own_rows(drawn({1, 2, 300, 16}, 1, Dtype::f32), ranks);
    Tensor q = x;
    AttentionOptions options;
    change(ranks.rank() == guilty, q, options);
    const std::string error =
        rank_error(ranks, [&] { rank_attention(q, x, x, 300, RankLayout::stripes, ranks, options); });
    EXPECT_EQ(error, "rank " + std::to_string(guilty) + ": rank_attention: " + text);
    AttentionSaved saved;
    const AttentionResult good = rank_attention_forward(x, x, x, 300, RankLayout::stripes, ranks, {}, saved);
    Tensor dout = good.output;
    AttentionOptions backward_options;
    change(ranks.rank() == guilty, q = x, backward_options);
    EXPECT_EQ(rank_error(ranks,
                         [&] {
                           rank_attention_backward(q, x, x, 300, RankLayout::stripes, ranks, backward_options, saved,
                                                   {.grad_output = dout, .bias = false});
                         }),
              "rank " + std::to_string(guilty) + ": rank_attention_backward: " + text);
  }
}

TEST(Stripes, WhatTheyDoNotDoIsRefusedByAll) {
  on_each_number(
      [](const Ranks& ranks) {
        const auto refused = [&](const std::string& what, const std::function<void(AttentionOptions&)>& set) {
          expect_error_at_all(ranks, what + ", which the layout stripes does not do",
                              [&](bool wrong, Tensor&, AttentionOptions& options) {
                                if (wrong) set(options);
                              });
        };
        refused("the mask has a tensor of pairs",
                [](AttentionOptions& o) { o.mask = Mask::causal() & Mask::attend(ones({300, 300}, Dtype::boolean)); });
        refused("the mask is one of documents",
                [](AttentionOptions& o) { o.mask = Mask::documents(zeros({1, 300}, Dtype::i64)); });
        refused("the mask chooses blocks of keys", [](AttentionOptions& o) {
          o.mask = Mask::causal() & Mask::blocks(zeros({1, 1, 3, 1}, Dtype::i64), 100);
        });
        refused("a dense bias is given", [](AttentionOptions& o) { o.bias = Bias::dense(zeros({300, 300})); });
        refused("a score_mod is given",
                [](AttentionOptions& o) { o.score_mod = ScoreExpression::score() * ScoreExpression(2.0); });
        refused("key_start is given", [](AttentionOptions& o) { o.key_start = zeros({1}, Dtype::i64); });
        refused("cu_seqlens is given",
                [](AttentionOptions& o) { o.cu_seqlens_q = tensor<std::int64_t>({0, 300}, {2}); });
        refused("weights are full", [](AttentionOptions& o) { o.weights = Weights::full; });
        expect_error_at_all(ranks, "temperature is 0; it must be above 0, and finite",
                            [](bool wrong, Tensor&, AttentionOptions& o) { o.temperature = wrong ? 0 : 1; });
        expect_error_at_all(ranks, "q is undefined", [](bool wrong, Tensor& q, AttentionOptions&) {
          if (wrong) q = {};
        });
        const Tensor x = own_rows(drawn({1, 2, 300, 16}, 1, Dtype::f32), ranks);
        const int last = ranks.size() - 1;
        EXPECT_EQ(rank_error(ranks,
                             [&] {
                               rank_attention(x, x, x, 300, RankLayout::stripes, ranks,
                                              {.softcap = ranks.rank() == last ? 2.0 : 0.0});
                             })
                      .substr(0, 40 + static_cast<std::size_t>(last > 9)),
                  ("rank " + std::to_string(last) + ": rank_attention: the call is f32 B=1").substr(0, 40));
        const Tensor lengths = tensor<std::int64_t>({300});
        EXPECT_NE(rank_error(ranks,
                             [&] {
                               AttentionOptions o;
                               (ranks.rank() == last ? o.query_lengths : o.key_lengths) = lengths;
                               rank_attention(x, x, x, 300, RankLayout::stripes, ranks, o);
                             })
                      .find(", query_lengths i64 [1] "),
                  std::string::npos);
        EXPECT_EQ(
            rank_error(ranks,
                       [&] {
                         rank_attention(x.narrow(2, 0, ranks.rank() == last ? 1 : x.size(2)), x, x, 300,
                                        RankLayout::stripes, ranks);
                       })
                .find("rank " + std::to_string(last) + ": rank_attention: q has shape [1, 2, 1, 16]; of 300 rows"),
            0U);
      },
      2);
}

}  // namespace
}  // namespace attn
