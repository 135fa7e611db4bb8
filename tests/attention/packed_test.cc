// tests/attention/packed_test.cc: packed sequences and documents: the bits of each sequence alone, by the same kernels;
// errors.
#include <attn/autograd.h>

#include "attention/truth.h"
#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

/// 0, then the sums of the lengths.
Tensor cumulated(const std::vector<std::int64_t>& lengths, Dtype dtype = Dtype::i64) {
  std::vector<std::int64_t> ends{0};
  for (const std::int64_t length : lengths) ends.push_back(ends.back() + length);
  return integers(ends).to(dtype);
}

struct Packed {
  std::vector<std::int64_t> q_lengths, k_lengths;
  Tensor q, k, v;  // [total, H, D]

  Packed(std::vector<std::int64_t> of_q, std::vector<std::int64_t> of_k, std::int64_t heads, std::int64_t k_heads,
         Dtype dtype)
      : q_lengths(std::move(of_q)), k_lengths(std::move(of_k)) {
    q = normal({total(q_lengths), heads, 24}, 1, dtype);
    k = normal({total(k_lengths), k_heads, 24}, 2, dtype);
    v = normal({total(k_lengths), k_heads, 10}, 3, dtype);
  }
  static std::int64_t total(const std::vector<std::int64_t>& lengths) {
    std::int64_t sum = 0;
    for (const std::int64_t n : lengths) sum += n;
    return sum;
  }
  AttentionOptions with_lengths(AttentionOptions options, Dtype dtype = Dtype::i64) const {
    options.cu_seqlens_q = cumulated(q_lengths, dtype);
    options.cu_seqlens_k = cumulated(k_lengths, dtype);
    return options;
  }
};

/// [total, H, D] as [1, H, total, D].
Tensor heads_outside(const Tensor& x) { return x.transpose(0, 1).unsqueeze(0); }

/// Every sequence by a call of its own; `alone` gives the options of sequence s.
template <typename F>
void expect_each_alone(const Packed& in, const AttentionResult& packed, F&& alone) {
  std::int64_t row = 0, key = 0;
  for (std::size_t s = 0; s < in.q_lengths.size(); ++s) {
    const std::int64_t rows = in.q_lengths[s], keys = in.k_lengths[s];
    const auto cut = [](const Tensor& x, std::int64_t from, std::int64_t length) {
      return heads_outside(x.narrow(0, from, length));
    };
    const AttentionResult expected =
        attention(cut(in.q, row, rows), cut(in.k, key, keys), cut(in.v, key, keys), alone(s, row, key));
    ASSERT_TRUE(bits_equal(cut(packed.output, row, rows), expected.output)) << "sequence " << s;
    ASSERT_TRUE(bits_equal(packed.logsumexp.narrow(1, row, rows).unsqueeze(0), expected.logsumexp)) << "sequence " << s;
    row += rows, key += keys;
  }
}

TEST(Packed, EverySequenceHasTheBitsOfItselfAlone) {
  const std::vector<std::int64_t> q_lengths{70, 0, 1, 130, 3, 1, 200}, k_lengths{70, 5, 1300, 33, 0, 1, 1100};
  const Tensor slopes = Bias::alibi_slopes(4), table = normal({32, 4}, 8), sinks = normal({4}, 9);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Packed in(q_lengths, k_lengths, 4, 2, dtype);
    const std::pair<const char*, AttentionOptions> options[] = {
        {"plain", {}},
        {"causal", {.mask = Mask::causal(Align::bottom_right)}},
        {"top left", {.mask = Mask::causal(Align::top_left) | Mask::prefix(3), .softcap = 2}},
        {"window",
         {.mask = Mask::window(40, 2, Align::bottom_right), .bias = Bias::alibi(slopes, Align::bottom_right)}},
        {"relative", {.bias = Bias::relative(table, true, 128, Align::top_left), .temperature = 1.5, .sinks = sinks}}};
    for (const auto& [name, option] : options)
      for (const Dtype lengths : {Dtype::i32, Dtype::i64}) {
        SCOPED_TRACE(::testing::Message() << name << " " << name_of(dtype));
        const AttentionOptions packed = in.with_lengths(option, lengths);
        const AttentionResult result = attention(in.q, in.k, in.v, packed);
        EXPECT_EQ(result.output.sizes(), (Dims{405, 4, 10}));
        EXPECT_EQ(result.logsumexp.sizes(), (Dims{4, 405}));
        expect_each_alone(in, result, [&](std::size_t, std::int64_t, std::int64_t) { return option; });
        const AttentionResult outside =
            attention(heads_outside(in.q), heads_outside(in.k), heads_outside(in.v), packed);
        EXPECT_TRUE(bits_equal(outside.output, heads_outside(result.output)));
        EXPECT_TRUE(bits_equal(outside.logsumexp.squeeze(0), result.logsumexp));
      }
  }
}

