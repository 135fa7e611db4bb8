// tests/optim/step_memory_test.cc: memory runs out in an optimiser's step, at each allocation in turn: no parameter and
// no state was changed.
#include <attn/autograd.h>
#include <attn/memory.h>
#include <attn/ops.h>
#include <attn/optim.h>

#include "support/errors.h"
#include "support/failing_memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::optim {
namespace {

using testing::bits_equal;

/// Parameters of every kind a step tells apart, with gradients.
std::vector<Tensor> parameters() {
  std::vector<Tensor> all;
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16})
    for (const bool turned : {false, true}) {
      const Tensor rows = (arange(0.0, 12.0) / 8).to(dtype).reshape({3, 4});
      Tensor x = turned ? rows.t().detach() : rows;
      x.requires_grad_();
      const Tensor gradient = (arange(0.0, 12.0) - 5).to(dtype);
      x.set_grad(turned ? gradient.reshape({3, 4}).t() : gradient.reshape({3, 4}));
      all.push_back(x);
    }
  all.push_back((arange(0.0, 12.0)).reshape({3, 4}).requires_grad_());
  all.back().set_grad(ones({4, 3}).t());  // other strides than the parameter's
  return all;
}

/// What can be seen of an optimiser and its parameters.
struct Seen {
  std::vector<Tensor> values;
  std::vector<std::uint64_t> versions;
  StateDict state;

  Seen(const Optimizer& optimizer, const std::vector<Tensor>& of) : state(optimizer.state_dict()) {
    for (const Tensor& x : of) {
      values.push_back(x.detach().clone());
      versions.push_back(x.version());
    }
  }
  bool same(const Seen& other) const {
    if (versions != other.versions || state.size() != other.state.size()) return false;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!bits_equal(values[i], other.values[i])) return false;
    for (std::size_t i = 0; i < state.size(); ++i)
      if (state[i].first != other.state[i].first || !bits_equal(state[i].second, other.state[i].second)) return false;
    return true;
  }
};

/// Three steps whose allocations fail one by one, beside three of another optimiser that has memory.
template <typename O, typename Options>
void fails(const Options& options) {
  const std::vector<Tensor> x = parameters(), y = parameters();
  O optimizer(x, options), other(y, options);
  for (int step = 0; step < 3; ++step) {
    const Seen before(optimizer, x);
    release_free_memory();
    const long allocations = testing::fail_at_each([&] { optimizer.step(); }, 0,
                                                   [&](long failed) {
                                                     EXPECT_TRUE(before.same(Seen(optimizer, x)))
                                                         << "step " << step << ", allocation " << failed;
                                                     release_free_memory();
                                                     return !::testing::Test::HasFailure();
                                                   });
    ASSERT_FALSE(::testing::Test::HasFailure());
    EXPECT_GT(allocations, 3);
    other.step();
    EXPECT_TRUE(Seen(optimizer, x).same(Seen(other, y))) << "step " << step;
    const NoGrad guard;
    for (const Tensor& half : {x[4], y[4]}) half.mul_(2);  // its f32 copy is made anew
  }
}

TEST(StepMemory, AnAllocationThatFailsChangesNothing) {
  fails<AdamW>(AdamWOptions{.lr = 0.1, .amsgrad = true});
  fails<SGD>(SGDOptions{.lr = 0.1, .momentum = 0.9});
  fails<SGD>(SGDOptions{.lr = 0.1});
}

TEST(StepMemory, OptionsThatAreRefusedChangeNothing) {
  const Tensor a = ones({2}).requires_grad_(), b = ones({2}).requires_grad_();
  for (const Tensor& x : {a, b}) x.set_grad(ones({2}));
  AdamW optimizer({{{a}, {}}, {{b}, {}}});
  optimizer.groups[1].options.lr = -1;
  EXPECT_EQ(testing::error_of<ValueError>([&] { optimizer.step(); }), "AdamW: lr is -1; it must be 0 or more");
  EXPECT_EQ(a.detach().to_vector(), (std::vector<double>{1, 1}));
  EXPECT_TRUE(optimizer.state_dict().empty());
}

}  // namespace
}  // namespace attn::optim
