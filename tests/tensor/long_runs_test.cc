// tests/tensor/long_runs_test.cc: operations on elements over runs of more than a block, in every dtype and memory
// order, against plain loops.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace attn::testing {
namespace {

constexpr Dtype all_dtypes[] = {Dtype::f32, Dtype::f64, Dtype::bf16,   Dtype::f16,
                                Dtype::i64, Dtype::i32, Dtype::boolean};

/// n numbers of one dtype: neighbours, every second of more, one for all.
std::vector<Tensor> forms(std::int64_t n, Dtype dtype) {
  const auto drawn = [&](std::int64_t count) { return (randint(-8, 9, {count}) * 0.25).to(dtype); };
  return {drawn(n), drawn(2 * n).slice(0, 0, std::nullopt, 2), drawn(1).expand({n})};
}

TEST(LongRuns, PairsInEveryForm) {
  manual_seed(1);
  const std::pair<Tensor (*)(const Tensor&, const Tensor&), double (*)(double, double)> operations[] = {
      {[](const Tensor& a, const Tensor& b) { return a + b; }, [](double a, double b) { return a + b; }},
      {[](const Tensor& a, const Tensor& b) { return a * b; }, [](double a, double b) { return a * b; }},
      {[](const Tensor& a, const Tensor& b) { return maximum(a, b); },
       [](double a, double b) { return std::max(a, b); }},
      {[](const Tensor& a, const Tensor& b) { return lt(a, b); }, [](double a, double b) { return double(a < b); }},
      {[](const Tensor& a, const Tensor& b) { return where(lt(a, b), a, b); },
       [](double a, double b) { return std::min(a, b); }},
  };
  for (const Dtype dtype : all_dtypes)
    for (const std::int64_t n :
         {std::int64_t{1}, std::int64_t{7}, std::int64_t{511}, std::int64_t{513}, std::int64_t{1500}})
      for (const Tensor& a : forms(n, dtype))
        for (const Tensor& b : forms(n, dtype))
          for (const auto& [operation, element] : operations) {
            const Tensor y = operation(a, b);
            const std::vector<double> x0 = a.to_vector(), x1 = b.to_vector(), got = y.to_vector();
            for (std::size_t i = 0; i < got.size(); ++i) {
              const double expected = element(x0[i], x1[i]);
              ASSERT_EQ(got[i], y.dtype() == Dtype::boolean ? double(expected != 0) : expected)
                  << name_of(dtype) << " " << n << " " << i;
            }
          }
}

TEST(LongRuns, InPlaceAndStrided) {
  manual_seed(2);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16, Dtype::i64}) {
    for (const Tensor& x : {forms(1500, dtype)[0], forms(1500, dtype)[1]}) {
      const std::vector<double> before = x.to_vector();
      const Tensor other = forms(1500, dtype)[0];
      const std::vector<double> added = other.to_vector();
      x.add_(other, 2);
      x.mul_(other);
      const std::vector<double> after = x.to_vector();
      for (std::size_t i = 0; i < before.size(); ++i)
        ASSERT_EQ(after[i], (before[i] + 2 * added[i]) * added[i]) << name_of(dtype) << " " << i;
    }
  }
}

TEST(LongRuns, OneElementIntoBoth) {
  for (const Dtype dtype : all_dtypes) {
    const Tensor x = zeros({3, 700}, dtype);
    x.slice(1, 1, std::nullopt, 2).fill_(1);
    const Tensor y = full({1}, 1, dtype).expand({3, 700}).clone();
    for (std::int64_t i = 0; i < 700; ++i)
      ASSERT_EQ(x.select(0, 2).select(0, i).item(), double(i % 2)) << name_of(dtype);
    for (const double value : y.to_vector()) ASSERT_EQ(value, 1.0) << name_of(dtype);
  }
}

