// tests/tensor/gradients_test.cc: the gradient of every operation against central differences: broadcasts, odd shapes,
// strides.
#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "tensor/record.h"

#include <gtest/gtest.h>

#include <cmath>

namespace attn {
namespace {

using Inputs = std::vector<Tensor>;

/// One function of its inputs, and what to know of them.
struct Case {
  std::string name;
  std::function<Tensor(const Inputs&)> function;
  std::vector<Dims> shapes;
  double low = -2, high = 2;  // of the inputs' elements
  bool second = true;         // check the gradient of the gradient too
};

/// Elements of no two alike, so that extremes and kinks are not met by chance.
Tensor input(const Dims& sizes, double low, double high, std::uint64_t seed, bool strided) {
  Generator generator(seed);
  if (!strided || sizes.empty()) return uniform_(empty(sizes, Dtype::f64), low, high, generator).requires_grad_();
  Dims wider = sizes;
  wider.push_back(2);
  Tensor x = uniform_(empty(wider, Dtype::f64), low, high, generator).select(-1, 1);  // every other element
  if (x.dim() >= 2) {
    Dims turned = x.sizes();
    std::swap(turned[0], turned[x.dim() - 1]);
    turned.push_back(2);
    x = uniform_(empty(turned, Dtype::f64), low, high, generator).select(-1, 0).transpose(0, -1);
  }
  return x.detach().requires_grad_();
}

Tensor bools(const Dims& sizes) {
  Generator generator(5);
  return bernoulli_(empty(sizes, Dtype::boolean), 0.5, generator);
}

const Tensor rows = tensor<std::int64_t>({4, 0, 2, 4, 4, 1}, {2, 3});

std::vector<Case> cases() {
  std::vector<Case> all;
  const auto two = [&](const char* name, Tensor (*f)(const Tensor&, const Tensor&), double low = -2) {
    for (const auto& [a, b] : std::vector<std::pair<Dims, Dims>>{{{3, 5}, {3, 5}},
                                                                 {{2, 1, 3}, {5, 1}},
                                                                 {{}, {3, 2}},
                                                                 {{3, 2}, {}},
                                                                 {{1}, {1}},
                                                                 {{4, 3}, {3}},
                                                                 {{0, 3}, {3}}})
      all.push_back({name, [f](const Inputs& x) { return f(x[0], x[1]); }, {a, b}, low});
  };
  two("add", [](const Tensor& a, const Tensor& b) { return a + b; });
  two("sub", [](const Tensor& a, const Tensor& b) { return a - b; });
  two("mul", [](const Tensor& a, const Tensor& b) { return a * b; });
  two("div", [](const Tensor& a, const Tensor& b) { return a / b; }, 0.5);
  two("pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }, 0.5);
  two("maximum", [](const Tensor& a, const Tensor& b) { return maximum(a, b); });
  two("minimum", [](const Tensor& a, const Tensor& b) { return minimum(a, b); });
  two("where",
      [](const Tensor& a, const Tensor& b) { return where(bools(broadcast_shapes("", a.sizes(), b.sizes())), a, b); });
  two("add_", [](const Tensor& a, const Tensor& b) {
    const Tensor y = a * ones(broadcast_shapes("", a.sizes(), b.sizes()), Dtype::f64);
    y.add_(b, 3);
    return y * y;
  });
  two("sub_", [](const Tensor& a, const Tensor& b) {
    const Tensor y = a * ones(broadcast_shapes("", a.sizes(), b.sizes()), Dtype::f64);
    y.sub_(b, 3);
    y -= 1.5;
    return y * y;
  });
  two(
      "div_",
      [](const Tensor& a, const Tensor& b) {
        const Tensor y = a * ones(broadcast_shapes("", a.sizes(), b.sizes()), Dtype::f64);
        y.div_(b);
        y /= 2;
        y += 1;
        return y * y;
      },
      0.5);
  two("mul_", [](const Tensor& a, const Tensor& b) {
    const Tensor y = a * ones(broadcast_shapes("", a.sizes(), b.sizes()), Dtype::f64);
    y.mul_(b);
    y.mul_(2);
    return y * b;
  });
  two("copy_", [](const Tensor& a, const Tensor& b) {
    const Tensor y = a * ones(broadcast_shapes("", a.sizes(), b.sizes()), Dtype::f64);
    const Tensor before = y + 0;
    y.copy_(b);
    return y * before;
  });

  const auto one = [&](const char* name, std::function<Tensor(const Tensor&)> f, double low = -2, double high = 2) {
    for (const Dims& sizes : {Dims{3, 5}, Dims{}, Dims{7}, Dims{2, 3, 4}, Dims{0, 3}})
      all.push_back({name, [f](const Inputs& x) { return f(x[0]); }, {sizes}, low, high});
  };
  one("add a number", [](const Tensor& x) { return x + 1.5; });
  one("sub a number", [](const Tensor& x) { return x - 1.5; });
  one("sub from a number", [](const Tensor& x) { return 1.5 - x; });
  one("mul a number", [](const Tensor& x) { return x * -1.5; });
  one("div by a number", [](const Tensor& x) { return x / 3; });
  one("div a number", [](const Tensor& x) { return 2 / x; }, 0.5);
  for (const double p : {0.0, 0.5, 1.0, 2.0, 3.0, -1.0, 1.7, -2.0})
    one("pow", [p](const Tensor& x) { return pow(x, p); }, 0.5);
  one("pow of negatives", [](const Tensor& x) { return pow(x, 3); });
  one("neg", [](const Tensor& x) { return -x; });
  one("exp", [](const Tensor& x) { return exp(x); });
  one("log", [](const Tensor& x) { return log(x); }, 0.5);
  one("sqrt", [](const Tensor& x) { return sqrt(x); }, 0.5);
  one("abs", [](const Tensor& x) { return abs(x); });
  one("sin", [](const Tensor& x) { return sin(x); });
  one("cos", [](const Tensor& x) { return cos(x); });
  one("erf", [](const Tensor& x) { return erf(x); });
  one("tanh", [](const Tensor& x) { return tanh(x); });
  one("sigmoid", [](const Tensor& x) { return sigmoid(x); });
  one("relu", [](const Tensor& x) { return relu(x); });
  one("silu", [](const Tensor& x) { return silu(x); });
  one("gelu", [](const Tensor& x) { return gelu(x); });
  one("gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximate::tanh); });
  one("masked_fill", [](const Tensor& x) { return masked_fill(x, bools(x.sizes()), 7); });
  one("masked_fill broadcast", [](const Tensor& x) {
    return masked_fill(x, x.dim() == 0 ? bools({2}) : bools({2, 1, x.size(-1)}).expand({2, 1, x.size(-1)}).select(0, 0),
                       7);
  });
  one("where with numbers",
      [](const Tensor& x) { return where(bools(x.sizes()), x, 3) * where(bools(x.sizes()), 2, x); });
  one("clone", [](const Tensor& x) { return x.clone() * x.contiguous(); });
  one("to", [](const Tensor& x) { return x.to(Dtype::f64) * 2; });
  one("fill_", [](const Tensor& x) {
    const Tensor y = x * 2;
    y.fill_(3);
    return y * x;
  });
  one("sum", [](const Tensor& x) { return sum(x) * sum(x); });
  one("mean", [](const Tensor& x) { return x.numel() ? mean(x) * mean(x) : x; });
  one("softmax", [](const Tensor& x) { return x.numel() ? softmax(x, 0) : x; });
  one("log_softmax", [](const Tensor& x) { return x.numel() ? log_softmax(x, -1) : x; });
  one("cumsum", [](const Tensor& x) { return cumsum(x, -1) * cumsum(x, 0); });
  one("max", [](const Tensor& x) { return x.numel() ? max(x) * min(x) : x; });
  one("reshape", [](const Tensor& x) { return x.reshape({-1}) * x.flatten(); });
  one("unsqueeze", [](const Tensor& x) { return x.unsqueeze(0).unsqueeze(-1).squeeze(0).squeeze() * 2; });
  one("repeat", [](const Tensor& x) { return x.dim() > 2 ? x.repeat({2, 1, 3}) : x.repeat({3, 1, 2}); });
  one("norm", [](const Tensor& x) { return x.numel() ? norm(x) : x; }, 0.5);
  one("dropout", [](const Tensor& x) {
    Generator generator(3);
    return dropout(x, 0.4, true, generator) * x;
  });

  const auto cube = [&](const char* name, std::function<Tensor(const Tensor&)> f, double low = -2) {
    all.push_back({name, [f](const Inputs& x) { return f(x[0]); }, {{2, 3, 4}}, low});
  };
  for (const Dims& dims : {Dims{0}, Dims{1}, Dims{-1}, Dims{0, 2}, Dims{0, 1, 2}})
    for (const bool keep : {false, true}) {
      cube("sum along", [=](const Tensor& x) { return sum(x, dims, keep) * 2; });
      cube("mean along", [=](const Tensor& x) { return mean(x, dims, keep); });
      cube("var along", [=](const Tensor& x) { return var(x, dims, true, keep); });
      cube("var biased", [=](const Tensor& x) { return var(x, dims, false, keep); });
      for (const double p : {0.0, 1.0, 2.0, 3.0, 1.5, 0.5, HUGE_VAL, -HUGE_VAL})
        cube("norm along", [=](const Tensor& x) { return norm(x, p, dims, keep); }, 0.5);
      cube("norm of negatives", [=](const Tensor& x) { return norm(x, 3, dims, keep) + norm(x, 1, dims, keep); });
    }
  for (int dim = -1; dim < 3; ++dim) {
    cube("softmax along", [=](const Tensor& x) { return softmax(x, dim); });
    cube("log_softmax along", [=](const Tensor& x) { return log_softmax(x, dim); });
    cube("cumsum along", [=](const Tensor& x) { return cumsum(x, dim); });
    cube("max along", [=](const Tensor& x) { return max(x, dim).first * max(x, dim, true).first.squeeze(dim); });
    cube("argmax", [=](const Tensor& x) { return x * argmax(x, dim, true).to(Dtype::f64); });
    cube("select", [=](const Tensor& x) { return x.select(dim, -1) * x.select(dim, 0); });
    cube("slice", [=](const Tensor& x) { return x.slice(dim, 1, std::nullopt, 2); });
    cube("slice of nothing", [=](const Tensor& x) { return cat({x.slice(dim, 2, 2), x.slice(dim, 0, 1)}, dim); });
    cube("narrow", [=](const Tensor& x) { return x.narrow(dim, 1, 1) * x; });
    cube("split", [=](const Tensor& x) { return x.split(2, dim)[0]; });
    cube("split sizes", [=](const Tensor& x) {
      return x.split({1, x.size(dim) - 1}, dim)[1] * x.split({1, x.size(dim) - 1}, dim)[0];
    });
    cube("chunk", [=](const Tensor& x) {
      const auto parts = x.chunk(2, dim);
      return cat({parts[1], parts[0] * parts[0]}, dim);
    });
    cube("index_select", [=](const Tensor& x) { return x.index_select(dim, tensor<std::int64_t>({1, 0, 1})); });
    cube("index_select rank 2",
         [=](const Tensor& x) { return x.index_select(dim, tensor<std::int64_t>({1, 0, 1, 1}, {2, 2})); });
  }
  cube("transpose", [](const Tensor& x) { return x.transpose(0, -1) * x.reshape({4, 3, 2}); });
  cube("permute", [](const Tensor& x) { return x.permute({-1, 0, 1}) * x.reshape({4, 2, 3}); });
  cube("t", [](const Tensor& x) { return x.t() * x.reshape({4, 3, 2}) * x.select(0, 0).t().unsqueeze(-1); });
  cube("expand", [](const Tensor& x) {
    return x.select(1, 0).unsqueeze(1).expand({2, 5, 4}) * x.slice(0, 0, 1).slice(1, 0, 1).expand({2, 5, -1});
  });
  cube("view", [](const Tensor& x) { return x.contiguous().view({6, 4}); });
  cube("reshape by a copy", [](const Tensor& x) { return x.transpose(0, 1).reshape({-1}); });
  cube("tril", [](const Tensor& x) {
    return tril(x) * tril(x, 1) * tril(x, -1) + triu(x) * triu(x, 1) * triu(x, -1) + triu(x);
  });
  cube("stack", [](const Tensor& x) { return stack({x, x * x, x}, 1) * stack({x, x, x}, -1).reshape({2, 3, 3, 4}); });

  all.push_back({"cat", [](const Inputs& x) { return cat({x[0], x[1], x[0]}, -1); }, {{2, 3}, {2, 1}}});
  all.push_back({"cat skips", [](const Inputs& x) { return cat({x[0], x[1], x[2]}, 0); }, {{2, 3}, {0}, {0, 3}}});
  for (const bool affine : {false, true})
    for (const int normalized : {1, 2}) {
      const Dims shape = normalized == 1 ? Dims{4} : Dims{3, 4};
      all.push_back({"layer_norm",
                     [=](const Inputs& x) {
                       return layer_norm(x[0], shape, affine ? x[1] : Tensor(), affine ? x[2] : Tensor(), 1e-3);
                     },
                     {{2, 3, 4}, shape, shape}});
    }
  for (const bool affine : {false, true})
    for (const int normalized : {1, 2}) {
      const Dims shape = normalized == 1 ? Dims{4} : Dims{3, 4};
      all.push_back({"rms_norm",
                     [=](const Inputs& x) { return rms_norm(x[0], shape, affine ? x[1] : Tensor(), 1e-3); },
                     {{2, 3, 4}, shape}});
    }
  for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none})
    for (const double smoothing : {0.0, 0.2}) {
      const Tensor weight = tensor<double>({0.5, 2, 1, 0.25});
      const Tensor classes = tensor<std::int64_t>({3, 0, -100, 2, 2, 1}),
                   grid = tensor<std::int64_t>({3, 0, 1, 2, 2, 1}, {2, 3});
      all.push_back({"cross_entropy",
                     [=](const Inputs& x) {
                       return cross_entropy(x[0], classes, {.label_smoothing = smoothing, .reduction = reduction});
                     },
                     {{6, 4}}});
      all.push_back({"cross_entropy weighted",
                     [=](const Inputs& x) {
                       return cross_entropy(
                           x[0], grid,
                           {.weight = weight, .ignore_index = 2, .label_smoothing = smoothing, .reduction = reduction});
                     },
                     {{2, 4, 3}},
                     -2,
                     2});
      all.push_back({"cross_entropy of one",
                     [=](const Inputs& x) {
                       return cross_entropy(x[0], scalar_tensor<std::int64_t>(1),
                                            {.label_smoothing = smoothing, .reduction = reduction});
                     },
                     {{4}}});
      all.push_back({"cross_entropy of probabilities",
                     [=](const Inputs& x) {
                       return cross_entropy(x[0], softmax(x[1], 1),
                                            {.weight = weight, .label_smoothing = smoothing, .reduction = reduction});
                     },
                     {{2, 4, 3}, {2, 4, 3}}});
    }
  all.push_back({"rotary", [](const Inputs& x) { return rotary(x[0], x[1], x[2]); }, {{2, 3, 4, 6}, {4, 3}, {4, 3}}});
  all.push_back({"rotary of places",
                 [](const Inputs& x) { return rotary(x[0], x[1], x[2]) * x[0]; },
                 {{2, 3, 1, 2}, {2, 1, 1, 1}, {1}}});
  all.push_back({"embedding", [](const Inputs& x) { return embedding(rows, x[0]); }, {{5, 3}}});
  all.push_back(
      {"embedding f(x)", [](const Inputs& x) { return embedding(rows, x[0]) * embedding(rows, x[0]); }, {{5, 3}}});

  const auto product = [&](const Dims& a, const Dims& b) {
    all.push_back({"matmul", [](const Inputs& x) { return matmul(x[0], x[1]); }, {a, b}});
  };
  product({3}, {3}), product({2, 3}, {3}), product({3}, {3, 4}), product({2, 3}, {3, 4}), product({5, 2, 3}, {3, 4}),
      product({2, 3}, {5, 3, 4});
  product({5, 1, 2, 3}, {4, 3, 2}), product({5, 2, 3}, {3}), product({3}, {5, 3, 2}), product({2, 0}, {0, 3}),
      product({0, 3}, {3, 2}), product({2, 2, 2, 3}, {2, 1, 3, 1});
  all.push_back({"bmm", [](const Inputs& x) { return bmm(x[0], x[1]); }, {{2, 3, 4}, {2, 4, 5}}});
  all.push_back({"dot", [](const Inputs& x) { return dot(x[0], x[1]); }, {{6}, {6}}});
  for (const Dims& sizes : {Dims{3}, Dims{2, 3}, Dims{2, 4, 3}, Dims{0, 3}}) {
    all.push_back({"linear", [](const Inputs& x) { return linear(x[0], x[1], x[2]); }, {sizes, {5, 3}, {5}}});
    all.push_back({"linear without bias", [](const Inputs& x) { return linear(x[0], x[1]); }, {sizes, {5, 3}}});
  }
  const auto sums = [&](const char* equation, std::vector<Dims> shapes) {
    all.push_back({std::string("einsum ") + equation, [equation](const Inputs& x) { return einsum(equation, x); },
                   std::move(shapes)});
  };
  sums("ij,jk->ik", {{2, 3}, {3, 4}}), sums("bhqd,bhkd->bhqk", {{2, 2, 3, 4}, {2, 2, 5, 4}}), sums("ii->i", {{3, 3}}),
      sums("ii", {{3, 3}});
  sums("iij,j->i", {{3, 3, 2}, {2}}), sums("i,j,k->ijk", {{2}, {3}, {2}}),
      sums("...ij,...jk", {{2, 1, 2, 3}, {4, 3, 2}}), sums("ij->ji", {{2, 3}}), sums("ij->", {{2, 3}});
  sums("ij,ij->ij", {{2, 3}, {1, 3}});
  return all;
}

class EveryOperation : public ::testing::TestWithParam<bool> {};

TEST_P(EveryOperation, HasTheGradientOfItsDifferences) {
  for (const Case& c : cases()) {
    Inputs inputs;
    for (std::size_t i = 0; i < c.shapes.size(); ++i)
      inputs.push_back(input(c.shapes[i], c.low, c.high, 11 + i, GetParam()));
    std::string shapes;
    for (const Dims& sizes : c.shapes) shapes.append(" ").append(to_string(sizes));
    EXPECT_EQ(check_gradients(c.function, inputs, {.second = c.second}), "") << c.name << shapes;
    for (std::size_t i = 0; inputs.size() > 1 && i < inputs.size(); ++i) {  // each input alone
      Inputs alone;
      for (const Tensor& x : inputs) alone.push_back(x.detach());
      alone[i].requires_grad_();
      EXPECT_EQ(check_gradients(c.function, alone), "") << c.name << shapes << ", input " << i << " alone";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Memory, EveryOperation, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "strided" : "contiguous"; });

/// Where a gradient is computed in one pass, it has the bits of the operations that make up its graph.
TEST(Gradients, OnePassHasTheBitsOfTheGraph) {
  const std::vector<std::pair<std::string, std::function<Tensor(const Tensor&)>>> functions = {
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"gelu tanh", [](const Tensor& x) { return gelu(x, GeluApproximate::tanh); }},
      {"softmax", [](const Tensor& x) { return softmax(x, 0); }},
      {"softmax of rows", [](const Tensor& x) { return softmax(x, -1); }},
      {"layer_norm",
       [](const Tensor& x) {
         return layer_norm(x, {x.size(-1)}, x.select(0, 0).flatten().slice(0, 0, x.size(-1)), {}, 1e-3);
       }},
      {"layer_norm by three",
       [](const Tensor& x) { return layer_norm(x, {x.size(-1)}, x.flatten(0, -2)[0], x.flatten(0, -2)[1], 1e-3); }},
      {"layer_norm of one row", [](const Tensor& x) { return layer_norm(x, x.sizes(), x * 2, x, 1e-3); }},
      {"rms_norm", [](const Tensor& x) { return rms_norm(x, {x.size(-1)}, x.flatten(0, -2)[0], 1e-3); }},
      {"rms_norm without a weight", [](const Tensor& x) { return rms_norm(x, {x.size(-1)}, {}, 1e-3); }}};
  for (const auto& [name, f] : functions)
    for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16, Dtype::f16})
      for (const Dims& sizes : {Dims{5, 3}, Dims{3, 1030}, Dims{40, 33, 31}, Dims{9001, 4}}) {
        const Tensor values = input(sizes, -6, 6, 3, true).detach().to(dtype);
        const Tensor dy = input(sizes, -1, 1, 4, false).detach().to(dtype);
        Tensor x = dtype == Dtype::f64 ? values.detach() : values;
        x.requires_grad_();
        const Tensor y = f(x), one_pass = grad({y}, {x}, {.grad_outputs = {dy}, .retain_graph = true})[0];
        const Tensor graph = grad({y}, {x}, {.grad_outputs = {dy}, .create_graph = true})[0];
        EXPECT_TRUE(same_bits(one_pass, graph.detach())) << name << " " << name_of(dtype) << " " << to_string(sizes);
      }
}

