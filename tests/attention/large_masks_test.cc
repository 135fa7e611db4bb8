// tests/attention/large_masks_test.cc: masks of -1e9 and of the lowest f32 in 16 bits, with every option: what f32
// makes of them (docs/numerics.md section 7).
#include "attention/every_option.h"

#include <attn/autograd.h>
#include <attn/cache.h>

#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

constexpr double lowest = -std::numeric_limits<float>::max();
constexpr double values[] = {-1e9, -3.4e38, lowest};

/// How large numbers come to the scores: [1, 1, T, T] in f32, as a bias or as an expression.
struct Large {
  const char* name;
  std::function<void(const OptionSizes&, AttentionOptions&)> add;
};

Large of_pairs_where(const char* name, double value, const std::function<bool(std::int64_t i, std::int64_t j)>& there) {
  return {name, [=](const OptionSizes& z, AttentionOptions& options) {
            const Tensor x = zeros({1, 1, z.rows, z.rows});
            for (std::int64_t i = 0; i < z.rows; ++i)
              for (std::int64_t j = 0; j < z.rows; ++j)
                if (there(i, j)) x.data<float>()[i * z.rows + j] = static_cast<float>(value);
            options.bias = options.bias + Bias::dense(x);
          }};
}

std::vector<Large> all_large() {
  std::vector<Large> all;
  for (const double value : values) {
    all.push_back(of_pairs_where("everywhere", value, [](auto, auto) { return true; }));
    all.push_back(of_pairs_where("padded on the left, causal", value, [](auto i, auto j) { return j < 3 || j > i; }));
    all.push_back({"of keys", [=](const OptionSizes& z, AttentionOptions& options) {
                     options.bias = options.bias + Bias::dense(full({1, 1, 1, z.rows}, value));
                   }});
  }
  all.push_back({"bf16", [](const OptionSizes& z, AttentionOptions& options) {
                   options.bias =
                       options.bias + Bias::dense(full({z.rows, z.rows}, -1e9).to(Dtype::bf16).to(z.computed()));
                 }});
  all.push_back({"s - 1e9", [](const OptionSizes&, AttentionOptions& options) {
                   if (options.score_mod.empty()) options.score_mod = ScoreExpression::parse("s - 1e9");
                 }});
  all.push_back({"where", [](const OptionSizes&, AttentionOptions& options) {
                   if (options.score_mod.empty())
                     options.score_mod = ScoreExpression::parse("where(j > i(top_left), -3.4e38, s)");
                 }});
  return all;
}

struct Operands {
  Tensor q, k, v, dy;
  Operands(const OptionSizes& z, std::uint64_t seed)
      : q(exact({1, z.heads, z.rows, z.dim}, z.dtype, seed)), k(exact({1, z.heads, z.rows, z.dim}, z.dtype, seed + 1)),
        v(exact({1, z.heads, z.rows, z.dim}, z.dtype, seed + 2)),
        dy(exact({1, z.heads, z.rows, z.dim}, z.dtype, seed + 3)) {}
};

/// `f32` is the truth, itself no more than rounding away from it.
void expect_near(const Tensor& ours, const Tensor& f32, double eps, const std::string& what) {
  SCOPED_TRACE(what);
  const std::vector<double> truth = f32.to_vector();
  expect_within(ours, truth, truth, eps);
}

constexpr double eps_of(Dtype dtype) { return dtype == Dtype::f16 ? 0x1p-10 : 0x1p-7; }

std::vector<std::pair<std::string, Tensor>> results(const OptionSizes& z, const AttentionOptions& options,
                                                    const Weights& weights) {
  const Operands in(z, 31);
  AttentionOptions asking = options;
  asking.weights = weights;
  const AttentionResult r = attention(in.q, in.k, in.v, asking);
  return {{"output", r.output}, {"logsumexp", r.logsumexp}, {"weights", r.weights}};
}

std::vector<std::pair<std::string, Tensor>> gradients(const OptionSizes& z, AttentionOptions options) {
  Operands in(z, 31);
  std::vector<std::pair<std::string, Tensor>> leaves{{"dq", in.q.clone()}, {"dk", in.k.clone()}, {"dv", in.v.clone()}};
  if (options.sinks.defined()) leaves.emplace_back("dsinks", options.sinks = options.sinks.clone());
  for (auto& [name, leaf] : leaves) leaf.requires_grad_();
  if (options.sinks.defined()) options.sinks = leaves.back().second;
  attention(leaves[0].second, leaves[1].second, leaves[2].second, options).output.backward(in.dy);
  for (auto& [name, leaf] : leaves) leaf = leaf.grad();
  return leaves;
}

