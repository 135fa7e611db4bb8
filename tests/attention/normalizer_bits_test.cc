// tests/attention/normalizer_bits_test.cc: other normalizers than softmax have the bits of the specification on every
// target and number of threads, in any batch, padding and cache.
#include <attn/cache.h>
#include <attn/ops.h>
#include <attn/runtime.h>

#include "attention/gradient_trial.h"
#include "attention/normalizers.h"
#include "attention/own_cases.h"
#include "kernels/attention/normalizer_problem.h"
#include "kernels/reference.h"
#include "runtime/cpu.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <limits>
#include <tuple>

namespace attn::testing {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

struct Bits {
  Tensor output, max, sum, q, k, v, head, key, looked_up;
};
/// A call by given kernels: `kernel` null: the reference.
Bits by_kernels(const OptionSizes& z, const AttentionOptions& options, const kernels::NormalizerKernel* kernel,
                const kernels::NormalizerKernel& reference) {
  const Dims rows{1, z.heads, z.rows, z.dim};
  Trial trial{.q = exact(rows, z.dtype, 1),
              .k = exact(rows, z.dtype, 2),
              .v = exact(rows, z.dtype, 3),
              .options = options,
              .dropout = 0,
              .doutput = exact(rows, z.dtype, 4)};
  Call call = trial.call();
  auto lowered = std::const_pointer_cast<LoweredNormalizer>(call.normalizer);
  lowered->described.kernel = kernel;
  lowered->described.reference = &reference;
  if (options.dropout_p > 0)
    describe_dropout(options.dropout_p, *options.dropout_seed, z.dtype == Dtype::f64, call.problem);
  const SavedAttention saved = forward(trial, call);
  AttentionBackward backward;
  backward.output = call.with_heads(trial.doutput);
  const FusedGradients g = attention_backward(call, saved, backward);
  Bits bits{saved.output, saved.max, saved.sum, g.q, g.k, g.v, {}, {}, {}};
  if (!g.looked_up.empty()) bits.head = g.looked_up.front(), bits.key = g.looked_up.back();
  return bits;
}
void expect_same(const Bits& a, const Bits& b, const std::string& what) {
  for (const auto& [x, y, name] : {std::tuple{&a.output, &b.output, "output"},
                                   {&a.max, &b.max, "max"},
                                   {&a.sum, &b.sum, "sum"},
                                   {&a.q, &b.q, "dq"},
                                   {&a.k, &b.k, "dk"},
                                   {&a.v, &b.v, "dv"},
                                   {&a.head, &b.head, "first table"},
                                   {&a.key, &b.key, "last table"}})
    if (x->defined()) { EXPECT_TRUE(bits_equal(*x, *y)) << what << " " << name; }
}

TEST(NormalizerBits, EveryTargetAndThreadCountHasTheBitsOfTheSpecification) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64})
    for (const auto& [rows, dim] : {std::pair{1, 1}, {7, 5}, {67, 17}, {150, 33}})
      for (const Normalizer& normalizer : every_normalizer())
        for (const Option& option : options_of(normalizer))
          for (const bool modified : {false, true}) {
            const OptionSizes z{.rows = rows, .dim = dim, .dtype = dtype};
            const AttentionOptions options = with(option.make(z, as_it_is), normalizer, modified ? &z : nullptr);
            if (!has_normalizer(options)) continue;
            SCOPED_TRACE(::testing::Message() << normalizer << " " << option.name << (modified ? " modified " : " ")
                                              << name_of(dtype) << " " << rows << " x " << dim);
            const std::string name_of_option = option.name;
            if (rows == 150 && name_of_option != "window" && name_of_option != "blocks of keys" &&
                name_of_option != "score expression" && name_of_option != "nothing")
              continue;  // the specification takes its time
            const kernels::Reference* const fma = kernels::reference_fma();
            const auto& generic = kernels::normalizer_reference(*kernels::reference_generic());
            const auto& reference = fma != nullptr ? kernels::normalizer_reference(*fma) : generic;
            const Bits expected = by_kernels(z, options, nullptr, reference);
            if (fma != nullptr && rows <= 7) expect_same(by_kernels(z, options, nullptr, generic), expected, "generic");
            kernels::AttentionProblem p;
            p.element = dtype == Dtype::f64 ? kernels::Element::f64 : kernels::Element::f32;
            if (options.score.kind == Score::Kind::additive) p.score = kernels::ScoreOp::additive;
            for (const std::string& name : runtime::targets())
              if (const auto* target = kernels::normalizer_target(name.c_str()); target != nullptr) {
                const int before = num_threads();
                for (const int threads : rows == 150 ? std::vector{1, 3} : std::vector{1}) {
                  set_num_threads(threads);
                  expect_same(by_kernels(z, options, &target->of(p), reference), expected, name);
                }
                set_num_threads(before);
              }
          }
}

