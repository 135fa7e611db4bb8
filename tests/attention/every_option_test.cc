// tests/attention/every_option_test.cc: each option alone: its error, the memory it needs, nothing touched beside its
// operands.
#include "attention/every_option.h"

#include <attn/cache.h>

#include "runtime/memory.h"
#include "support/golden.h"
#include "support/guarded.h"
#include "support/resident.h"
#include "support/sanitized.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

struct Rows {
  Tensor q, k, v;
  explicit Rows(const OptionSizes& z)
      : q(exact({1, z.heads, z.rows, z.dim}, z.dtype, 1)), k(exact({1, z.heads, z.rows, z.dim}, z.dtype, 2)),
        v(exact({1, z.heads, z.rows, z.dim}, z.dtype, 3)) {}
};

/// At most twice the error of plain operations in the same type, both against f64 (docs/numerics.md section 7). f64
/// itself has its truth in forward_test.cc, in long double.
TEST(EveryOption, IsAsNearTheTruthAsPlainOperationsOfItsType) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const Option& option : every_option()) {
      SCOPED_TRACE(::testing::Message() << option.name << " " << name_of(dtype));
      const OptionSizes z{.rows = 150, .dtype = dtype};
      const Rows in(z);
      const Tensor truth = in_plain_operations(option, z, in.q, in.k, in.v, Dtype::f64);
      const Tensor plain = in_plain_operations(option, z, in.q, in.k, in.v, dtype);
      const double eps = dtype == Dtype::f32 ? 0x1p-23 : dtype == Dtype::f16 ? 0x1p-10 : 0x1p-7;
      expect_within(attention(in.q, in.k, in.v, option.make(z, as_it_is)).output, plain.to_vector(), truth.to_vector(),
                    eps);
    }
}

TEST(EveryOption, TouchesNothingBesideItsOperands) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
    for (const auto& [rows, dim] : {std::pair{1, 1}, {7, 5}, {67, 17}, {131, 33}})
      for (const Option& option : every_option()) {
        SCOPED_TRACE(::testing::Message() << option.name << " " << name_of(dtype) << " " << rows << " x " << dim);
        const OptionSizes z{.rows = rows, .dim = dim, .dtype = dtype};
        const Rows in(z);
        const auto beside = [](const Tensor& x) { return guarded(x); };
        AttentionOptions options = option.make(z, beside);
        options.out = guarded(in.v.sizes(), dtype);
        const AttentionResult ours = attention(beside(in.q), beside(in.k), beside(in.v), options),
                              expected = attention(in.q, in.k, in.v, option.make(z, as_it_is));
        EXPECT_TRUE(bits_equal(ours.output, expected.output));
        EXPECT_TRUE(bits_equal(ours.logsumexp, expected.logsumexp));
      }
}

/// Bytes beyond those that were there: of the library's own memory, and of the process.
template <typename F>
std::size_t most_bytes(F&& call) {
  call();  // scratch that threads keep is there
  const std::size_t before = runtime::allocated_bytes(), resident = Resident::now();
  runtime::reset_peak();
  Resident::reset();
  call();
  const std::size_t own = runtime::peak_bytes() - before, all = Resident::most() - std::min(resident, Resident::most());
  return sanitized ? own : std::max(own, all);
}

constexpr std::size_t mebibyte = std::size_t{1} << 20;

/// A matrix of all pairs would be 512 MiB here.
TEST(EveryOption, NeedsNoMemoryForPairs) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
    const OptionSizes z{.rows = sanitized ? 2048 : 8192, .dim = 4, .dtype = dtype};
    const Rows in(z);
    for (const Option& option : every_option()) {
      const AttentionOptions options = option.make(z, as_it_is);
      EXPECT_LT(most_bytes([&] { attention(in.q, in.k, in.v, options); }), 8 * mebibyte)
          << option.name << " " << name_of(dtype);
    }
  }
}

TEST(EveryOption, OfWeightsNeedsMemoryForWhatIsAskedFor) {
  const OptionSizes z{.heads = 2, .rows = sanitized ? 2048 : 8192, .dim = 4};
  const Rows in(z);
  const auto pairs = static_cast<std::size_t>(z.rows * z.rows) * sizeof(float),
             row = static_cast<std::size_t>(z.rows) * sizeof(float);
  const std::tuple<const char*, Weights, std::size_t> kinds[] = {
      {"column_sums", Weights::column_sums, 2 * row},
      {"top_k", Weights::top_k(3), 2 * 9 * row},
      {"rows", Weights::rows(integers({0, 77, 2000})), 2 * 3 * row},
      {"head_average", Weights::head_average, pairs},
      {"full", Weights::full, 2 * pairs}};
  for (const auto& [name, weights, asked] : kinds)
    EXPECT_LT(most_bytes([&, asking = weights] { attention(in.q, in.k, in.v, {.weights = asking}); }),
              asked + 16 * mebibyte)
        << name;
}

TEST(EveryOption, OfACacheNeedsNoMemoryForPairsOrCopies) {
  const std::int64_t keys = sanitized ? 2048 : 8192, chunk = keys / 2, dim = 64;
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16})
    for (const KvStorage storage : {KvStorage::same, KvStorage::int8})
      for (const std::int64_t page : {16, 0}) {
        SCOPED_TRACE(::testing::Message()
                     << name_of(dtype) << (storage == KvStorage::int8 ? " int8" : "") << " page " << page);
        KvCache cache({.key_heads = 4,
                       .head_dim = dim,
                       .page_rows = page,
                       .pages = page == 0 ? 1 : keys / page,
                       .dtype = dtype,
                       .storage = storage});
        const KvSequence s = cache.create();
        cache.append(s, exact({4, keys, dim}, dtype, 2), exact({4, keys, dim}, dtype, 3));
        // a copy of its keys and values in f32 would be 16 MiB
        const Tensor one = exact({1, 8, 1, dim}, dtype, 1), many = exact({1, 1 * 4, chunk, dim}, dtype, 1);
        EXPECT_LT(most_bytes([&] { attention_cached(one, cache, {s}, {.mask = Mask::causal()}); }), mebibyte);
        EXPECT_LT(most_bytes([&] { attention_cached(many, cache, {s}, {.mask = Mask::causal()}); }), 32 * mebibyte)
            << "queries and output in f32: 8 MiB";
      }
}

}  // namespace
}  // namespace attn::testing
