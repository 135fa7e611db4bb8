// tests/kernels/rank_totals_test.cc: sums of rows over splits of keys, merged, are those of one pass over all keys.
#include "kernels/rank_totals.h"

#include "support/golden.h"

#include <attn/plain.h>
#include <attn/random.h>
#include <attn/tensor.h>

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace attn {
namespace {

constexpr std::int64_t rows = 9, dim = 16, columns = 24, split = 1024;

struct Sums {
  Tensor max, sum, output;
  explicit Sums(Dtype type)
      : max(full({rows}, -std::numeric_limits<double>::infinity(), type)), sum(zeros({rows}, type)),
        output(zeros({rows, columns}, type)) {}
  plain::RowTotals totals() const { return {max.data(), sum.data(), output.data()}; }
  kernels::RowTotals merged() const { return {max.data(), sum.data(), output.data()}; }
};

/// Sums the rows over keys from `first` to before `end`; row i is at position i + 1020, so that some see no key of a
/// split.
void over(const Tensor& q, const Tensor& k, const Tensor& v, std::int64_t first, std::int64_t end, bool begins,
          const Sums& to) {
  const std::int64_t start = 1020;
  const auto from = [&](const Tensor& x) { return x.narrow(0, first, end - first); };
  std::vector<std::byte> workspace(1 << 20);
  const Tensor unused = empty({rows, columns}, q.dtype()), keys = from(k), values = from(v);
  const plain::Attention call{.q_rows = rows,
                              .k_rows = end - first,
                              .dim = dim,
                              .value_dim = columns,
                              .element = q.dtype() == Dtype::f64 ? plain::Element::f64 : plain::Element::f32,
                              .q = q.data(),
                              .k = keys.data(),
                              .v = values.data(),
                              .output = unused.data(),
                              .causal = true,
                              .query_start = &start,
                              .totals = to.totals(),
                              .begins = begins,
                              .ends = false,
                              .first_key = first};
  ASSERT_EQ(plain::attention(call, workspace.data(), workspace.size()), plain::Status::ok);
}

TEST(MergeTotals, HaveTheBitsOfOnePass) {
  for (const Dtype type : {Dtype::f32, Dtype::f64})
    for (const kernels::Reference* build : {kernels::reference_generic(), kernels::reference_fma()}) {
      if (build == nullptr) continue;
      Generator generator(5);
      const Tensor q = randn({rows, dim}, generator, Dtype::f64).to(type) * 3.0,
                   k = randn({2 * split, dim}, generator, Dtype::f64).to(type),
                   v = randn({2 * split, columns}, generator, Dtype::f64).to(type);
      const Sums whole(type), first(type), second(type), total(type);
      over(q, k, v, 0, split, true, whole), over(q, k, v, split, 2 * split, false, whole);
      over(q, k, v, 0, split, true, first);
      const kernels::MergeTotals merge = kernels::merge_totals_reference(*build);
      const kernels::Element element = type == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
      merge(element, total.merged(), first.merged(), rows, columns);
      EXPECT_TRUE(testing::bits_equal(total.output, first.output));
      EXPECT_TRUE(testing::bits_equal(total.max, first.max) && testing::bits_equal(total.sum, first.sum));
      merge(element, total.merged(), second.merged(), rows, columns);  // nothing yet
      EXPECT_TRUE(testing::bits_equal(total.output, first.output));
      over(q, k, v, split, 2 * split, false, second);  // from nothing
      // rows 0 to 3 see no key of the second split
      EXPECT_EQ(second.sum[3].to(Dtype::f64).item(), 0.0);
      EXPECT_GT(second.sum[4].to(Dtype::f64).item(), 0.0);
      merge(element, total.merged(), second.merged(), rows, columns);
      EXPECT_TRUE(testing::bits_equal(total.output, whole.output)) << build->build << " " << name_of(type);
      EXPECT_TRUE(testing::bits_equal(total.max, whole.max) && testing::bits_equal(total.sum, whole.sum));
    }
}

}  // namespace
}  // namespace attn
