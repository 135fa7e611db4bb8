// tests/attention/reference_test.cc: the specification itself: storage it can read, what it saves, NaN, infinities,
// zeros.
#include "kernels/attention/reference.h"
#include "kernels/element.h"

#include "attention/truth.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

using kernels::AttentionProblem;
using kernels::Element;

struct Results {
  std::vector<float> output, max, sum, logsumexp, weights;
};

AttentionProblem problem_of(std::int64_t rows, std::int64_t keys, std::int64_t dim, const float* q, const float* k,
                            const float* v) {
  AttentionProblem p;
  p.batch = p.q_heads = p.k_heads = p.v_heads = 1;
  p.q_rows = rows, p.k_rows = keys, p.dim = p.value_dim = dim;
  p.q = q, p.q_stride[2] = dim;
  p.k.base = k, p.v.base = v;
  p.k.row_stride = p.v.row_stride = dim;
  return p;
}

Results run(AttentionProblem p) {
  Results r;
  const auto count = static_cast<std::size_t>(p.batch * p.q_heads * p.q_rows);
  r.output.resize(count * static_cast<std::size_t>(p.value_dim));
  r.max.resize(count), r.sum.resize(count), r.logsumexp.resize(count);
  r.weights.resize(count * static_cast<std::size_t>(p.k_rows));
  p.out = r.output.data();
  p.out_stride[2] = p.value_dim, p.out_stride[1] = p.q_rows * p.value_dim,
  p.out_stride[0] = p.q_heads * p.out_stride[1];
  p.max = r.max.data(), p.sum = r.sum.data(), p.logsumexp = r.logsumexp.data(), p.weights = r.weights.data();
  p.weights_stride[2] = p.k_rows, p.weights_stride[1] = p.q_rows * p.k_rows,
  p.weights_stride[0] = p.q_heads * p.weights_stride[1];
  const auto& reference = kernels::attention_reference();
  std::vector<double> scratch(reference.scratch_bytes(p) / 8 + 1);
  for (std::int64_t b = 0; b < p.batch; ++b)
    for (std::int64_t h = 0; h < p.q_heads; ++h) reference.rows(p, {b, h, 1, 0, p.q_rows}, scratch.data());
  return r;
}

TEST(Reference, PagedKeysAreContiguousKeys) {
  constexpr std::int64_t rows = 3, keys = 37, dim = 5, page = 8, pages = 12;
  const Tensor q = normal({rows, dim}, 1), k = normal({keys, dim}, 2), v = normal({keys, dim}, 3);
  const Results expected = run(problem_of(rows, keys, dim, q.data<float>(), k.data<float>(), v.data<float>()));
  // of the second batch item; the first has no keys
  const std::int32_t table[2][5] = {{0, 0, 0, 0, 0}, {7, 2, 11, 0, 5}};
  Tensor k_pages = full({pages, page, dim}, NAN), v_pages = full({pages, page, dim}, NAN);
  for (std::int64_t j = 0; j < keys; ++j) {
    k_pages[table[1][j / page]][j % page].copy_(k[j]);
    v_pages[table[1][j / page]][j % page].copy_(v[j]);
  }
  const std::int64_t lengths[] = {0, keys};
  AttentionProblem p = problem_of(rows, keys, dim, q.data<float>(), k_pages.data<float>(), v_pages.data<float>());
  p.batch = 2;
  p.key_lengths = lengths;
  for (kernels::KvRows* x : {&p.k, &p.v}) {
    x->pages = table[0];
    x->pages_stride = 5;
    x->page_shift = 3;
    x->page_stride = page * dim;
  }
  const Results paged = run(p);
  const std::vector<float> second(paged.output.begin() + rows * dim, paged.output.end());
  EXPECT_EQ(second, expected.output);
  EXPECT_EQ(std::vector<float>(paged.output.begin(), paged.output.begin() + rows * dim),
            std::vector<float>(rows * dim, 0.0f));
}

TEST(Reference, BytesTimesTheirScalesAreTheKeys) {
  constexpr std::int64_t rows = 3, keys = 20, dim = 6, group = 3;
  const Tensor q = normal({rows, dim}, 1);
  std::vector<std::int8_t> k_bytes, v_bytes;
  std::vector<float> k_scales, v_scales, k, v;
  for (std::int64_t n = 0; n < keys * dim; ++n) {
    k_bytes.push_back(static_cast<std::int8_t>(n * 37 % 255 - 127));
    v_bytes.push_back(static_cast<std::int8_t>(n * 91 % 255 - 127));
  }
  for (std::int64_t n = 0; n < keys * dim / group; ++n) {
    k_scales.push_back(0.01f + 0.001f * static_cast<float>(n));
    v_scales.push_back(0.02f + 0.003f * static_cast<float>(n));
  }
  for (std::size_t n = 0; n < k_bytes.size(); ++n) {
    k.push_back(static_cast<float>(k_bytes[n]) * k_scales[n / group]);
    v.push_back(static_cast<float>(v_bytes[n]) * v_scales[n / group]);
  }
  const Results expected = run(problem_of(rows, keys, dim, q.data<float>(), k.data(), v.data()));
  AttentionProblem p = problem_of(rows, keys, dim, q.data<float>(), nullptr, nullptr);
  p.k.base = k_bytes.data(), p.v.base = v_bytes.data();
  p.k.scales = k_scales.data(), p.v.scales = v_scales.data();
  for (kernels::KvRows* x : {&p.k, &p.v}) {
    x->element = Element::i8;
    x->scale_stride = dim / group;
    x->scale_group = group;
  }
  EXPECT_EQ(run(p).output, expected.output);
  for (std::vector<std::int8_t>* bytes : {&k_bytes, &v_bytes})
    for (std::int8_t& byte : *bytes) byte = kernels::other_form(byte);
  p.k.element = p.v.element = Element::sign_magnitude8;
  EXPECT_EQ(run(p).output, expected.output);
}