TEST(LongRuns, FunctionsOfOne) {
  manual_seed(3);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const Tensor& x : forms(1500, dtype)) {
      const std::vector<double> from = x.to_vector(), positive = relu(x).to_vector(), magnitude = abs(x).to_vector(),
                                square = pow(x, 2).to_vector(), itself = pow(x, 1).to_vector(),
                                is_set = x.to(Dtype::boolean).to_vector(), whole = x.to(Dtype::i32).to_vector();
      for (std::size_t i = 0; i < from.size(); ++i) {
        ASSERT_EQ(positive[i], std::max(from[i], 0.0));
        ASSERT_EQ(magnitude[i], std::abs(from[i]));
        ASSERT_EQ(square[i], from[i] * from[i]);
        ASSERT_EQ(itself[i], from[i]);
        ASSERT_EQ(is_set[i], double(from[i] != 0));
        ASSERT_EQ(whole[i], std::trunc(from[i]));
      }
    }
}

TEST(LongRuns, PowersOfSingles) {
  manual_seed(4);
  const Tensor base = exp(randn({3000}) * 8).to(Dtype::f32), exponent = randn({3000}) * 5;
  const float *a = base.data<float>(), *p = exponent.data<float>();
  const Tensor powers = pow(base, exponent);
  for (std::int64_t i = 0; i < 3000; ++i) {
    const auto expected = static_cast<float>(std::pow(double(a[i]), double(p[i])));
    const float got = powers.data<float>()[i];
    ASSERT_TRUE(got == expected || got == std::nextafter(expected, got))
        << std::hexfloat << a[i] << " " << p[i] << " " << got << " " << expected;
  }
  constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 2.0f, -2.0f, 0.5f, 3.0f, -3.0f, 1e-40f, 3e38f, inf, -inf, nan};
  for (const float x : special)
    for (const float y : special) {
      const auto expected = static_cast<float>(std::pow(double(x), double(y)));
      const float got = pow(tensor<float>({x}), tensor<float>({y})).data<float>()[0];
      if (std::isnan(expected)) EXPECT_TRUE(std::isnan(got)) << x << " " << y;
      else EXPECT_EQ(std::bit_cast<std::uint32_t>(got), std::bit_cast<std::uint32_t>(expected)) << x << " " << y;
    }
}

TEST(LongRuns, TurnedCopies) {
  manual_seed(5);
  for (const Dtype dtype : all_dtypes)
    for (const Dims& sizes : {Dims{3, 70, 129}, Dims{8, 8, 64}, Dims{1, 17, 200}, Dims{33, 1, 65}}) {
      const Tensor x = randint(-50, 50, sizes).to(dtype);
      for (const Dims& order : {Dims{0, 2, 1}, Dims{2, 1, 0}, Dims{1, 2, 0}, Dims{2, 0, 1}, Dims{1, 0, 2}}) {
        const Tensor turned = x.permute(order), part = turned.slice(0, turned.size(0) / 3).slice(2, 0, std::nullopt, 2);
        EXPECT_EQ(turned.contiguous().to_vector(), turned.to_vector()) << name_of(dtype) << " " << to_string(order);
        EXPECT_EQ(part.contiguous().to_vector(), part.to_vector());
        const Tensor target = zeros(sizes, dtype).permute(order);
        target.copy_(turned.contiguous());  // from row-major into the transposed one
        EXPECT_EQ(target.to_vector(), turned.to_vector());
      }
    }
}

/// What `max` along a row of numbers gives: the first of the largest, or the first NaN.
std::size_t first_largest(const std::vector<double>& row) {
  std::size_t at = 0;
  for (std::size_t i = 1; i < row.size(); ++i)
    if (!std::isnan(row[at]) && (std::isnan(row[i]) || row[i] > row[at])) at = i;
  return at;
}

TEST(LongRuns, TheFirstOfTheLargest) {
  manual_seed(6);
  for (const Dtype dtype : all_dtypes)
    for (const Dims& sizes : {Dims{5, 1300}, Dims{1300, 5}, Dims{700, 150}, Dims{1, 600000}, Dims{2, 300, 140}}) {
      const Tensor x = randint(-3, 4, sizes).to(dtype);
      if (is_floating(dtype)) x.flatten().slice(0, 40, 400, 90).fill_(std::numeric_limits<double>::quiet_NaN());
      for (int dim = 0; dim < x.dim(); ++dim) {
        const auto [values, indices] = max(x, dim);
        const Tensor rows = x.transpose(dim, -1).reshape({-1, x.size(dim)}),
                     found = values.unsqueeze(dim).transpose(dim, -1).reshape({-1}),
                     places = indices.unsqueeze(dim).transpose(dim, -1).reshape({-1});
        for (std::int64_t r = 0; r < rows.size(0); r += 1 + rows.size(0) / 50) {
          const std::vector<double> row = rows.select(0, r).to_vector();
          const std::size_t at = first_largest(row);
          ASSERT_EQ(places.select(0, r).item(), double(at)) << name_of(dtype) << to_string(sizes) << dim;
          const double value = found.select(0, r).item();
          ASSERT_TRUE(value == row[at] || (std::isnan(value) && std::isnan(row[at])));
        }
      }
      EXPECT_EQ(argmax(x).item(), double(first_largest(x.to_vector())));
    }
}