TEST(Packed, OperandsOfSequencesAndOfPairs) {
  const std::vector<std::int64_t> q_lengths{20, 3, 64}, k_lengths{40, 70, 65};
  const Packed in(q_lengths, k_lengths, 2, 1, Dtype::f32);
  const Tensor allowed = gt(normal({2, 87, 175}, 4), -1), dense = normal({87, 175}, 5);
  const Tensor prefixes = integers({4, 0, 50}), starts = integers({20, 67, 0});
  const AttentionResult result =
      attention(in.q, in.k, in.v,
                in.with_lengths({.mask = Mask::attend(allowed) & (Mask::causal() | Mask::prefix(prefixes)),
                                 .bias = Bias::dense(dense),
                                 .query_start = starts}));
  expect_each_alone(in, result, [&](std::size_t s, std::int64_t row, std::int64_t key) -> AttentionOptions {
    const auto at = static_cast<std::int64_t>(s);
    const auto cut = [&](const Tensor& x) { return x.narrow(-2, row, q_lengths[s]).narrow(-1, key, k_lengths[s]); };
    return {.mask = Mask::attend(cut(allowed)) & (Mask::causal() | Mask::prefix(prefixes.narrow(0, at, 1))),
            .bias = Bias::dense(cut(dense)),
            .query_start = starts.narrow(0, at, 1)};
  });
}

TEST(Packed, ScoresWithParametersAndWeights) {
  const Packed in({9, 0, 30}, {9, 4, 70}, 2, 2, Dtype::f32);
  const Score scores[] = {Score::general(normal({2, 24, 24}, 4)),
                          Score::additive(normal({6, 24}, 5), normal({6, 24}, 6), normal({6}, 7))};
  for (const Score& score : scores) {
    const AttentionResult result =
        attention(in.q, in.k, in.v, in.with_lengths({.score = score, .weights = Weights::full}));
    expect_each_alone(in, result,
                      [&](std::size_t, std::int64_t, std::int64_t) { return AttentionOptions{.score = score}; });
    ASSERT_EQ(result.weights.sizes(), (Dims{2, 39, 83}));
    const AttentionResult last =
        attention(heads_outside(in.q.narrow(0, 9, 30)), heads_outside(in.k.narrow(0, 13, 70)),
                  heads_outside(in.v.narrow(0, 13, 70)), {.score = score, .weights = Weights::full});
    EXPECT_TRUE(bits_equal(result.weights.narrow(1, 9, 30).narrow(2, 13, 70), last.weights.squeeze(0)));
    EXPECT_EQ(result.weights.narrow(1, 9, 30).narrow(2, 0, 13).sum().item(), 0);
    EXPECT_EQ(result.weights.narrow(1, 0, 9).narrow(2, 9, 74).sum().item(), 0);
  }
}

TEST(Packed, GradientsOfABiasOfEachHead) {
  const Packed in({3, 0, 70}, {5, 1, 64}, 4, 2, Dtype::f64);
  const AttentionOptions lengths = in.with_lengths({});
  for (const Dims& sizes : {Dims{4, 73, 70}, Dims{4, 1, 70}, Dims{1, 73, 70}, Dims{4, 1, 1}}) {
    const auto gradient = [&](bool inside) {
      Tensor bias = normal(sizes, 4, Dtype::f64);
      AttentionOptions options = lengths;
      options.bias = Bias::dense(bias.requires_grad_());
      const auto placed = [&](const Tensor& x) { return inside ? x : heads_outside(x); };
      const Tensor output = attention(placed(in.q), placed(in.k), placed(in.v), options).output;
      return grad(inside ? heads_outside(output) : output, bias,
                  {.grad_outputs = {normal({1, 4, 73, 10}, 5, Dtype::f64)}});
    };
    EXPECT_TRUE(bits_equal(gradient(true), gradient(false))) << to_string(sizes);
  }
}

