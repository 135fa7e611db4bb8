// tests/mpi/heads_test.cc: attention whose heads are exchanged among ranks has the bits of one process, forward and
// backward, for every option that may stand inside the pass.
#include "mpi/world.h"

#include "attention/every_option.h"
#include "mpi/counted.h"
#include "support/golden.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>
#include <attn/rank_attention.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace attn {
namespace {

using testing::bits_equal;
using testing::on_each_number;
using testing::OptionSizes;
using testing::rank_error;

struct HeadsShape {
  std::int64_t batch, q_heads, k_heads, v_heads, length;
};

/// Options whose parameters belong to heads, beside those that every option has once.
std::vector<testing::Option> options_of_test() {
  using S = const OptionSizes&;
  using P = const testing::Place&;
  std::vector<testing::Option> all = testing::every_option();
  const auto numbers = [](S z, const Dims& sizes, std::uint64_t seed) {
    return testing::exact(sizes, z.computed(), seed);
  };
  all.push_back({"mask of heads", [](S z, P) {
                   Tensor seen = empty({1, z.heads, z.rows, z.rows}, Dtype::boolean);
                   for (std::int64_t n = 0; n < seen.numel(); ++n) seen.data<bool>()[n] = n % 7 != 3 && n % 11 != 5;
                   return AttentionOptions{.mask = Mask::causal() & ~(Mask::block(seen) & Mask::window(4, 4))};
                 }});
  for (const bool shared : {false, true})  // lists of each query head, or of groups of heads
    all.push_back({shared ? "blocks of keys of groups" : "blocks of keys of heads", [shared](S z, P) {
                     const std::int64_t block = 4, blocks = (z.rows + block - 1) / block,
                                        lists = !shared            ? z.heads
                                                : z.heads % 2 == 0 ? z.heads / 2
                                                                   : 1;
                     Tensor indices = empty({1, lists, blocks, 3}, Dtype::i64);
                     for (std::int64_t n = 0; n < indices.numel(); ++n)
                       indices.data<std::int64_t>()[n] = n % 3 == 0 ? n / 3 % blocks : (n * 7 + n / blocks) % blocks;
                     return AttentionOptions{.mask = Mask::causal() & Mask::blocks(indices, block)};
                   }});
  all.push_back({"dense bias of heads", [numbers](S z, P) {
                   return AttentionOptions{.bias = Bias::dense(numbers(z, {z.heads, z.rows, z.rows}, 31)) +
                                                   Bias::dense(numbers(z, {1, z.heads, 1, z.rows}, 32))};
                 }});
  all.push_back({"score expression of heads", [numbers](S z, P) {
                   // a table by head, a table that heads share, whole numbers of the head, a table of whole numbers
                   const ScoreTable own(numbers(z, {3, z.heads}, 33)),
                       kinds(tensor<std::int64_t>(std::vector<std::int64_t>(static_cast<std::size_t>(z.heads), 2)));
                   return AttentionOptions{.score_mod = [=](auto s, auto, auto h, auto i, auto j) {
                     return where(h % 3 == 1, s + 0.25 * (h + 1), s * own((i + j) % 3, h)) + own(kinds(h), h) * (h / 7);
                   }};
                 }});
  all.push_back({"score callable of heads", [](S, P) {
                   return AttentionOptions{.score_callback = [](const ScoreTile& tile) {
                     const auto head = static_cast<double>(tile.head);
                     tile.each([&](auto s, auto, auto j) { return s + head / 8 + static_cast<double>(j % 2); });
                   }};
                 }});
  all.push_back({"general score of heads", [](S z, P) {
                   return AttentionOptions{
                       .score = Score::general(testing::exact({z.heads, z.dim, z.dim}, z.dtype, 34, 0.5))};
                 }});
  all.push_back({"full weights", [](S, P) { return AttentionOptions{.weights = Weights::full}; }});
  all.push_back({"largest weights", [](S z, P) {
                   return AttentionOptions{.mask = Mask::causal(),
                                           .weights = Weights::top_k(std::min<std::int64_t>(2, z.rows))};
                 }});
  all.push_back({"lengths", [](S z, P) {
                   return AttentionOptions{.mask = Mask::causal(Align::bottom_right),
                                           .query_lengths = tensor<std::int64_t>({z.rows - z.rows / 4}),
                                           .key_lengths = tensor<std::int64_t>({z.rows - z.rows / 5})};
                 }});
  return all;
}

/// A call in one process, and its gradients.
struct WholeCall {
  Tensor q, k, v, grad_output, grad_logsumexp;
  AttentionOptions options;
  AttentionBackwardOptions wanted;
  AttentionResult result;
  AttentionGradients gradients;
  bool differentiable = true;