TEST(Reference, EveryNumberOfEightBitsHasTwoForms) {
  for (int n = -127; n <= 127; ++n) {
    const std::int8_t number = static_cast<std::int8_t>(n), other = kernels::other_form(number);
    EXPECT_EQ(static_cast<int>(static_cast<std::uint8_t>(other)), n < 0 ? 128 - n : n);
    EXPECT_EQ(kernels::other_form(other), number);
  }
}

TEST(Reference, SavesTheMaximumAndTheSumThatGiveTheWeights) {
  constexpr std::int64_t rows = 4, keys = 1500, dim = 3;
  const Tensor q = normal({rows, dim}, 1), k = normal({keys, dim}, 2), v = normal({keys, dim}, 3);
  AttentionProblem p = problem_of(rows, keys, dim, q.data<float>(), k.data<float>(), v.data<float>());
  const std::int64_t rows_there = 3;
  p.query_lengths = &rows_there;
  const Results r = run(p);
  for (std::size_t i = 0; i < 3; ++i) {
    float largest = -INFINITY;
    double sum = 0, total = 0;
    std::vector<double> scores;
    for (std::int64_t j = 0; j < keys; ++j) {
      float s = 0;
      for (std::int64_t d = 0; d < dim; ++d)
        s = std::fma(k.data<float>()[j * dim + d], q.data<float>()[static_cast<std::int64_t>(i) * dim + d], s);
      largest = std::max(largest, s);
      scores.push_back(s);
    }
    for (const double s : scores) sum += std::exp(s - static_cast<double>(largest));
    EXPECT_EQ(r.max[i], largest);
    EXPECT_NEAR(r.sum[i], sum, sum * 1e-6);
    EXPECT_NEAR(r.logsumexp[i], std::log(sum) + static_cast<double>(largest), 1e-6);
    for (std::int64_t j = 0; j < keys; ++j)
      total += static_cast<double>(r.weights[i * keys + static_cast<std::size_t>(j)]);
    EXPECT_NEAR(total, 1, 1e-6);
  }
  EXPECT_EQ(r.max[3], -INFINITY);
  EXPECT_EQ(r.sum[3], 0);
  EXPECT_EQ(r.logsumexp[3], -INFINITY);
  EXPECT_EQ(r.output[3 * dim], 0);
}

TEST(Reference, NanAndInfinityInScores) {
  const float q[] = {1}, v[] = {1, 2};
  const auto of = [&](float a, float b) {
    const float k[] = {a, b};
    return run(problem_of(1, 2, 1, q, k, v));
  };
  EXPECT_TRUE(std::isnan(of(NAN, 1).output[0]) && std::isnan(of(1, NAN).logsumexp[0]) &&
              std::isnan(of(NAN, NAN).weights[1]));
  EXPECT_TRUE(std::isnan(of(INFINITY, 1).output[0]));
  EXPECT_EQ(of(-INFINITY, 1).output[0], 2);
  EXPECT_EQ(of(-INFINITY, 1).weights[0], 0);
  EXPECT_EQ(of(-INFINITY, -INFINITY).output[0], 0);
  EXPECT_EQ(of(-INFINITY, -INFINITY).logsumexp[0], -INFINITY);
  for (const float x : of(NAN, 1).output) EXPECT_EQ(std::bit_cast<std::uint32_t>(x), 0x7fc00000u);
}

TEST(Reference, AZeroIsPositive) {
  const float q[] = {0}, k[] = {0, 0}, zeros[] = {-0.0f, -0.0f}, tiny[] = {-0x1p-149f, 0.0f};
  EXPECT_FALSE(std::signbit(run(problem_of(1, 2, 1, q, k, zeros)).output[0]));
  EXPECT_FALSE(std::signbit(run(problem_of(1, 2, 1, q, k, tiny)).output[0]));
  // the mean of 0 and the least negative number rounds to zero, in every kernel
  const std::pair<Dtype, double> least[] = {
      {Dtype::f32, -0x1p-149}, {Dtype::f64, -0x1p-1074}, {Dtype::f16, -0x1p-24}, {Dtype::bf16, -0x1p-133}};
  for (const auto& [dtype, value] : least) {
    const Tensor same = full({1, 1, 2, 1}, 0.0, dtype),
                 values = tensor<double>(std::vector<double>{value, 0}, {1, 1, 2, 1}).to(dtype);
    ASSERT_EQ(values.to_vector()[0], value);
    EXPECT_TRUE(bits_equal(attention(same, same, values).output, same));
  }
}

}  // namespace
}  // namespace attn::testing