TEST(Packed, OneLengthForBothAndOneHead) {
  const Packed in({5, 60, 2}, {5, 60, 2}, 1, 1, Dtype::f32);
  const AttentionOptions options{.mask = Mask::causal(), .cu_seqlens_q = cumulated({5, 60, 2})};
  const AttentionResult three = attention(in.q, in.k, in.v, options);
  const AttentionResult two = attention(in.q.squeeze(1), in.k.squeeze(1), in.v.squeeze(1), options);
  EXPECT_TRUE(bits_equal(three.output.squeeze(1), two.output));
  EXPECT_TRUE(bits_equal(three.logsumexp.squeeze(0), two.logsumexp));
  const Tensor out = empty({67, 1, 10});
  AttentionOptions given = options;
  given.out = out;
  attention(in.q, in.k, in.v, given);
  EXPECT_TRUE(bits_equal(out, three.output));
}

TEST(Packed, DocumentsRunAsPackedSequencesOnTheVectors) {
  const std::vector<std::int64_t> lengths{70, 1, 130, 1100};
  const Packed in(lengths, lengths, 2, 2, Dtype::f32);
  std::vector<std::int64_t> ids;
  for (std::size_t d = 0; d < lengths.size(); ++d)
    ids.insert(ids.end(), static_cast<std::size_t>(lengths[d]), 7 - static_cast<std::int64_t>(d));
  const AttentionOptions options{.mask = Mask::documents(integers(ids)) & Mask::causal()};
  const AttentionResult documents = attention(heads_outside(in.q), heads_outside(in.k), heads_outside(in.v), options);
  const AttentionResult packed = attention(in.q, in.k, in.v, in.with_lengths({.mask = Mask::causal()}));
  EXPECT_TRUE(bits_equal(documents.output, heads_outside(packed.output)));
  EXPECT_TRUE(bits_equal(documents.logsumexp.squeeze(0), packed.logsumexp));
  const std::string plain = attention(heads_outside(in.q), heads_outside(in.k), heads_outside(in.v)).plan.kernel();
  EXPECT_EQ(documents.plan.kernel(), plain);
  EXPECT_EQ(packed.plan.kernel(), plain);
}

/// Ids that come and go, differ between rows and keys, or stand beside lengths: the rule as a dense mask says it.
TEST(Packed, DocumentsOfAnyOrderSeeWhatTheirIdsSay) {
  std::mt19937_64 random(5);
  for (int n = 0; n < 30; ++n) {
    const std::int64_t rows = 1 + static_cast<std::int64_t>(random() % 150),
                       keys = 1 + static_cast<std::int64_t>(random() % 300);
    std::vector<std::int64_t> of_rows, of_keys;
    const bool sorted = n % 3 != 0;
    for (const auto& [ids, count] : {std::pair(&of_rows, 2 * rows), std::pair(&of_keys, 2 * keys)})
      for (std::int64_t i = 0; i < count; ++i)
        ids->push_back(sorted ? i / (1 + keys / 4) : static_cast<std::int64_t>(random() % 3));
    const Tensor q_ids = integers(of_rows).reshape({2, rows}), k_ids = integers(of_keys).reshape({2, keys});
    const Lengths lengths{.query_lengths = integers({rows, rows / 2}),
                          .key_lengths = integers({keys, keys - keys / 3}),
                          .key_start = integers({keys / 5, 0})};
    const Mask rest = Mask::window(30, 200, Align::bottom_right) | Mask::prefix(7),
               mask = Mask::documents(q_ids, k_ids) & rest;
    const Tensor q = normal({2, 2, rows, 8}, 1), k = normal({2, 2, keys, 8}, 2), v = normal({2, 2, keys, 8}, 3);
    const AttentionOptions option{.mask = mask,
                                  .query_lengths = lengths.query_lengths,
                                  .key_lengths = lengths.key_lengths,
                                  .key_start = lengths.key_start};
    const Tensor seen = mask.dense(2, 2, rows, keys, lengths);
    const auto sees = [&, bytes = seen.to_vector()](std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j) {
      return bytes[static_cast<std::size_t>(((b * 2 + h) * rows + i) * keys + j)] != 0;
    };
    const Around around{.scale = 1 / std::sqrt(8.0), .sees = sees};
    const Plainly naive = attend_plainly<float>(q, k, v, around), truth = attend_plainly<long double>(q, k, v, around);
    SCOPED_TRACE(n);
    expect_within(attention(q, k, v, option).output, naive.output, truth.output, 0x1p-24);
  }
}