  WholeCall(const HeadsShape& z, const testing::Option& option, Dtype dtype) {
    constexpr std::int64_t dim = 16;
    const auto numbers = [&](std::int64_t heads, std::uint64_t seed) {
      Generator generator(seed);
      return randn({z.batch, heads, z.length, dim}, generator, Dtype::f32).to(dtype);
    };
    q = numbers(z.q_heads, 1), k = numbers(z.k_heads, 2), v = numbers(z.v_heads, 3),
    grad_output = numbers(z.q_heads, 4);
    options = option.make({.heads = z.q_heads, .rows = z.length, .dim = dim, .dtype = dtype}, testing::as_it_is);
    Generator generator(5);
    grad_logsumexp = randn({z.batch, z.q_heads, z.length}, generator, dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32);
    differentiable = options.score.kind == Score::Kind::scaled_dot && !options.score_callback.function;
    AttentionSaved saved{.output = {}, .max = {}, .sum = {}, .exact = true};
    result = attention_forward(q, k, v, options, saved);
    wanted.grad_output = grad_output, wanted.grad_logsumexp = grad_logsumexp;
    wanted.bias = !(options.bias.terms().size() == 1 && options.bias.terms()[0].kind == Bias::Kind::dense &&
                    options.bias.terms()[0].values.size(-3) != z.q_heads);
    if (differentiable) gradients = attention_backward(q, k, v, options, saved, wanted);
  }
};

Tensor rows_of(const Tensor& x, const std::vector<std::int64_t>& rows) {
  const auto count = static_cast<std::int64_t>(rows.size());
  return x.narrow(2, count == 0 ? 0 : rows[0], count);
}

void expect_bits_of(const WholeCall& whole, const Ranks& ranks) {
  const std::int64_t length = whole.q.size(2);
  const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::heads, length);
  const auto own = [&](const Tensor& x) { return rows_of(x, rows); };
  AttentionSaved saved{.output = {}, .max = {}, .sum = {}, .exact = true};
  const AttentionResult result = rank_attention_forward(own(whole.q), own(whole.k), own(whole.v), length,
                                                        RankLayout::heads, ranks, whole.options, saved);
  EXPECT_TRUE(bits_equal(result.output, own(whole.result.output)));
  EXPECT_TRUE(bits_equal(result.logsumexp, own(whole.result.logsumexp)));
  EXPECT_EQ(result.weights.defined(), whole.result.weights.defined());
  if (result.weights.defined()) { EXPECT_TRUE(bits_equal(result.weights, own(whole.result.weights))); }
  if (result.weight_keys.defined()) { EXPECT_TRUE(bits_equal(result.weight_keys, own(whole.result.weight_keys))); }
  if (!whole.differentiable) return;
  AttentionBackwardOptions wanted = whole.wanted;
  wanted.grad_output = own(wanted.grad_output), wanted.grad_logsumexp = own(wanted.grad_logsumexp);
  const AttentionGradients gradients = rank_attention_backward(own(whole.q), own(whole.k), own(whole.v), length,
                                                               RankLayout::heads, ranks, whole.options, saved, wanted);
  EXPECT_TRUE(bits_equal(gradients.q, own(whole.gradients.q)));
  EXPECT_TRUE(bits_equal(gradients.k, own(whole.gradients.k)));
  EXPECT_TRUE(bits_equal(gradients.v, own(whole.gradients.v)));
  if (whole.options.sinks.defined()) { EXPECT_TRUE(bits_equal(gradients.sinks, whole.gradients.sinks)); }
  ASSERT_EQ(gradients.bias.size(), whole.gradients.bias.size());
  for (std::size_t n = 0; n < gradients.bias.size(); ++n)
    if (whole.gradients.bias[n].defined()) { EXPECT_TRUE(bits_equal(gradients.bias[n], whole.gradients.bias[n])); }
  ASSERT_EQ(gradients.score_mod.size(), whole.gradients.score_mod.size());
  for (std::size_t n = 0; n < gradients.score_mod.size(); ++n) {
    EXPECT_EQ(gradients.score_mod[n].first.impl(), whole.gradients.score_mod[n].first.impl());
    EXPECT_TRUE(bits_equal(gradients.score_mod[n].second, whole.gradients.score_mod[n].second));
  }
}

