// tests/attention/host_environment_test.cc: a host's rounding mode, flushed denormals or traps change no bit, and are
// the host's again afterwards.
#include <attn/autograd.h>
#include <attn/cache.h>
#include <attn/nn.h>
#include <attn/ops.h>
#include <attn/optim.h>
#include <attn/plain.h>
#include <attn/random.h>

#include "attention/truth.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <functional>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace attn::testing {
namespace {

using Values = std::vector<Tensor>;

struct Scene {
  const char* name;
  std::function<Values()> run;
};

Values with_gradients(const std::function<Tensor(const Values&)>& function, const Values& given) {
  Values inputs, results;
  for (const Tensor& x : given) inputs.push_back(x.clone().requires_grad_(true));
  const Tensor y = function(inputs);
  results.push_back(y.detach());
  for (const Tensor& x : grad({sum(y * y)}, inputs)) results.push_back(x);
  return results;
}

/// One head of rows without a tensor.
Tensor of_plain(const Tensor& q) {
  const Tensor out = empty(q.sizes());
  const plain::Attention call{.q_rows = q.size(0),
                              .k_rows = q.size(0),
                              .dim = q.size(1),
                              .value_dim = q.size(1),
                              .q = q.data(),
                              .k = q.data(),
                              .v = q.data(),
                              .output = out.data()};
  // threads of the host's have the host's environment
  const plain::Executor in_order{
      .run = [](void*, std::int64_t tasks, void (*task)(void*, std::int64_t), void* context) {
        for (std::int64_t i = 0; i < tasks; ++i) task(context, i);
      }};
  std::vector<char> workspace(plain::workspace_bytes(call, in_order));
  EXPECT_EQ(plain::attention(call, workspace.data(), workspace.size(), in_order), plain::Status::ok);
  return out;
}

std::vector<Scene> scenes() {
  const Tensor a = normal({6, 10}, 1), b = normal({6, 10}, 2), q = normal({1, 2, 9, 10}, 3), positive = abs(a) + 0.5;
  return {
      {"elements",
       [=] {
         return with_gradients(
             [](const Values& x) { return exp(x[0]) / (x[1] * x[1] + 0.3) - gelu(x[0]) * 1e-3 + sin(x[1]); }, {a, b});
       }},
      {"powers",
       [=] {
         return with_gradients([](const Values& x) { return pow(x[0], 2) + sqrt(x[0]) + log(x[0]); }, {positive});
       }},
      {"denormals",
       [=] {
         const Tensor small = a * 1e-40, one = full({1}, small[0][0].item(), Dtype::f64);
         return Values{small, one, sum(a * 1e-39), (a * 1e-7).to(Dtype::f16), full({3}, 1e-41), exp(a * 40.0 - 100.0)};
       }},
      {"reductions",
       [=] {
         return with_gradients(
             [](const Values& x) {
               return mean(x[0], {1}) + var(x[0], {1}) + norm(x[0], 2.0, {1}) + norm(x[0], 3.0, {1});
             },
             {a});
       }},
      {"norms",
       [=] {
         return with_gradients(
             [](const Values& x) { return layer_norm(x[0], {10}) + rms_norm(x[0], {10}) + softmax(x[0], 1); }, {a});
       }},
      {"products", [=] { return with_gradients([](const Values& x) { return matmul(x[0], x[1].t()); }, {a, b}); }},
      {"numbers",
       [=] {
         return Values{linspace(0, 1, 7), arange(0.0, 1.0, 0.1), full({2}, 0.1), a.clone().fill_(0.7),
                       Bias::alibi_slopes(12)};
       }},
      {"random",
       [] {
         Generator generator(3);
         const Tensor x = empty({40});
         return Values{uniform_(x.clone(), 0.1, 0.4, generator), normal_(x.clone(), 0.1, 0.3, generator),
                       dropout(ones({40}), 0.3, true, generator)};
       }},
      {"steps",
       [=] {
         const Tensor x = a.clone().requires_grad_(true);
         optim::AdamW step({x}, {});
         x.set_grad(b.clone());
         optim::clip_grad_norm_({x}, 0.1);
         step.step();
         return Values{x.detach()};
       }},
      {"attention",
       [=] {
         const AttentionOptions options{
             .mask = Mask::causal(), .softcap = 3, .temperature = 1.1, .dropout_p = 0.1, .dropout_seed = 3};
         const auto call = [options](const Values& x) { return attention(x[0], x[0], x[0], options).output; };
         Values results = with_gradients(call, {q});
         for (const Tensor& x : with_gradients(call, {q.to(Dtype::f64)})) results.push_back(x);
         return results;
       }},
      {"expression",
       [=] {
         return Values{
             attention(q, q, q, {.score_mod = ScoreExpression::parse("tanh(s * 0.1) / 3.3 + 0.7 * (i - j)")}).output};
       }},
      {"plain", [=] { return Values{of_plain(q[0][0].contiguous())}; }},
      {"cache of 8 bits",
       [=] {
         KvCache cache({.key_heads = 2, .head_dim = 10, .pages = 2, .storage = KvStorage::int8});
         const KvSequence s = cache.create();
         cache.append(s, q[0], q[0]);
         return Values{attention_cached(q, cache, {s}).output, cache.gather({s}).k};
       }},
  };
}

/// Each scene's results and what they are under `change`, which must hold afterwards as `holds` says.
void expect_same(const char* host, const std::function<void()>& change, const std::function<bool()>& holds) {
  std::fenv_t before;
  for (const Scene& scene : scenes()) {
    const Values expected = scene.run();
    std::fegetenv(&before);
    change();
    const Values results = scene.run();
    const bool held = holds();
    std::fesetenv(&before);
    EXPECT_TRUE(held) << host << ", " << scene.name;
    ASSERT_EQ(results.size(), expected.size());
    for (std::size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(same_bits(results[i], expected[i])) << host << ", " << scene.name << ", " << i;
  }
}

TEST(HostEnvironment, RoundingChangesNothing) {
  for (const int mode : {FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO})
    expect_same("rounding", [mode] { std::fesetround(mode); }, [mode] { return std::fegetround() == mode; });
}

#if defined(__x86_64__)
TEST(HostEnvironment, FlushedDenormalsAndTrapsChangeNothing) {
  // FTZ and DAZ; division by zero, overflow and invalid operations trap
  for (const unsigned control : {0x9FC0u, 0x1980u & ~0x0080u}) {
    const auto now = [] { return _mm_getcsr() & 0xFFC0u; };
    expect_same("control", [control] { _mm_setcsr(control); }, [=] { return now() == control; });
  }
}
#endif

}  // namespace
}  // namespace attn::testing