TEST(LongRuns, GradientsOfSoftmaxWithAndWithoutHistory) {
  manual_seed(7);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const Dims& sizes : {Dims{3, 5000}, Dims{600, 300}, Dims{4, 33, 20}, Dims{7, 1, 9}})
      for (int dim = 0; dim < sizes.size(); ++dim)
        for (const auto function : {&softmax, &log_softmax}) {
          const Tensor x = randn(sizes).to(dtype).requires_grad_(), dy = randn(sizes).to(dtype),
                       y = function(x, dim, {});
          const Tensor plain = grad(y, x, {.grad_outputs = {dy}, .retain_graph = true}),
                       recorded = grad(y, x, {.grad_outputs = {dy}, .create_graph = true});
          EXPECT_TRUE(same_bits(plain, recorded.detach())) << name_of(dtype) << to_string(sizes) << dim;
        }
}

TEST(LongRuns, AMatrixTimesAVector) {
  manual_seed(8);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16}) {
    const Tensor a = randn({2, 37, 600}).to(dtype), b = randn({600, 1}).to(dtype);
    const Tensor one = matmul(a, b), many = matmul(a, b.expand({600, 5}).contiguous());
    EXPECT_TRUE(same_bits(one.squeeze(-1), many.select(2, 3).contiguous())) << name_of(dtype);
    EXPECT_TRUE(same_bits(matmul(a, b.squeeze(-1)), one.squeeze(-1)));
    const Tensor each = matmul(a, b.expand({2, 600, 1}).contiguous());
    EXPECT_TRUE(same_bits(each, one));
    const Tensor out = empty({2, 37, 1}, dtype);
    matmul(a, b, out);
    EXPECT_TRUE(same_bits(out, one));
  }
}

TEST(LongRuns, RowsTimesColumnsOneByOne) {
  manual_seed(10);
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const std::int64_t k : {1, 255, 257, 700}) {
      const Tensor a = randn({300, k}).to(dtype), b = randn({300, k}).to(dtype), dots = einsum("ij,ij->i", {a, b});
      for (const std::int64_t i : {0, 1, 299}) {
        const Tensor rows = matmul(a.slice(0, i, i + 1), b.t());  // the same sum among others
        EXPECT_TRUE(same_bits(dots.slice(0, i, i + 1), rows.select(0, 0).slice(0, i, i + 1).contiguous()))
            << name_of(dtype) << " " << k;
      }
    }
}

TEST(LongRuns, PickedAndAddedAtSingleElements) {
  manual_seed(9);
  for (const Dtype dtype : all_dtypes) {
    const Tensor x = randint(-5, 5, {70, 1200}).to(dtype), index = randint(0, 1200, {1300});
    const std::vector<double> from = x.to_vector(), places = index.to_vector(),
                              got = x.index_select(1, index).to_vector();
    for (std::size_t r = 0; r < 70; ++r)
      for (std::size_t i = 0; i < 1300; ++i)
        ASSERT_EQ(got[r * 1300 + i], from[r * 1200 + static_cast<std::size_t>(places[i])]) << name_of(dtype);
    if (!is_floating(dtype)) continue;
    const Tensor leaf = x.clone().requires_grad_();
    sum(leaf.index_select(1, index)).backward();
    std::vector<double> counts(1200, 0.0);
    for (const double place : places) counts[static_cast<std::size_t>(place)] += 1;
    EXPECT_EQ(leaf.grad().select(0, 69).to_vector(), counts);
  }
}

}  // namespace
}  // namespace attn::testing