struct NamedCall {
  std::string name;
  HeadsShape shape;
  WholeCall call;
};

/// Every option in f32, and every third of the others; with ATTN_TEST_FULL all of them in more shapes.
std::vector<NamedCall> calls_of_test() {
  const bool all = std::getenv("ATTN_TEST_FULL") != nullptr;
  std::vector<HeadsShape> shapes{{1, 10, 5, 5, 70}};
  if (all) shapes.insert(shapes.end(), {{1, 5, 5, 5, 1}, {1, 12, 6, 6, 3}, {1, 6, 6, 6, 200}, {1, 18, 9, 6, 131}});
  std::vector<NamedCall> calls;
  std::size_t number = 0;
  for (const HeadsShape& shape : shapes)
    for (const testing::Option& option : options_of_test())
      for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
        ++number;
        if (!all && dtype != Dtype::f32 && number % 3 != 0) continue;
        calls.push_back({std::string(option.name) + " " + std::string(name_of(dtype)) +
                             " T=" + std::to_string(shape.length) + " Hq=" + std::to_string(shape.q_heads),
                         shape, WholeCall(shape, option, dtype)});
      }
  return calls;
}

TEST(HeadsExchange, HasTheBitsOfOneProcess) {
  const std::vector<NamedCall> calls = calls_of_test();
  int pairs = 0;
  on_each_number([&](const Ranks& ranks) {
    for (const auto& [name, shape, call] : calls) {
      SCOPED_TRACE(name);
      if (ranks.size() > std::gcd(shape.k_heads, shape.v_heads)) continue;
      expect_bits_of(call, ranks);
      if (ranks.rank() == 0) ++pairs;
    }
  });
  if (pairs > 0) std::printf("%d pairs of calls and numbers of ranks\n", pairs);
}

TEST(HeadsExchange, BatchesHaveTheBitsOfOneProcess) {
  const testing::Option plain{"causal, dropout", [](const OptionSizes&, const testing::Place&) {
                                return AttentionOptions{.mask = Mask::causal(), .dropout_p = 0.25, .dropout_seed = 7};
                              }};
  for (const HeadsShape& shape : {HeadsShape{3, 6, 6, 6, 65}, HeadsShape{2, 12, 6, 12, 17}, HeadsShape{2, 5, 5, 5, 4}})
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
      const WholeCall whole(shape, plain, dtype);
      on_each_number([&](const Ranks& ranks) { expect_bits_of(whole, ranks); });
    }
}

/// Rows that are no block of memory: [B, T, H, D] seen as [B, H, T, D].
TEST(HeadsExchange, AnyStrides) {
  WholeCall whole({2, 5, 5, 5, 33}, testing::every_option()[1], Dtype::f32);
  for (Tensor* x : {&whole.q, &whole.k, &whole.v, &whole.grad_output})
    *x = x->transpose(1, 2).contiguous().transpose(1, 2);
  on_each_number([&](const Ranks& ranks) { expect_bits_of(whole, ranks); });
}

