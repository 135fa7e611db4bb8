// tests/kernels/attention_target_test.cc: the strips of every instruction set have the bits of the specification.
#include "kernels/attention/dispatch.h"
#include "kernels/attention_case.h"
#include "runtime/cpu.h"

namespace attn::kernels {
namespace {

/// Strips as they come; several heads in one where `grouped`; span by span where `split`.
template <typename T>
void by_query_tiles(const ForwardKernel& kernel, const AttentionProblem& p, Task task, bool grouped, bool split) {
  constexpr std::size_t beyond = 256;  // bytes after the scratch, which nobody may write
  const std::size_t bytes_of_scratch = kernel.scratch_bytes(p);
  std::vector<std::byte> memory, partial;
  aligned(memory, bytes_of_scratch + beyond);
  auto* const end = static_cast<std::byte*>(start(memory)) + bytes_of_scratch;
  std::fill(end, end + beyond, std::byte{0xA5});
  const std::int64_t group = p.q_heads / p.k_heads;
  const std::int64_t heads = grouped && task.keep == nullptr && group * p.q_rows <= kernel.rows ? group : 1;
  for (task.batch = 0; task.batch < p.batch; ++task.batch)
    for (std::int64_t h = 0; h < p.q_heads; h += heads)
      for (std::int64_t row = task.row; row < p.rows_end(task); row += kernel.rows) {
        Task map = task.with_rows(h, row, std::min<std::int64_t>(kernel.rows, p.rows_end(task) - row));
        map.heads = heads;
        if (!split) {
          ASSERT_TRUE(kernel.attend(p, map, start(memory)));
          continue;
        }
        const std::int64_t splits = (p.keys_end(map) - p.keys_begin(map) + 1023) / 1024,
                           bytes = static_cast<std::int64_t>(kernel.partial_bytes(p, map));
        aligned(partial, static_cast<std::size_t>(splits * bytes));
        for (std::int64_t last = splits, together = 1, first; last > 0; last = first, ++together) {
          first = std::max<std::int64_t>(0, last - together);
          kernel.attend_splits(p, map, first, last, static_cast<std::byte*>(start(partial)) + first * bytes,
                               start(memory));
        }
        std::memset(start(memory), 0xff, bytes_of_scratch);  // merging reads nothing that a task left there
        ASSERT_TRUE(kernel.attend_merge(p, map, start(partial), splits, start(memory)));
      }
  ASSERT_TRUE(std::all_of(end, end + beyond, [](std::byte x) { return x == std::byte{0xA5}; }))
      << "written beyond the scratch";
}

template <typename T>
::testing::AssertionResult same(const char* name, const std::vector<T>& ours, const std::vector<T>& specification) {
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (std::memcmp(&ours[i], &specification[i], sizeof(T)) != 0)
      return ::testing::AssertionFailure() << name << "[" << i << "] " << ours[i] << " is not " << specification[i];
  return ::testing::AssertionSuccess();
}

class EveryAttentionTarget : public ::testing::TestWithParam<std::string> {};

template <typename T>
void random_cases(const ForwardKernel& kernel, int count, unsigned seed, void (Case<T>::*change)(Random&) = nullptr) {
  for (int n = 0; n < count; ++n) {
    Random random(seed + static_cast<unsigned>(n));
    Case<T> c(random);
    if (change) (c.*change)(random);
    SCOPED_TRACE(::testing::Message() << "case " << seed + static_cast<unsigned>(n) << " " << c.line());
    by_specification<T>(c.p, c.task);
    const auto out = c.out, lse = c.lse, sum = c.sum, max = c.max;
    for (const bool grouped : {false, true})
      for (const bool split : {false, true}) {
        c.outputs();
        const auto rows_of_lengths = [&](std::vector<T> ours, const std::vector<T>& expected, std::int64_t width) {
          for (std::int64_t b = 0; b < c.p.batch; ++b)  // rows beyond the lengths are the caller's to clear
            for (std::int64_t h = 0; h < c.p.q_heads; ++h)
              for (std::int64_t i = c.p.rows_end({.batch = b, .sequence = c.task.sequence}) * width;
                   i < c.p.q_rows * width; ++i) {
                const auto at = static_cast<std::size_t>((b * c.p.q_heads + h) * c.p.q_rows * width + i);
                ours[at] = expected[at];
              }
          return ours;
        };
        by_query_tiles<T>(kernel, c.p, c.task, grouped, split);
        ASSERT_TRUE(same("output", rows_of_lengths(c.out, out, c.p.value_dim), out))
            << "grouped " << grouped << " split " << split;
        ASSERT_TRUE(same("max", rows_of_lengths(c.max, max, 1), max));
        ASSERT_TRUE(same("sum", rows_of_lengths(c.sum, sum, 1), sum));
        ASSERT_TRUE(same("logsumexp", rows_of_lengths(c.lse, lse, 1), lse));
      }
  }
}

TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationF32) {
  random_cases<float>(attention_target(GetParam().c_str())->f32, 150, 1000);
}
TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationF64) {
  random_cases<double>(attention_target(GetParam().c_str())->f64, 80, 5000);
}
TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationForAdditiveScoresF32) {
  random_cases<float>(attention_target(GetParam().c_str())->f32, 40, 9000, &Case<float>::make_additive);
}
TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationForAdditiveScoresF64) {
  random_cases<double>(attention_target(GetParam().c_str())->f64, 30, 12000, &Case<double>::make_additive);
}

TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationOverEightBitsF32) {
  random_cases<float>(attention_target(GetParam().c_str())->f32, 120, 15000, &Case<float>::make_8_bits);
}
TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationOverEightBitsF64) {
  random_cases<double>(attention_target(GetParam().c_str())->f64, 40, 18000, &Case<double>::make_8_bits);
}

TEST_P(EveryAttentionTarget, HasTheBitsOfTheSpecificationOverSixteenBits) {
  random_cases<float>(attention_target(GetParam().c_str())->f32, 150, 21000, &Case<float>::make_16_bits);
}

INSTANTIATE_TEST_SUITE_P(Targets, EveryAttentionTarget, ::testing::ValuesIn(vector_targets()),
                         [](const auto& info) { return info.param; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(EveryAttentionTarget);

}  // namespace
}  // namespace attn::kernels
