// tests/tensor/autograd_test.cc: the tape itself: accumulation, what is kept and freed, in-place changes, errors, long
// chains.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/errors.h"
#include "tensor/record.h"

#include <gtest/gtest.h>

namespace attn {
namespace {

using testing::error_of;

Tensor leaf(const std::vector<float>& values, const Dims& sizes) {
  Tensor x = tensor<float>(values, sizes);
  return x.requires_grad_();
}
std::vector<double> values(const Tensor& x) { return x.to_vector(); }
using Values = std::vector<double>;

TEST(Autograd, GradientsAddUpInTheLeaf) {
  const Tensor x = leaf({1, 2, 3}, {3});
  EXPECT_FALSE(x.grad().defined());
  sum(x * x).backward();
  EXPECT_EQ(values(x.grad()), (Values{2, 4, 6}));
  sum(x * 3).backward();
  EXPECT_EQ(values(x.grad()), (Values{5, 7, 9}));
  EXPECT_FALSE(x.grad().requires_grad());
  x.set_grad({});
  (x * x).backward(tensor<float>({1, 0, 2}));
  EXPECT_EQ(values(x.grad()), (Values{2, 0, 12}));
}

TEST(Autograd, AccumulatesIntoTheMemoryThatIsThere) {
  const Tensor x = leaf({1, 2}, {2}), flat = zeros({4});
  x.set_grad(flat.narrow(0, 2, 2));
  sum(x * x).backward();
  sum(x).backward();
  EXPECT_EQ(values(flat), (Values{0, 0, 3, 5}));
  EXPECT_NE(error_of<ShapeError>([&] { x.set_grad(zeros({3})); }), "");
  EXPECT_NE(error_of<DtypeError>([&] { x.set_grad(zeros({2}, Dtype::f64)); }), "");
}

TEST(Autograd, LeavesDoNotShareMemoryOfAGradient) {
  const Tensor a = leaf({1, 2}, {2}), b = leaf({3, 4}, {2}), seed = ones({2});
  (a + b).backward(seed);
  sum(a * a).backward();
  EXPECT_EQ(values(a.grad()), (Values{3, 5}));
  EXPECT_EQ(values(b.grad()), (Values{1, 1}));
  EXPECT_EQ(values(seed), (Values{1, 1}));
  const Tensor c = leaf({1}, {1});
  c.expand({3}).backward(ones({3}));
  EXPECT_EQ(values(c.grad()), (Values{3}));
}

TEST(Autograd, AResultUsedOftenWaitsForAllItsGradients) {
  const Tensor x = leaf({2}, {1});
  const Tensor a = x * x;          // 4
  const Tensor b = a * x + a;      // 12
  const Tensor c = b * a + b + a;  // x^5 + x^4 + x^3 + 2 x^2
  c.backward();
  EXPECT_EQ(values(x.grad()), (Values{5 * 16 + 4 * 8 + 3 * 4 + 4 * 2}));
}

TEST(Autograd, OnlyWhatWantsAGradientIsRecorded) {
  const Tensor x = leaf({1, 2}, {2}), constant = ones({2});
  const Tensor y = x * constant;
  EXPECT_TRUE(y.requires_grad());
  EXPECT_FALSE(y.is_leaf());
  EXPECT_EQ(y.grad_fn(), "MulBackward0");
  EXPECT_TRUE(x.is_leaf());
  EXPECT_FALSE((constant * constant).requires_grad());
  EXPECT_FALSE(gt(x, constant).requires_grad());
  EXPECT_FALSE(argmax(x).requires_grad());
  EXPECT_FALSE(y.detach().requires_grad());
  EXPECT_EQ(y.impl()->node->saved.size(), 2u);
  EXPECT_TRUE(y.impl()->node->saved[0].tensor.defined());   // the constant, for x
  EXPECT_FALSE(y.impl()->node->saved[1].tensor.defined());  // x, for the constant, which wants none
  {
    const NoGrad guard;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE((x * x).requires_grad());
    {
      const EnableGrad inner;
      EXPECT_TRUE((x * x).requires_grad());
    }
    EXPECT_FALSE(grad_enabled());
  }
  EXPECT_TRUE(grad_enabled());
}

TEST(Autograd, RetainGradShowsTheGradientOfAResult) {
  const Tensor x = leaf({1, 2}, {2}), y = x * 3, z = y * y;
  y.retain_grad();
  sum(z).backward();
  EXPECT_EQ(values(y.grad()), (Values{6, 12}));
  EXPECT_FALSE(z.grad().defined());
  const Tensor changed = x * 3;
  changed.retain_grad();
  changed.mul_(2);  // the gradient of the new value is meant
  sum(changed * changed).backward();
  EXPECT_EQ(values(changed.grad()), (Values{12, 24}));
  EXPECT_NE(error_of<ValueError>([] { ones({2}).retain_grad(); }), "");
}

/// The numbers are PyTorch's.
TEST(Autograd, RetainGradTwiceIsOnce) {
  const auto twice = [](const Tensor& x) { x.retain_grad(), x.retain_grad(); };
  const Tensor x = leaf({1, 2}, {2}), y = x * 2;
  twice(x), twice(y);
  sum(y * 3).backward();
  EXPECT_EQ(values(y.grad()), (Values{3, 3}));
  EXPECT_EQ(values(x.grad()), (Values{6, 6}));
  const Tensor changed = x * 2;
  twice(changed);
  changed.mul_(5);
  twice(changed);
  sum(changed * 3).backward();
  EXPECT_EQ(values(changed.grad()), (Values{3, 3}));
  const Tensor base = x * 2, view = base.narrow(0, 0, 2);
  twice(base), twice(view);
  view.mul_(2);
  twice(base), twice(view);
  sum(base * 3 + view).backward();
  EXPECT_EQ(values(base.grad()), (Values{4, 4}));
  EXPECT_EQ(values(view.grad()), (Values{1, 1}));
}

TEST(Autograd, GradTouchesNoLeaf) {
  const Tensor x = leaf({1, 2}, {2}), w = leaf({3, 4}, {2});
  const Tensor y = x * w, z = sum(y * y);
  const std::vector<Tensor> gradients = grad({z}, {y, x, w}, {.retain_graph = true});
  EXPECT_EQ(values(gradients[0]), (Values{6, 16}));
  EXPECT_EQ(values(gradients[1]), (Values{18, 64}));
  EXPECT_EQ(values(gradients[2]), (Values{6, 32}));
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(values(grad(z, y)), (Values{6, 16}));  // below y nothing has run: y can still go back
  y.backward(ones({2}));
  EXPECT_EQ(values(x.grad()), (Values{3, 4}));
  const Tensor both = x * 2;
  EXPECT_EQ(values(grad({sum(both), sum(both * both)}, {x}, {.grad_outputs = {full({}, 10), full({}, 1)}})[0]),
            (Values{28, 36}));
}

TEST(Autograd, BackwardIntoChosenInputs) {
  const Tensor x = leaf({1, 2}, {2}), w = leaf({3, 4}, {2});
  const Tensor y = x * w;
  backward(sum(y * y), {}, {.inputs = {w, y}});
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(values(w.grad()), (Values{6, 32}));
  EXPECT_EQ(values(y.grad()), (Values{6, 16}));
  const Tensor shown = x * w;
  shown.retain_grad();
  backward(sum(shown * shown), {}, {.inputs = {shown}});  // asked for twice, there once
  EXPECT_EQ(values(shown.grad()), (Values{6, 16}));
}

TEST(Autograd, AnInputNamedTwiceGetsItsGradientOnce) {
  const Tensor x = leaf({1, 2}, {2}), y = x * 2, view = y.narrow(0, 0, 2);
  y.retain_grad();
  for (const double passes : {1.0, 2.0}) {
    backward(sum(y * 3 + view), {}, {.retain_graph = true, .inputs = {y, x, view, y, x, y, view}});
    EXPECT_EQ(values(y.grad()), (Values{4 * passes, 4 * passes}));
    EXPECT_EQ(values(view.grad()), (Values{passes, passes}));
    EXPECT_EQ(values(x.grad()), (Values{8 * passes, 8 * passes}));
  }
  const std::vector<Tensor> both = grad({sum(y * 3)}, {y, y});
  EXPECT_EQ(values(both[0]), (Values{3, 3}));
  EXPECT_EQ(values(both[1]), (Values{3, 3}));
}

TEST(Autograd, ALeafFrozenSinceGetsNothing) {
  Tensor x = leaf({1, 2}, {2});
  const Tensor w = leaf({3, 4}, {2}), y = sum(x * w);
  x.requires_grad_(false);
  y.backward();
  EXPECT_FALSE(x.grad().defined());
  EXPECT_EQ(values(w.grad()), (Values{1, 2}));
}

TEST(Autograd, UnusedInputs) {
  const Tensor x = leaf({1, 2}, {2}), unused = leaf({1}, {1});
  EXPECT_EQ(error_of<ValueError>([&] { grad({sum(x * x)}, {x, unused}); }),
            "grad: no output comes from input 1 of shape [1]; allow_unused gives an undefined gradient then");
  EXPECT_FALSE(grad({sum(x * x)}, {x, unused}, {.allow_unused = true})[1].defined());
  EXPECT_FALSE(grad(sum(x * x), ones({2}), {.allow_unused = true}).defined());
  EXPECT_EQ(error_of<ValueError>([&] { grad({sum(x * x)}, {x, Tensor()}, {.allow_unused = true}); }),
            "grad: input 1 is undefined");
}

TEST(Autograd, Errors) {
  const Tensor x = leaf({1, 2}, {2}), y = x * x;
  EXPECT_EQ(error_of<ValueError>([&] { y.backward(); }),
            "backward: output 0 has shape [2]; without a gradient for it, it must have one element");
  EXPECT_EQ(error_of<ShapeError>([&] { y.backward(ones({3})); }),
            "backward: the gradient of output 0 has shape [3]; it must be [2]");
  EXPECT_EQ(error_of<ValueError>([] { ones({}).backward(); }),
            "backward: output 0 does not require a gradient; no operation on a tensor that does made it");
  EXPECT_EQ(error_of<ValueError>([&] { backward({y}, {ones({2}), ones({2})}); }),
            "backward: 2 gradients for 1 outputs; they must be as many");
  const Tensor mute = x.detach() * 2;
  record({"MuteBackward0", {x}, {}}, {mute}, {});
  EXPECT_EQ(error_of<ValueError>([&] { sum(mute).backward(); }), "backward: MuteBackward0 has no gradient");
  const Tensor odd = x.detach() * 2;
  record("OddBackward0", odd, wrt(x, [](auto&) { return ones({3}); }));
  EXPECT_EQ(
      error_of<ShapeError>([&] { sum(odd).backward(); }),
      "backward: OddBackward0 gave a gradient of shape [3] for an input of shape [2]; the input must broadcast to it");
}

TEST(Autograd, WhatWasSavedIsFreedUnlessRetained) {
  const Tensor x = leaf({1, 2}, {2}), y = sum(x * x);
  backward(y, {}, {.retain_graph = true});
  y.backward();
  EXPECT_EQ(values(x.grad()), (Values{4, 8}));
  EXPECT_EQ(
      error_of<ValueError>([&] { y.backward(); }),
      "backward: MulBackward0 was run by an earlier pass and what it had saved is freed; give that pass retain_graph");
  EXPECT_EQ(values(x.grad()), (Values{4, 8}));  // nothing was added
  const Tensor nothing_saved = sum(x + x);
  nothing_saved.backward();
  nothing_saved.backward();
  EXPECT_EQ(values(x.grad()), (Values{8, 12}));
}

TEST(Autograd, MemoryIsFreedOnTheWay) {
  const Tensor x = leaf({1, 2}, {2});
  std::weak_ptr<Storage> middle, result;
  Tensor y;
  {
    const Tensor a = x * 2, b = exp(a);
    middle = a.impl()->storage;
    result = b.impl()->storage;
    y = sum(b * b * a);
  }
  EXPECT_FALSE(middle.expired());  // saved
  EXPECT_FALSE(result.expired());
  y.backward();
  EXPECT_TRUE(middle.expired());  // though y and its node live
  EXPECT_TRUE(result.expired());
}

TEST(Autograd, NoCycleHoldsAResult) {
  std::weak_ptr<Storage> memory;
  {
    const Tensor x = leaf({1, 2}, {2}), y = tanh(exp(x));  // both save their results
    memory = y.impl()->storage;
  }
  EXPECT_TRUE(memory.expired());
}

TEST(Autograd, InPlaceChangesOfSavedTensorsAreNamed) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3}), w = ones({2, 3});
  const Tensor y = x * w;
  w.mul_(2);
  EXPECT_EQ(error_of<ValueError>([&] { sum(y).backward(); }),
            "backward: MulBackward0 saved a tensor of shape [2, 3] at version 0; it was changed in place and is at "
            "version 1; change a clone() instead");
  EXPECT_FALSE(x.grad().defined());
  const Tensor e = exp(x);
  e.detach().add_(ones({}));  // by way of another handle
  EXPECT_NE(error_of<ValueError>([&] { sum(e).backward(); }).find("ExpBackward0 saved a tensor of shape [2, 3]"),
            std::string::npos);
  const Tensor unsaved = x + w;  // a sum saves nothing
  w.mul_(2);
  sum(unsaved).backward();
  EXPECT_EQ(values(x.grad()), Values(6, 1.0));
}