TEST(NormalizerBits, DoNotDependOnPaddingAndPacking) {
  const std::int64_t length = 90, longest = 130, heads = 2, dim = 16;
  const Tensor q = normal({1, heads, length, dim}, 1), k = normal({1, heads, length, dim}, 2),
               v = normal({1, heads, length, dim}, 3);
  for (const Normalizer& normalizer : every_normalizer()) {
    SCOPED_TRACE(normalizer.to_string());
    const AttentionOptions plain{
        .mask = Mask::causal(Align::bottom_right),
        .normalizer = normalizer,
        .weight_mod = [](auto w, auto, auto, auto i, auto j) { return w * exp(0.125 * (j - i) / 8.0); }};
    AttentionOptions alone = plain, padded = plain, packed = plain;
    alone.weight_mod = padded.weight_mod = packed.weight_mod = plain.weight_mod.aligned(Align::bottom_right);
    const Tensor expected = attention(q, k, v, alone).output;
    const Tensor filler = full({1, heads, longest - length, dim}, nan);
    padded.query_lengths = tensor<std::int64_t>({length});
    padded.key_start = tensor<std::int64_t>({longest - length});
    const Tensor in_batch = attention(cat({q, filler}, 2), cat({filler, k}, 2), cat({filler, v}, 2), padded).output;
    EXPECT_TRUE(bits_equal(in_batch.slice(2, 0, length), expected));
    EXPECT_TRUE(bits_equal(in_batch.slice(2, length), zeros({1, heads, longest - length, dim})));
    packed.cu_seqlens_q = tensor<std::int64_t>({0, 33, 33 + length});
    const auto behind = [&](const Tensor& x) {
      return cat({normal({33, heads, dim}, 9), x.squeeze(0).transpose(0, 1)}, 0);
    };
    const Tensor rows = attention(behind(q), behind(k), behind(v), packed).output;
    EXPECT_TRUE(bits_equal(rows.slice(0, 33).transpose(0, 1), expected.squeeze(0)));
  }
}

TEST(NormalizerBits, OfOneRowFromACacheAreThoseOfTheWholeCall) {
  const std::int64_t heads = 4, keys = 150, dim = 16;
  for (const Normalizer& normalizer : every_normalizer()) {
    SCOPED_TRACE(normalizer.to_string());
    const Tensor q = normal({1, heads, 1, dim}, 1), k = normal({1, 2, keys, dim}, 2), v = normal({1, 2, keys, dim}, 3);
    KvCache cache({.key_heads = 2, .head_dim = dim, .pages = 16});
    const KvSequence sequence = cache.create();
    cache.append(sequence, k.squeeze(0), v.squeeze(0));
    const AttentionOptions options{.normalizer = normalizer};
    EXPECT_TRUE(bits_equal(attention_cached(q, cache, {sequence}, options).output, attention(q, k, v, options).output));
  }
}

const OwnCase own_cases[] = {
#include "cases/normalizer.inc"
};

TEST(NormalizerBits, CasesHaveTheDigestsOfTheirTableOnEveryTarget) { expect_digests(own_cases); }

}  // namespace
}  // namespace attn::testing