TEST(HeadsExchange, DrawsOneSeed) {
  const WholeCall whole({1, 5, 5, 5, 40}, testing::every_option()[0], Dtype::f32);
  on_each_number([&](const Ranks& ranks) {
    Generator own(static_cast<std::uint64_t>(ranks.rank()) + 100), first(100);
    const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::heads, 40);
    const AttentionResult result =
        rank_attention(rows_of(whole.q, rows), rows_of(whole.k, rows), rows_of(whole.v, rows), 40, RankLayout::heads,
                       ranks, {.dropout_p = 0.5, .generator = &own});
    const AttentionResult expected = attention(whole.q, whole.k, whole.v, {.dropout_p = 0.5, .generator = &first});
    EXPECT_EQ(result.dropout_seed, expected.dropout_seed);
    EXPECT_TRUE(bits_equal(result.output, rows_of(expected.output, rows)));
  });
}

TEST(HeadsExchange, WritesIntoMemoryThatIsGiven) {
  const WholeCall whole({1, 5, 5, 5, 40}, testing::every_option()[0], Dtype::f32);
  on_each_number([&](const Ranks& ranks) {
    const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::heads, 40);
    const Tensor out = empty({1, 5, static_cast<std::int64_t>(rows.size()), 16});
    const AttentionResult result = rank_attention(rows_of(whole.q, rows), rows_of(whole.k, rows),
                                                  rows_of(whole.v, rows), 40, RankLayout::heads, ranks, {.out = out});
    EXPECT_EQ(result.output.data(), out.data());
    EXPECT_TRUE(bits_equal(out, rows_of(whole.result.output, rows)));
  });
}

/// What docs/ranks.md says about bytes: rows of all heads leave for the other ranks, and come back.
TEST(HeadsExchange, MovesTheBytesOfTheFormula) {
  constexpr std::int64_t heads = 60, length = 120, dim = 16;
  Generator generator(9);
  const Tensor x = randn({1, heads, length, dim}, generator);
  on_each_number(
      [&](const Ranks& ranks) {
        const std::int64_t n = ranks.size();
        const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::heads, length);
        const Tensor own = rows_of(x, rows);
        ranks.agree();
        const testing::Counted before = testing::counted;
        rank_attention(own, own, own, length, RankLayout::heads, ranks);
        const testing::Counted after = testing::counted;
        if (length % n != 0 || heads % n != 0) return;
        // q, k, v; then the output and a number a row; the comparison of the calls is a text
        const std::int64_t payload = (n - 1) * length / n * heads / n * (4 * dim + 1) * 4;
        const std::int64_t text = after.bytes - before.bytes - payload;
        EXPECT_EQ(after.messages - before.messages, (n - 1) * (5 * heads / n + 1));
        EXPECT_GT(text, 0);
        EXPECT_LT(text, 1000 * (n - 1));
      },
      2);
}

