// tests/kernels/attention_nan_test.cc: a NaN of any bits in an input is not lost: a kernel refuses the tile, which the
// specification then computes, or has the specification's result.
#include "kernels/attention/dispatch.h"
#include "kernels/attention_case.h"
#include "runtime/cpu.h"

namespace attn::kernels {
namespace {

/// A quiet NaN of either sign; its payload has few bits set, or any.
template <typename T>
T any_nan(Random& random) {
  using Bits = std::conditional_t<sizeof(T) == 8, std::uint64_t, std::uint32_t>;
  constexpr int mantissa = std::numeric_limits<T>::digits - 1;
  const Bits payload = random() % 2 ? Bits{1} << random() % static_cast<unsigned>(mantissa)
                                    : static_cast<Bits>(std::uint64_t{random()} << 32 | random()),
             inside = (Bits{1} << mantissa) - 1, quiet = std::bit_cast<Bits>(std::numeric_limits<T>::quiet_NaN());
  const T nan = std::bit_cast<T>(static_cast<Bits>(quiet | (payload & inside)));
  return random() % 2 ? nan : -nan;
}

template <typename T>
bool same_number(T a, T b) {
  return (a != a && b != b) || std::memcmp(&a, &b, sizeof(T)) == 0;
}

/// Cases with a NaN in some elements of q, k, v, the bias or a sink, tile by tile.
template <typename T>
void cases_with_nan(const ForwardKernel& kernel, int count, unsigned seed, void (Case<T>::*change)(Random&) = nullptr) {
  int finite = 0, nan = 0;
  for (int n = 0; n < count; ++n) {
    Random random(seed + static_cast<unsigned>(n));
    Case<T> c(random);
    if (change) (c.*change)(random);
    for (auto* array : {&c.q, &c.k, &c.v, &c.bias, &c.sinks})
      if (!array->empty() && random() % 2) (*array)[random() % array->size()] = any_nan<T>(random);
    SCOPED_TRACE(::testing::Message() << "case " << seed + static_cast<unsigned>(n) << " " << c.line());
    by_specification<T>(c.p, c.task);
    const auto expected = c.out;
    c.outputs();
    std::vector<std::byte> memory;
    aligned(memory, kernel.scratch_bytes(c.p));
    Task task = c.task;
    for (std::int64_t& b = task.batch; b < c.p.batch; ++b)
      for (std::int64_t h = 0; h < c.p.q_heads; ++h)
        for (std::int64_t row = task.row; row < c.p.rows_end(task); row += kernel.rows) {
          const std::int64_t rows = std::min<std::int64_t>(kernel.rows, c.p.rows_end(task) - row);
          if (!kernel.attend(c.p, task.with_rows(h, row, rows), start(memory))) continue;
          const std::int64_t first = ((b * c.p.q_heads + h) * c.p.q_rows + row) * c.p.value_dim;
          for (std::int64_t i = first; i < first + rows * c.p.value_dim; ++i) {
            const T ours = c.out[static_cast<std::size_t>(i)], right = expected[static_cast<std::size_t>(i)];
            ASSERT_TRUE(same_number(ours, right)) << "output[" << i << "] is " << ours << ", not " << right;
            ++finite;
          }
        }
    for (const T x : expected) nan += x != x;
  }
  EXPECT_GT(finite, 0);  // tiles that no NaN reaches
  EXPECT_GT(nan, 0);
}

class EveryNanTarget : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryNanTarget, LosesNoNanF32) { cases_with_nan<float>(attention_target(GetParam().c_str())->f32, 60, 31000); }
TEST_P(EveryNanTarget, LosesNoNanF64) { cases_with_nan<double>(attention_target(GetParam().c_str())->f64, 40, 32000); }
TEST_P(EveryNanTarget, LosesNoNanInAdditiveScoresF32) {
  cases_with_nan<float>(attention_target(GetParam().c_str())->f32, 30, 33000, &Case<float>::make_additive);
}
TEST_P(EveryNanTarget, LosesNoNanInAdditiveScoresF64) {
  cases_with_nan<double>(attention_target(GetParam().c_str())->f64, 20, 34000, &Case<double>::make_additive);
}

INSTANTIATE_TEST_SUITE_P(Nan, EveryNanTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryNanTarget);

}  // namespace
}  // namespace attn::kernels