/// An input whose value the gradient needs, and `out` in its memory: the value is gone.
TEST(Autograd, WhatOutWasWrittenOverIsNamed) {
  const Tensor a = full({3, 3}, 0.5);
  const std::pair<const char*, std::function<Tensor(const Tensor& x, const Tensor& b, Tensor out)>> operations[] = {
      {"MulBackward0", [](auto& x, auto& b, Tensor out) { return mul(x, b, out); }},
      {"DivBackward0", [](auto& x, auto& b, Tensor out) { return div(x, b, out); }},
      {"PowBackward1", [](auto& x, auto& b, Tensor out) { return pow(x, b, out); }},
      {"MaximumBackward0", [](auto& x, auto& b, Tensor out) { return maximum(x, b, out); }},
      {"MmBackward0", [](auto& x, auto& b, Tensor out) { return matmul(x, b, out); }},
      {"NativeLayerNormBackward0",
       [](auto& x, auto& b, Tensor out) { return layer_norm(x, {3}, b[0], {}, 1e-5, out); }},
      {"RmsNormBackward0", [](auto& x, auto& b, Tensor out) { return rms_norm(x, {3}, b[0], std::nullopt, out); }}};
  for (const auto& [name, operation] : operations) {
    Tensor b = full({3, 3}, 0.75);
    b.requires_grad_();
    const Tensor x = a.clone(), over = operation(x, b, x);
    EXPECT_EQ(error_of<ValueError>([&] { over.sum().backward(); }),
              std::string("backward: ") + name +
                  " saved a tensor of shape [3, 3] at version 0; it was changed in place and is at version 1; change a "
                  "clone() instead");
    // parts of one memory that have no element in common: rows, and columns between columns
    const Tensor memory = zeros({6, 6}), other = zeros({6, 6});
    for (const auto& [part, free] :
         {std::pair{memory.slice(0, 0, 3).slice(1, 0, 3), memory.slice(0, 3, 6).slice(1, 1, 4)},
          {other.slice(0, 0, 3).slice(1, 0, 3), other.slice(0, 0, 3).slice(1, 3, 6)}}) {
      part.copy_(a);
      const Tensor beside = grad(sum(operation(part, b, free)), b), alone = grad(sum(operation(a, b, {})), b);
      EXPECT_TRUE(same_bits(beside, alone)) << name;
    }
    const Tensor y = zeros({4, 6}), first = y.slice(0, 0, 3).slice(1, 0, 6, 2),
                 shifted = y.slice(0, 1, 4).slice(1, 0, 6, 2);
    first.copy_(a);
    EXPECT_THROW(operation(first, b, shifted).sum().backward(), ValueError) << name;
  }
}

