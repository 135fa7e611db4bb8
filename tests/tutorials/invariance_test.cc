// tests/tutorials/invariance_test.cc: a sentence has the same bits alone and in a padded batch, through whole modules.
#include "support/golden.h"

#include <attn/attention.h>
#include <attn/nn.h>
#include <attn/random.h>
#include <attn/runtime.h>

#include <functional>
#include <limits>
#include <vector>

namespace attn::testing {
namespace {

constexpr std::int64_t channels = 24;
const std::vector<std::int64_t>& lengths() {  // around the blocks of 64 keys
  static const std::vector<std::int64_t> all = {1, 5, 63, 64, 65, 130};
  return all;
}
constexpr std::int64_t padded_length = 137;

/// What stands in the padding must not matter, not even this.
enum class Padding { zeros, numbers, nans };

struct Batch {
  std::vector<Tensor> sentences;  // [length, channels] each
  Tensor padded;                  // [sentences, padded_length, channels]
  Tensor key_lengths;             // [sentences]
  Tensor is_padding;              // bool [sentences, padded_length]
};

Batch make_batch(Padding padding, bool on_the_left = false) {
  manual_seed(11);
  Batch batch;
  const auto count = static_cast<std::int64_t>(lengths().size());
  for (const std::int64_t length : lengths()) batch.sentences.push_back(randn({length, channels}));
  batch.padded =
      padding == Padding::zeros ? zeros({count, padded_length, channels}) : randn({count, padded_length, channels});
  if (padding == Padding::nans) batch.padded.fill_(std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor& sentence = batch.sentences[static_cast<std::size_t>(i)];
    batch.padded[i].narrow(0, on_the_left ? padded_length - sentence.size(0) : 0, sentence.size(0)).copy_(sentence);
  }
  batch.key_lengths = tensor<std::int64_t>(lengths());
  batch.is_padding = ge(arange(padded_length), batch.key_lengths.unsqueeze(-1));
  return batch;
}

using Alone = std::function<Tensor(const Tensor& sentence)>;  // [1, length, channels] -> [1, length, ..]
using Together = std::function<Tensor(const Batch& batch)>;   // -> [sentences, padded_length, ..]

void expect_same_rows(const Alone& alone, const Together& together) {
  for (const Padding padding : {Padding::zeros, Padding::numbers, Padding::nans}) {
    const Batch batch = make_batch(padding);
    const Tensor all = together(batch).detach();
    for (std::size_t i = 0; i < batch.sentences.size(); ++i) {
      SCOPED_TRACE("sentence of " + std::to_string(lengths()[i]) + ", padding " +
                   std::to_string(static_cast<int>(padding)));
      const Tensor rows = all[static_cast<std::int64_t>(i)].slice(0, 0, lengths()[i]).contiguous();
      EXPECT_TRUE(bits_equal(rows, alone(batch.sentences[i].unsqueeze(0)).detach()[0].contiguous()));
    }
  }
}

TEST(Invariance, MultiheadAttention) {
  manual_seed(1);
  const nn::MultiheadAttention mha(channels, 4, {.batch_first = true});
  const auto call = [&](const Tensor& x, const nn::MultiheadAttentionCall& masks) {
    return mha(x, x, x, masks).output;
  };
  expect_same_rows([&](const Tensor& x) { return call(x, {}); },
                   [&](const Batch& b) { return call(b.padded, {.key_padding_mask = b.is_padding}); });
  expect_same_rows(
      [&](const Tensor& x) { return call(x, {.need_weights = false}); },
      [&](const Batch& b) { return call(b.padded, {.key_padding_mask = b.is_padding, .need_weights = false}); });
}

TEST(Invariance, WeightsOfMultiheadAttention) {
  manual_seed(1);
  const nn::MultiheadAttention mha(channels, 4, {.batch_first = true});
  const Batch batch = make_batch(Padding::numbers);
  const Tensor all =
      mha(batch.padded, batch.padded, batch.padded, {.key_padding_mask = batch.is_padding}).weights.detach();
  for (std::size_t i = 0; i < batch.sentences.size(); ++i) {
    const Tensor x = batch.sentences[i].unsqueeze(0);
    const Tensor here = all[static_cast<std::int64_t>(i)].slice(0, 0, lengths()[i]);
    EXPECT_TRUE(bits_equal(here.slice(1, 0, lengths()[i]).contiguous(), mha(x, x, x).weights.detach()[0].contiguous()))
        << lengths()[i];
    const Tensor hidden = here.slice(1, lengths()[i]).contiguous();
    EXPECT_TRUE(bits_equal(hidden, zeros_like(hidden))) << lengths()[i];
  }
}

TEST(Invariance, SelfAttentionByLengths) {
  manual_seed(2);
  const nn::SelfAttention module(channels, 16, 20);
  expect_same_rows([&](const Tensor& x) { return module(x); },
                   [&](const Batch& b) { return module.attend(b.padded, {.key_lengths = b.key_lengths}).output; });
}

TEST(Invariance, CausalSelfAttentionNeedsNoMaskForPaddingOnTheRight) {
  manual_seed(3);
  const nn::CausalSelfAttention module(channels, 16, 20);
  expect_same_rows([&](const Tensor& x) { return module(x); }, [&](const Batch& b) { return module(b.padded); });
}

TEST(Invariance, EinsumHeads) {
  manual_seed(4);
  const nn::MultiHeadAttention module(channels, 3);
  expect_same_rows(
      [&](const Tensor& x) { return module(x, x, x); },
      [&](const Batch& b) { return module(b.padded, b.padded, b.padded, logical_not(b.is_padding).to(Dtype::i64)); });
}

TEST(Invariance, PoolingWithALearnedQuery) {
  manual_seed(5);
  const nn::AdditiveAttention additive(channels);
  const nn::DotProductAttention dot(channels);
  const Batch batch = make_batch(Padding::nans);
  const Tensor of_additive = additive(batch.padded, batch.is_padding).context.detach();
  const Tensor of_dot = dot(batch.padded, batch.is_padding).context.detach();
  for (std::size_t i = 0; i < batch.sentences.size(); ++i) {
    SCOPED_TRACE(lengths()[i]);
    const Tensor x = batch.sentences[i].unsqueeze(0);
    const auto at = static_cast<std::int64_t>(i);
    EXPECT_TRUE(bits_equal(of_additive[at].contiguous(), additive(x).context.detach()[0].contiguous()));
    EXPECT_TRUE(bits_equal(of_dot[at].contiguous(), dot(x).context.detach()[0].contiguous()));
  }
}

TEST(Invariance, PaddingOnTheLeft) {
  const Batch batch = make_batch(Padding::nans, /*on_the_left=*/true);
  const Tensor start = tensor<std::int64_t>({padded_length}) - batch.key_lengths;
  for (const Mask& mask : {Mask(), Mask::window(70, 3)}) {
    const Tensor all =
        attention(batch.padded, batch.padded, batch.padded, {.mask = mask, .key_start = start, .query_start = -start})
            .output;
    for (std::size_t i = 0; i < batch.sentences.size(); ++i) {
      const Tensor& x = batch.sentences[i];
      EXPECT_TRUE(bits_equal(all[static_cast<std::int64_t>(i)].slice(0, padded_length - lengths()[i]).contiguous(),
                             attention(x, x, x, {.mask = mask}).output))
          << lengths()[i];
    }
  }
}

/// Row by row, as a model writes: each new word against all keys so far gives the row that the whole sentence gave.
TEST(Invariance, DecodeAndPrefill) {
  manual_seed(6);
  const Tensor q = randn({2, 4, 130, 16}), k = randn({2, 2, 130, 16}), v = randn({2, 2, 130, 16});
  const Tensor whole = attention(q, k, v, {.mask = Mask::causal()}).output;
  for (const std::int64_t t : {0, 1, 63, 64, 65, 129}) {
    const auto so_far = [&](const Tensor& x) { return x.slice(2, 0, t + 1); };
    const Tensor row =
        attention(q.narrow(2, t, 1), so_far(k), so_far(v), {.mask = Mask::causal(Align::bottom_right)}).output;
    EXPECT_TRUE(bits_equal(row.contiguous(), whole.narrow(2, t, 1).contiguous())) << t;
  }
}

TEST(Invariance, Threads) {
  manual_seed(7);
  const nn::MultiheadAttention mha(channels, 4, {.batch_first = true});
  const Batch batch = make_batch(Padding::numbers);
  const auto call = [&] {
    return mha(batch.padded, batch.padded, batch.padded, {.key_padding_mask = batch.is_padding});
  };
  const int before = num_threads();
  set_num_threads(1);
  const auto one = call();
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    const auto several = call();
    EXPECT_TRUE(bits_equal(several.output.detach(), one.output.detach())) << threads;
    EXPECT_TRUE(bits_equal(several.weights.detach(), one.weights.detach())) << threads;
  }
  set_num_threads(before);
}

}  // namespace
}  // namespace attn::testing
