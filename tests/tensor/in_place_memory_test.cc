// tests/tensor/in_place_memory_test.cc: memory runs out in a change in place, at each allocation in turn: nothing was
// changed, values or history.
#include <attn/autograd.h>
#include <attn/memory.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/failing_memory.h"
#include "support/golden.h"

#include <gtest/gtest.h>

namespace attn::testing {
namespace {

struct Change {
  const char* name;
  std::function<void(const Tensor& x, const Tensor& other)> call;
};

const Change changes[] = {
    {"add_", [](auto& x, auto& other) { x.add_(other); }},
    {"add_ with alpha", [](auto& x, auto& other) { x.add_(other, 3); }},
    {"sub_", [](auto& x, auto& other) { x.sub_(other, 2); }},
    {"mul_", [](auto& x, auto& other) { x.mul_(other); }},
    {"mul_ by itself", [](auto& x, auto&) { x.mul_(x); }},
    {"div_", [](auto& x, auto& other) { x.div_(other); }},
    {"add_ a number", [](auto& x, auto&) { x.add_(1); }},
    {"sub_ a number", [](auto& x, auto&) { x.sub_(1); }},
    {"mul_ a number", [](auto& x, auto&) { x.mul_(3); }},
    {"div_ a number", [](auto& x, auto&) { x.div_(4); }},
    {"copy_", [](auto& x, auto& other) { x.copy_(other); }},
    {"fill_", [](auto& x, auto&) { x.fill_(7); }},
    {"uniform_", [](auto& x, auto&) { uniform_(x); }},
    {"normal_", [](auto& x, auto&) { normal_(x); }},
    {"bernoulli_", [](auto& x, auto&) { bernoulli_(x, 0.5); }},
};

/// What can be seen of x and of the leaves behind it.
struct Seen {
  Tensor values, grad_a, grad_b;
  std::string maker;
  std::uint64_t version;

  Seen(const Tensor& x, const Tensor& whole, const Tensor& a, const Tensor& b)
      : values(whole.detach().clone()), maker(x.grad_fn()), version(x.version()) {
    const std::vector<Tensor> grads =
        grad({(whole * whole).sum()}, {a, b}, {.retain_graph = true, .allow_unused = true});
    grad_a = grads[0], grad_b = grads[1];
  }
  bool same(const Seen& other) const {
    const auto equal = [](const Tensor& x, const Tensor& y) {
      return x.defined() == y.defined() && (!x.defined() || bits_equal(x, y));
    };
    return equal(values, other.values) && equal(grad_a, other.grad_a) && equal(grad_b, other.grad_b) &&
           maker == other.maker && version == other.version;
  }
};

TEST(InPlaceMemory, AChangeThatFailsHasChangedNothing) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const bool is_view : {false, true})
      for (const Change& change : changes) {
        SCOPED_TRACE(::testing::Message() << change.name << (is_view ? " of a view, " : ", ") << name_of(dtype));
        Tensor a = arange(1, 41).to(dtype).view({2, 20}), b = arange(2, 22).to(Dtype::f32);
        a.requires_grad_(), b.requires_grad_();
        const Tensor whole = a * 2, other = b * 3, x = is_view ? whole.narrow(0, 1, 1) : whole;
        x.retain_grad();
        const Seen before(x, whole, a, b);
        release_free_memory();
        const long allocations = fail_at_each([&] { change.call(x, other); }, 0,
                                              [&](long failed) {
                                                EXPECT_TRUE(before.same(Seen(x, whole, a, b)))
                                                    << "allocation " << failed;
                                                release_free_memory();
                                                return !::testing::Test::HasFailure();
                                              });
        ASSERT_FALSE(::testing::Test::HasFailure());
        EXPECT_GT(allocations, 2);
        EXPECT_EQ(x.version(), before.version + 1);
        x.sum().backward();  // and what is asked to be seen is the gradient of the new values
        EXPECT_TRUE(bits_equal(x.grad(), ones(x.sizes(), dtype)));
      }
}

}  // namespace
}  // namespace attn::testing