TEST(Autograd, LeavesAndViewsOfThem) {
  const Tensor x = leaf({1, 2, 3, 4}, {2, 2});
  const std::string text =
      ": a leaf that requires a gradient was changed in place; do it while a NoGrad is there, or change its detach() "
      "or a clone()";
  EXPECT_EQ(error_of<ValueError>([&] { x.mul_(2); }), "mul_" + text);
  EXPECT_EQ(error_of<ValueError>([&] { x.select(0, 1).t().fill_(2); }), "fill_" + text);
  EXPECT_EQ(error_of<ValueError>([&] { x.split(1)[1].zero_(); }), "fill_" + text);
  EXPECT_EQ(values(x), (Values{1, 2, 3, 4}));
  {
    const NoGrad guard;
    x.select(0, 1).mul_(2);
  }
  EXPECT_EQ(values(x), (Values{1, 2, 6, 8}));
}

TEST(Autograd, ViewsShareGradients) {
  const Tensor x = leaf({1, 2, 3, 4, 5, 6}, {2, 3});
  (x.t().select(0, 1) * tensor<float>({10, 20})).sum().backward();
  EXPECT_EQ(values(x.grad()), (Values{0, 10, 0, 0, 20, 0}));
  x.set_grad({});
  const auto parts = x.split({1, 2}, 1);
  sum(parts[1] * 2).backward();  // the other part's gradient is zeros
  EXPECT_EQ(values(x.grad()), (Values{0, 2, 2, 0, 2, 2}));
}