TEST(LargeMasks, GiveWhatF32GivesWithEveryOption) {
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16})
    for (const Option& option : every_option())
      for (const Large& large : all_large()) {
        const OptionSizes half{.rows = 70, .dtype = dtype}, wide{.rows = 70};
        const auto options_of = [&](const OptionSizes& z) {
          AttentionOptions options = option.make(z, as_it_is);
          large.add(z, options);
          return options;
        };
        SCOPED_TRACE(::testing::Message() << option.name << ", " << large.name << " " << name_of(dtype) << " "
                                          << options_of(wide).bias.to_string());
        const std::pair<const char*, Weights> kinds[] = {{"full", Weights::full},
                                                         {"rows", Weights::rows(integers({0, 5, 69}))},
                                                         {"head_average", Weights::head_average},
                                                         {"column_sums", Weights::column_sums},
                                                         {"top_k", Weights::top_k(3)}};
        for (const auto& [kind, weights] : kinds) {
          const auto ours = results(half, options_of(half), weights), f32 = results(wide, options_of(wide), weights);
          for (std::size_t n = 0; n < ours.size(); ++n)
            expect_near(ours[n].second, f32[n].second, eps_of(dtype), ours[n].first + " of " + kind);
        }
        if (options_of(half).score_callback.function) continue;  // a callable has no gradient
        const auto ours = gradients(half, options_of(half)), f32 = gradients(wide, options_of(wide));
        for (std::size_t n = 0; n < ours.size(); ++n)
          expect_near(ours[n].second, f32[n].second, eps_of(dtype), ours[n].first);
      }
}

/// Spans of 1,024 keys, merged on one thread or on several; many rows, and few.
TEST(LargeMasks, AcrossSpans) {
  constexpr std::int64_t keys = 2300, dim = 16;
  for (const double value : values)
    for (const std::int64_t rows : {1, 3, 70})
      for (const bool sinks : {false, true})
        for (const double dropout : {0.0, 0.25}) {
          SCOPED_TRACE(::testing::Message()
                       << value << ", " << rows << " rows, sinks " << sinks << ", dropout " << dropout);
          const Tensor q = exact({1, 2, rows, dim}, Dtype::bf16, 1), k = exact({1, 2, keys, dim}, Dtype::bf16, 2),
                       v = exact({1, 2, keys, dim}, Dtype::bf16, 3);
          const Tensor bias = full({1, 1, rows, keys}, value);
          bias.narrow(2, 0, 1).narrow(3, 1200, 5).zero_();  // one row sees a little of its second span
          AttentionOptions options{.bias = Bias::dense(bias), .dropout_p = dropout, .dropout_seed = 3};
          if (sinks) options.sinks = full({2}, value);
          const AttentionResult ours = attention(q, k, v, options),
                                f32 = attention(q.to(Dtype::f32), k.to(Dtype::f32), v.to(Dtype::f32), options);
          expect_near(ours.output, f32.output, eps_of(Dtype::bf16), "output");
          expect_near(ours.logsumexp, f32.logsumexp, eps_of(Dtype::bf16), "logsumexp");
        }
}

TEST(LargeMasks, OverCachesOfEveryKind) {
  constexpr std::int64_t dim = 64;
  for (const KvStorage storage : {KvStorage::same, KvStorage::int8})
    for (const std::int64_t page : {16, 0})
      for (const std::int64_t group : {0, 32})
        for (const std::int64_t keys : {40, 1100})
          for (const std::int64_t rows : {1, 3, 30})
            for (const double value : values) {
              if (storage == KvStorage::same && group != 0) continue;
              SCOPED_TRACE(::testing::Message()
                           << (storage == KvStorage::int8 ? "int8" : "same") << " page " << page << " group " << group
                           << " keys " << keys << " rows " << rows << " " << value);
              KvCache cache({.key_heads = 2,
                             .head_dim = dim,
                             .page_rows = page,
                             .pages = page == 0 ? 1 : (keys + page - 1) / page,
                             .dtype = Dtype::bf16,
                             .storage = storage,
                             .scale_group = group});
              const KvSequence s = cache.create();
              cache.append(s, exact({2, keys, dim}, Dtype::bf16, 2), exact({2, keys, dim}, Dtype::bf16, 3));
              const Tensor q = exact({1, 4, rows, dim}, Dtype::bf16, 1, 0.25);
              const AttentionOptions options{.bias = Bias::dense(full({1, 1, 1, keys}, value))};
              const KvCache::Rows stored = cache.gather({s}, Dtype::f32);
              const AttentionResult ours = attention_cached(q, cache, {s}, options),
                                    f32 = attention(q.to(Dtype::f32), stored.k, stored.v, options);
              expect_near(ours.output, f32.output, eps_of(Dtype::bf16), "output");
              expect_near(ours.logsumexp, f32.logsumexp, eps_of(Dtype::bf16), "logsumexp");
            }
}

TEST(LargeMasks, SmallestCalls) {
  const Tensor q = zeros({1, 2}, Dtype::bf16), k = zeros({2, 2}, Dtype::bf16),
               v = tensor<double>({1, 3}, {2, 1}).to(Dtype::bf16);
  for (const double value : values)
    EXPECT_EQ(attention(q, k, v, {.bias = Bias::dense(full({1, 2}, value))}).output.item(), 2) << value;
  const AttentionResult moved =
      attention(q, k, v, {.score_mod = ScoreExpression::parse("s - 1e9"), .weights = Weights::full});
  EXPECT_TRUE(bits_equal(moved.weights, full({1, 2}, 0.5).to(Dtype::bf16)));
  EXPECT_EQ(moved.output.item(), 2);
}

}  // namespace
}  // namespace attn::testing