TEST(HeadsExchange, WhatItCannotDoIsSaid) {
  Generator generator(9);
  const Tensor q = randn({1, 4, 20, 8}, generator), k = randn({1, 2, 20, 8}, generator);
  on_each_number(
      [&](const Ranks& ranks) {
        const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::heads, 20);
        const auto own = [&](const Tensor& x) { return rows_of(x, rows); };
        const auto error = [&](const AttentionOptions& options, const Tensor& keys) {
          return rank_error(
              ranks, [&] { rank_attention(own(q), own(keys), own(keys), 20, RankLayout::heads, ranks, options); });
        };
        if (ranks.size() > 2) {
          EXPECT_EQ(error({}, k), "rank 0: rank_attention: " + std::to_string(ranks.size()) +
                                      " ranks, but k has 2 heads; when heads are exchanged each rank needs one: use at "
                                      "most 2 ranks, or stripes");
          return;
        }
        EXPECT_EQ(error({.sinks = zeros({3})}, k),
                  "rank 0: rank_attention: sinks have shape [3]; they must be [4], one for each query head");
        EXPECT_EQ(error({.weights = Weights::head_average}, k),
                  "rank 0: rank_attention: weights are head_average, which ranks do not return; full and top_k(n) are "
                  "the ones of a rank's own rows");
        EXPECT_EQ(error({.mask = Mask::attend(zeros({3, 20, 20}, Dtype::boolean))}, k).find("rank 0: rank_attention: "),
                  0U);
        AttentionSaved saved;
        const AttentionOptions shared{.bias = Bias::dense(zeros({20, 20}))};
        rank_attention_forward(own(q), own(k), own(k), 20, RankLayout::heads, ranks, shared, saved);
        const auto backward = [&](const AttentionOptions& options, const AttentionBackwardOptions& wanted) {
          return rank_error(ranks, [&] {
            rank_attention_backward(own(q), own(k), own(k), 20, RankLayout::heads, ranks, options, saved, wanted);
          });
        };
        EXPECT_EQ(backward(shared, {.grad_output = own(q)}),
                  "rank 0: rank_attention_backward: a dense bias has shape [20, 20]: its gradient is a sum over heads, "
                  "which are at several ranks; give a bias for each of the 4 heads, or ask for no gradient of it");
        const ScoreTable table(zeros({20}));
        EXPECT_EQ(backward({.score_mod = [&](auto s, auto, auto, auto i, auto) { return s + table(i); }},
                           {.grad_output = own(q)}),
                  "rank 0: rank_attention_backward: score_mod looks up a tensor [20] without h alone as an index: its "
                  "gradient is a sum over heads, which are at several ranks; ask for no gradient of it");
      },
      2);
}

TEST(HeadsExchange, OneRanksMistakeIsAnErrorOfAll) {
  Generator generator(9);
  const Tensor x = randn({1, 5, 20, 8}, generator);
  on_each_number(
      [&](const Ranks& ranks) {
        const std::vector<std::int64_t> rows = rank_rows(ranks, RankLayout::heads, 20);
        const Tensor own = rows_of(x, rows);
        for (int guilty = 0; guilty < ranks.size(); ++guilty) {
          const bool mine = ranks.rank() == guilty;
          const std::string who = "rank " + std::to_string(guilty) + ": rank_attention: ";
          const auto error = [&](const Tensor& q, const AttentionOptions& options) {
            return rank_error(ranks, [&] { rank_attention(q, own, own, 20, RankLayout::heads, ranks, options); });
          };
          EXPECT_EQ(error(mine ? Tensor() : own, {}), who + "q is undefined");
          EXPECT_EQ(error(own, {.temperature = mine ? -1.0 : 1.0}),
                    who + "temperature is -1; it must be above 0, and finite");
          EXPECT_NE(error(mine ? x : own, {}).find(who + "q has shape [1, 5, 20, 8]; of 20 rows on"),
                    std::string::npos);
          // options that fit everywhere, and differ
          const std::string differ = error(own, {.softcap = mine ? 3.0 : 2.0});
          EXPECT_NE(differ.find("rank_attention: the call is"), std::string::npos) << differ;
          const std::string slopes = error(own, {.bias = Bias::alibi(full({5}, mine ? 1.0 : 0.5))});
          EXPECT_NE(slopes.find("rank_attention: the call is"), std::string::npos) << slopes;
        }
      },
      2);
}

TEST(HeadsExchange, NoHistoryIsLostInSilence) {
  Generator generator(9);
  const Tensor x = randn({1, 5, 20, 8}, generator);
  on_each_number([&](const Ranks& ranks) {
    const Tensor own = rows_of(x, rank_rows(ranks, RankLayout::heads, 20)).clone();
    Tensor q = own.clone();
    q.requires_grad_();
    EXPECT_THROW(rank_attention(q, own, own, 20, RankLayout::heads, ranks), Error);
    const NoGrad guard;
    EXPECT_NO_THROW(rank_attention(q, own, own, 20, RankLayout::heads, ranks));
  });
}

}  // namespace
}  // namespace attn