TEST(Autograd, HalfFloatsAndMixedTypes) {
  Tensor x = tensor<float>({1, 2, 3}).to(Dtype::bf16);
  x.requires_grad_();
  sum(x.to(Dtype::f32) * tensor<float>({1, 2, 3}) + x * 2).backward();
  EXPECT_EQ(x.grad().dtype(), Dtype::bf16);
  EXPECT_EQ(values(x.grad()), (Values{3, 4, 5}));
  const Tensor f32 = leaf({1, 2}, {2}), f64 = tensor<double>({3, 4}).requires_grad_();
  sum(f32 * f64).backward();
  EXPECT_EQ(f32.grad().dtype(), Dtype::f32);
  EXPECT_EQ(f64.grad().dtype(), Dtype::f64);
  EXPECT_EQ(values(f64.grad()), (Values{1, 2}));
}

TEST(Autograd, SecondAndThirdDerivatives) {
  const Tensor x = leaf({2}, {1});
  const Tensor first = grad(x * x * x, x, {.create_graph = true});
  const Tensor second = grad(first, x, {.create_graph = true});
  const Tensor third = grad(second, x);
  EXPECT_EQ(values(first), (Values{12}));
  EXPECT_EQ(values(second), (Values{12}));
  EXPECT_EQ(values(third), (Values{6}));
  const Tensor e = exp(x);  // through a saved result
  EXPECT_EQ(values(grad(grad(e, x, {.create_graph = true}), x)), values(exp(x.detach())));
}

TEST(Autograd, AMillionOperationsInARow) {
  const Tensor x = leaf({1}, {1});
  {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i) y = y + x;
    y.backward();
    EXPECT_EQ(values(x.grad()), (Values{1'000'001}));
  }
  x.set_grad({});
  {
    Tensor y = x;
    for (int i = 0; i < 300'000; ++i) y = y * 1;  // let go without a pass
  }
  Tensor product = x;
  for (int i = 0; i < 100'000; ++i) product = product * x;  // each saves the one before
  EXPECT_EQ(values(grad(product, x)), (Values{100'001}));
}

TEST(Autograd, GradientsMeetInAFixedOrder) {
  Generator generator(3);
  const Tensor x = randn({64}, generator).requires_grad_();
  const auto run = [&] {
    Tensor total;
    for (int i = 0; i < 50; ++i) {
      const Tensor part = sum(tanh(x * (0.1 * i)) * x);
      total = total.defined() ? total + part : part;
    }
    return grad(total, x);
  };
  const Tensor first = run();
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(same_bits(first, run()));
}

}  // namespace
}  // namespace attn