/// Where torch has 0 times infinity, at the zero, is 0, and the other elements have torch's figures.
TEST(Gradients, OfAGradientOfANormBesideAZero) {
  // grad(sum(w grad(vector_norm(x, p), x)), x), PyTorch 2.13.0 in float64
  const std::vector<std::pair<double, std::vector<double>>> torch = {
      {0.5, {0.7071067811865477, 0, -3.2588834764831844, -14.449747468305834}},
      {1.5, {0.3410821745304813, 0, 0.6148669690615071, 1.777303527185066}},
      {3.0, {0.9599382954345332, 0, 0.7403445677207512, 1.041501680013938}},
      {-1.0, {0, 0, 0, 0}}};
  for (const auto& [p, expected] : torch) {
    Tensor x = tensor<double>({-1, 0, 2, -0.5});
    x.requires_grad_();
    const Tensor slope = grad(norm(x, p), x, {.create_graph = true});
    const std::vector<double> second = grad((slope * tensor<double>({1, 2, 3, 4})).sum(), x).to_vector();
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(second[i], expected[i], 1e-14 * 32) << p << " " << i;
  }
}

TEST(CheckGradients, FindsAWrongGradient) {
  const Tensor x = input({2, 3}, -1, 1, 1, false);
  const auto wrong = [](const Inputs& in) { return in[0] * in[0].detach(); };  // half of the gradient
  EXPECT_NE(check_gradients(wrong, {x}), "");
  const auto wrong_second = [](const Inputs& in) {  // 2 x, without a gradient of its own
    return record("Square", in[0].detach() * in[0].detach(),
                  wrt(in[0], [](auto& dy, auto& at) { return dy * at.detach() * 2; }, in[0]));
  };
  EXPECT_EQ(check_gradients(wrong_second, {x}), "");
  EXPECT_NE(check_gradients(wrong_second, {x}, {.second = true}), "");
}

}  // namespace
}  // namespace attn