TEST(Packed, ErrorsSayWhatIsWrong) {
  const Packed in({3, 4}, {5, 6}, 2, 1, Dtype::f32);
  const auto call = [&](const Tensor& cu_q, const Tensor& cu_k, AttentionOptions options = {}) {
    options.cu_seqlens_q = cu_q;
    options.cu_seqlens_k = cu_k;
    return attention(in.q, in.k, in.v, options);
  };
  const Tensor q_good = integers({0, 3, 7}), k_good = integers({0, 5, 11});
  EXPECT_EQ(error_of<ValueError>([&] { call(integers({0, 5, 3, 7}), k_good); }),
            "attention: cu_seqlens_q[2] is 3, below cu_seqlens_q[1] = 5; it must not descend");
  EXPECT_EQ(error_of<ValueError>([&] { call(integers({1, 3, 7}), k_good); }),
            "attention: cu_seqlens_q[0] is 1; it must be 0");
  EXPECT_EQ(error_of<ValueError>([&] { call(integers({0, 3, 6}), k_good); }),
            "attention: cu_seqlens_q ends with 6; it must end with 7, the number of rows of q");
  EXPECT_EQ(error_of<ValueError>([&] { call(q_good, integers({0, 5, 12})); }),
            "attention: cu_seqlens_k ends with 12; it must end with 11, the number of rows of k");
  EXPECT_EQ(error_of<DtypeError>([&] { call(q_good.to(Dtype::f32), k_good); }),
            "attention: cu_seqlens_q is f32; it must be i32 or i64");
  EXPECT_EQ(error_of<ShapeError>([&] { call(q_good.unsqueeze(0), k_good); }),
            "attention: cu_seqlens_q has shape [1, 3]; it must be [N + 1] for N sequences");
  EXPECT_EQ(error_of<ShapeError>([&] { call(q_good, integers({0, 5, 8, 11})); }),
            "attention: cu_seqlens_k has shape [4]; it must be [3] as cu_seqlens_q");
  EXPECT_EQ(error_of<ValueError>([&] { call({}, k_good); }), "attention: cu_seqlens_k is given without cu_seqlens_q");
  EXPECT_EQ(error_of<ValueError>([&] { call(q_good, {}); }),
            "attention: cu_seqlens_k is not given; it may be left out where q and k have as many rows, here 7 and 11");
  EXPECT_EQ(error_of<ValueError>([&] { call(q_good, k_good, {.key_lengths = integers({5, 6})}); }),
            "attention: key_lengths is given with cu_seqlens, which says where sequences begin and end");
  EXPECT_EQ(error_of<ShapeError>([&] { call(q_good, k_good, {.query_start = integers({1})}); }),
            "attention: query_start has shape [1]; it must be [2], one for each sequence");
  EXPECT_EQ(error_of<ShapeError>([&] { call(q_good, k_good, {.mask = Mask::causal()}); }),
            "attention: causal does not say how 3 rows stand against 5 keys; it needs an alignment, top_left or "
            "bottom_right, as in causal(bottom_right)\n"
            "  top_left    bottom_right\n"
            "  ■ · · · ·   ■ ■ ■ · ·\n"
            "  ■ ■ · · ·   ■ ■ ■ ■ ·\n"
            "  ■ ■ ■ · ·   ■ ■ ■ ■ ■");
  EXPECT_EQ(error_of<ShapeError>([&] {
              attention(normal({2, 1, 7, 4}, 1), normal({2, 1, 7, 4}, 2), normal({2, 1, 7, 4}, 3),
                        {.cu_seqlens_q = q_good});
            }),
            "attention: k has shape [2, 1, 7, 4]; packed sequences are [total, H, D] or [1, H, total, D]");
  EXPECT_EQ(error_of<ShapeError>([&] {
              attention(in.q, in.k, in.v.narrow(0, 0, 10), {.cu_seqlens_q = q_good, .cu_seqlens_k = k_good});
            }),
            "attention: v has shape [10, 1, 10]; its 10 rows must be 11 to match k [11, 1, 24]");
}

}  // namespace
}  // namespace attn::testing
