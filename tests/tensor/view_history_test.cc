// tests/tensor/view_history_test.cc: views and changes in place: torch's gradients for programs of them, and what is
// refused.
#include <attn/autograd.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/golden.h"
#include "tensor/impl.h"

#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <sstream>
#include <thread>

namespace attn {
namespace {

using testing::error_of;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

Words words_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::string>(in), {}};
}

/// Runs the programs of tests/golden/autograd/views.json: its make.py says what a statement means.
class Machine {
 public:
  explicit Machine(Dtype dtype) : dtype_(dtype) {}

  void run(const std::string& line) {
    const Words w = words_of(line);
    if (w[0] == "leaf" || w[0] == "plain") {
      Tensor x = counted(Dims(numbers(w, 2)), static_cast<std::int64_t>(tensors_.size()));
      tensors_[w[1]] = x.requires_grad_(w[0] == "leaf");
      if (w[0] == "leaf") leaves_.push_back(w[1]);
    } else if (w[0] == "no_grad") {
      guard_.emplace();
    } else if (w[0] == "grad") {
      guard_.reset();
    } else if (w[0] == "loss") {
      losses_.push_back(w[1]);
    } else if (w[0] == "retain") {
      tensors_.at(w[1]).retain_grad();
      leaves_.push_back(w[1]);
    } else if (w[0] == "backward") {
      backward();
    } else if (w[1] == "=") {
      tensors_[w[0]] = result(w[2], tensors_.at(w[3]), w);
    } else {
      change(w[0], tensors_.at(w[1]), w[2]);
    }
  }

  void backward() {
    Tensor total;
    for (const std::string& name : losses_) {
      const Tensor& x = tensors_.at(name);
      const Tensor loss = sum(x * arange(1, x.numel() + 1, 1, dtype_).reshape(x.sizes()));
      total = total.defined() ? total + loss : loss;
    }
    losses_.clear();
    if (total.defined()) attn::backward(total, {}, {.retain_graph = true});
  }

  /// As make.py writes them.
  Json gradients() const {
    Json result = Json::object();
    for (const std::string& name : leaves_) {
      const Tensor grad = tensors_.at(name).grad();
      result[name] = grad.defined() ? Json(grad.to_vector()) : Json();
    }
    return result;
  }
  const std::vector<std::string>& leaves() const { return leaves_; }

 private:
  static std::vector<std::int64_t> numbers(const Words& words, std::size_t from) {
    std::vector<std::int64_t> result;
    for (; from < words.size(); ++from) result.push_back(std::stoll(words[from]));
    return result;
  }
  Tensor counted(const Dims& sizes, std::int64_t start) const {
    std::vector<double> values;
    for (std::int64_t n = 0; n < sizes.product(); ++n) values.push_back(static_cast<double>((start + n) % 5 + 1));
    return tensor<double>(values, sizes).to(dtype_);
  }

  Tensor result(const std::string& operation, const Tensor& x, const Words& w) const {
    if (operation == "clone") return x.clone();
    if (operation == "detach") return x.detach();
    if (operation == "sum") return sum(x);
    if (operation == "mul" || operation == "add") {
      const bool times = operation == "mul";
      if (const auto found = tensors_.find(w[4]); found != tensors_.end())
        return times ? x * found->second : x + found->second;
      return times ? x * std::stoi(w[4]) : x + std::stoi(w[4]);
    }
    const std::vector<std::int64_t> n = numbers(w, 4);
    const auto dim = n.empty() ? 0 : static_cast<int>(n[0]);
    if (operation == "select") return x.select(dim, n[1]);
    if (operation == "slice") return x.slice(dim, n[1], n[2], n[3]);
    if (operation == "transpose") return x.transpose(dim, static_cast<int>(n[1]));
    if (operation == "view") return x.view(n);
    if (operation == "expand") return x.expand(n);
    if (operation == "unsqueeze") return x.unsqueeze(dim);
    if (operation == "squeeze") return x.squeeze(dim);
    if (operation == "permute") return x.permute(n);
    if (operation == "part") return x.split(n[0], static_cast<int>(n[1]))[static_cast<std::size_t>(n[2])];
    throw std::logic_error("no such operation: " + operation);
  }

  void change(const std::string& operation, const Tensor& x, const std::string& by) const {
    if (const auto found = tensors_.find(by); found != tensors_.end()) {
      if (operation == "mul_") x.mul_(found->second);
      else if (operation == "add_") x.add_(found->second);
      else if (operation == "div_") x.div_(found->second);
      else if (operation == "copy_") x.copy_(found->second);
      else throw std::logic_error("no such operation: " + operation);
      return;
    }
    const int value = std::stoi(by);
    if (operation == "mul_") x.mul_(value);
    else if (operation == "add_") x.add_(value);
    else if (operation == "fill_") x.fill_(value);
    else throw std::logic_error("no such operation: " + operation);
  }

  const Dtype dtype_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> leaves_, losses_;
  std::optional<NoGrad> guard_;
};

/// What becomes of the program, as make.py says it.
Json outcome(const Json& program, Dtype dtype) {
  Machine machine(dtype);
  std::string text;
  try {
    for (const std::string line : program) machine.run(line);
    machine.backward();
    return machine.gradients();
  } catch (const ValueError& error) { text = error.what(); }
  if (text.find("was changed in place and is at version") != std::string::npos) {
    for (const std::string& name : machine.leaves())
      EXPECT_TRUE(machine.gradients().at(name).is_null()) << "a pass that fails leaves no gradient";
    return "saved";
  }
  return text.find("change a clone()") != std::string::npos || text.find("or a clone()") != std::string::npos
             ? Json("refused")
             : Json(text);
}

TEST(ViewHistory, ProgramsHaveTorchsGradients) {
  int drawn = 0, named = 0;
  for (const Json& c : testing::golden("autograd/views.json").at("cases")) {
    SCOPED_TRACE(c.dump());
    const Json expected = c.contains("error") ? c.at("error") : c.at("gradients");
    EXPECT_EQ(outcome(c.at("program"), Dtype::f64), expected);
    const bool is_drawn = c.at("name").get<std::string>().starts_with("drawn");
    ++(is_drawn ? drawn : named);
    if (is_drawn) continue;
    for (const Dtype half : {Dtype::bf16, Dtype::f16})
      EXPECT_EQ(outcome(c.at("program"), half), expected) << "all figures are small";
  }
  EXPECT_EQ(drawn, 300);
  EXPECT_GE(named, 60);
}

Tensor leaf(const std::vector<double>& values, const Dims& sizes) {
  return tensor<double>(values, sizes).requires_grad_();
}
using Values = std::vector<double>;

TEST(ViewHistory, NamesAreTorchs) {
  const Tensor a = leaf({1, 2, 3, 4}, {2, 2}), x = a * 2, v = x[0], u = x.t();
  EXPECT_EQ(v.grad_fn(), "SelectBackward0");
  v.mul_(3);
  EXPECT_EQ(x.grad_fn(), "CopySlices");
  EXPECT_EQ(v.grad_fn(), "AsStridedBackward0");
  EXPECT_EQ(u.grad_fn(), "AsStridedBackward0");
  EXPECT_NE(to_string(u, {}).find("grad_fn=<AsStridedBackward0>"), std::string::npos);
  const Tensor plain = zeros({2, 2}, Dtype::f64), row = plain[1], other = plain[0];
  row.copy_(a[0]);
  EXPECT_TRUE(plain.requires_grad());
  EXPECT_TRUE(other.requires_grad());
  EXPECT_FALSE(other.is_leaf());
}

TEST(ViewHistory, GradientsOfGradients) {
  // x = a^2 with row 1 times w, column 0 plus products of row 0's elements, then powers of what views show
  const auto function = [](const std::vector<Tensor>& in) {
    const Tensor x = in[0] * in[0], column = x.select(1, 0), wide = x.slice(1, 0, 3, 2).expand({2, 2, 2});
    x[1].mul_(in[1]);
    const Tensor row = x[0].clone();
    column.add_(row.slice(0, 0, 2) * row.slice(0, 1, 3));
    return pow(column, 3).sum() + (wide * wide).sum() + pow(x, 2).sum();
  };
  const std::vector<Tensor> in{leaf({0.5, -1.25, 0.75, 1.5, 0.25, -0.5}, {2, 3}), leaf({1.5, -0.5, 2}, {3})};
  EXPECT_EQ(check_gradients(function, in, {.second = true}), "");
}

TEST(ViewHistory, AnyMemoryOfABase) {
  // The base lies in memory of the caller's: reversed rows with gaps between the columns.
  std::vector<double> memory(16, 1.0);
  const auto function = [&](const std::vector<Tensor>& in) {
    std::fill(memory.begin(), memory.end(), 1.0);
    const Tensor base = Tensor::from_blob(memory.data() + 10, {2, 3}, Dtype::f64, {-8, 2});
    const Tensor row = base[1], corner = base.slice(1, 1, 3).select(0, 0);
    row.copy_(in[0]);
    corner.copy_(row.slice(0, 0, 2));
    base.mul_(in[1]);
    return (row * row).sum() + corner.sum() + (base * base * base).sum();
  };
  EXPECT_EQ(check_gradients(function, {leaf({0.5, -1.5, 2}, {3}), leaf({1.5, 0.5, -1}, {3})}, {.second = true}), "");
  EXPECT_EQ(memory[0], 1);  // outside of what the base shows
}

TEST(ViewHistory, WhatIsRefused) {
  const Tensor a = leaf({1, 2, 3, 4}, {2, 2}), w = leaf({2}, {1});
  const Tensor x = a * 2;
  EXPECT_EQ(error_of<ValueError>([&] { x[0].expand({3, 2}).mul_(2); }),
            "mul_: shape [3, 2] with strides [0, 1] has several elements in one place; change a clone()");
  EXPECT_EQ(error_of<ValueError>([&] { x[0].expand({3, 2}).copy_(ones({3, 2})); }),
            "copy_: shape [3, 2] with strides [0, 1] has several elements in one place; change a clone()");
  EXPECT_EQ(error_of<ValueError>([&] { mul(x, x, x); }),
            "mul: out requires a gradient, which its new values would not have; give memory that does not");
  EXPECT_EQ(error_of<ValueError>([&] { exp(ones({2}, Dtype::f64), x[0]); }),
            "exp: out requires a gradient, which its new values would not have; give memory that does not");
  EXPECT_EQ(x.to_vector(), (Values{2, 4, 6, 8}));
  Tensor before;
  {
    const NoGrad guard;
    before = x[0];
    before.mul_(1);  // as of any memory
  }
  EXPECT_FALSE(before.requires_grad());
  const char* frozen =
      "mul_: a view made under no_grad cannot be changed in place where a gradient is wanted, shape [2]; change a "
      "clone()";
  EXPECT_EQ(error_of<ValueError>([&] { before.mul_(w); }), frozen);
  EXPECT_EQ(error_of<ValueError>([&] { before.view({1, 2})[0].mul_(w); }), frozen);
  const Tensor spread = x[0].expand({3, 2}).detach();
  EXPECT_EQ(error_of<ValueError>([&] { spread[0].mul_(w); }),
            "mul_: a view of a tensor that has several elements in one place cannot be changed in place where a "
            "gradient is wanted, shape [2]; change a clone()");
  EXPECT_EQ(error_of<ValueError>(
                [&] { w.set_grad(ones({1}, Dtype::f64)), a.set_grad(ones({1}, Dtype::f64).expand({2, 2})); }),
            "set_grad: shape [2, 2] with strides [0, 0] has several elements in one place, and later passes add to it; "
            "give a clone()");
}

TEST(ViewHistory, AViewMadeALeafGoesItsOwnWay) {
  const Tensor w = leaf({2}, {1}), flat = ones({4}, Dtype::f64);
  Tensor p = flat.narrow(0, 0, 2);
  p.requires_grad_();
  const Tensor refused = flat.narrow(0, 2, 2);
  const char* text =
      "mul_: memory of which a view was made a leaf by requires_grad_ cannot be changed in place where a gradient is "
      "wanted, shape [2]; change a clone()";
  EXPECT_EQ(error_of<ValueError>([&] { refused.mul_(w); }), text);
  EXPECT_NE(error_of<ValueError>([&] { p.mul_(2); }), "");
  flat.mul_(2);  // no gradient is wanted here: as under no_grad
  sum(p * p).backward();
  EXPECT_EQ(p.grad().to_vector(), (Values{4, 4}));
  EXPECT_TRUE(p.is_leaf());
}

// Whatever memory an operation computed in: its result is changed, not a view of something.
TEST(ViewHistory, ResultsOfOperationsKeepTheirGradientWhenChanged) {
  const Tensor matrix = leaf({1, 2, 3, 4, 5, 6, 7, 8}, {4, 2}).detach(), vector = matrix.select(1, 0),
               classes = tensor<std::int64_t>({1, 0, 3, 2, 1, 0}, {2, 3});
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> operations = {
      {"matmul of a batch", [&](auto& x) { return matmul(x, matrix); }},
      {"matmul with a vector", [&](auto& x) { return matmul(x, vector); }},
      {"matmul of a vector", [&](auto& x) { return matmul(x[0][0], matrix); }},
      {"dot", [&](auto& x) { return dot(x[0][0], vector); }},
      {"linear", [&](auto& x) { return linear(x, matrix.t()); }},
      {"linear of a vector", [&](auto& x) { return linear(x[0][0], matrix.t()); }},
      {"einsum", [&](auto& x) { return einsum("abc,cd->bda", {x, matrix}); }},
      {"sum", [](auto& x) { return sum(x, {1}); }},
      {"mean", [](auto& x) { return mean(x, {0, 2}, true); }},
      {"layer_norm", [](auto& x) { return layer_norm(x, {4}); }},
      {"cross_entropy",
       [&](auto& x) { return cross_entropy(x.transpose(1, 2), classes, {.reduction = Reduction::none}); }}};
  const Tensor x = (arange(24).to(Dtype::f64) * arange(24)).reshape({2, 3, 4}) / 100;
  for (const auto& [name, f] : operations) {
    Tensor at = x.clone();
    at.requires_grad_();
    const Tensor once = grad((f(at) * 3).sum(), at), y = f(at);
    y.mul_(3);
    EXPECT_EQ(grad(y.sum(), at).to_vector(), once.to_vector()) << name;
    const Tensor w = leaf({2}, {}), z = f(at);
    z.mul_(w);
    EXPECT_TRUE(allclose(grad(z.sum(), at) * 1.5, once)) << name;
  }
}

TEST(ViewHistory, NothingHoldsItself) {
  std::vector<std::weak_ptr<Storage>> memory;
  const auto watch = [&](const Tensor& x) { memory.push_back(x.impl()->storage); };
  {
    const Tensor a = leaf({1, 2, 3, 4}, {2, 2}), x = a * 1, y = x * x;
    x.add_(y);  // x comes of a product that saved x
    watch(x), watch(y);
    const Tensor buffer = zeros({2, 2}, Dtype::f64), row = buffer[0], product = a[0] * row;
    buffer[1].copy_(product);
    watch(buffer), watch(product);
    const Tensor base = a * 3, v = base[0], u = base[1];
    u.mul_(exp(v));
    v.mul_(u);
    watch(base), watch(u);
  }
  for (const auto& each : memory) EXPECT_TRUE(each.expired());
}

TEST(ViewHistory, AFailedPassChangesNoLeaf) {
  const Tensor a = leaf({1, 2}, {2}), b = leaf({3, 4}, {2}), w = leaf({5, 6}, {2});
  const Tensor x = a * 2, product = x * w, v = x.slice(0, 0, 1), late = v * 2;  // saves x; runs last
  const Tensor y = (b * b).sum() + (a * 3).sum() + product.sum() + late.sum();
  v.mul_(2);
  EXPECT_EQ(error_of<ValueError>([&] { y.backward(); }),
            "backward: MulBackward0 saved a tensor of shape [2] at version 0; it was changed in place and is at "
            "version 1; change a clone() instead");
  for (const Tensor& x : {a, b, w}) EXPECT_FALSE(x.grad().defined());
}

TEST(ViewHistory, AGradientThatIsAView) {
  const Tensor flat = zeros({4}, Dtype::f64), a = leaf({1, 2}, {2}), b = leaf({3, 4}, {2});
  a.set_grad(flat.narrow(0, 0, 2));
  b.set_grad(flat.narrow(0, 1, 2));  // overlaps a's: both are added
  const Tensor x = a * b, v = x[0];
  v.mul_(10);
  for (int pass = 0; pass < 2; ++pass) backward(x.sum(), {}, {.retain_graph = true});
  EXPECT_EQ(flat.to_vector(), (Values{60, 2 * (4 + 10), 2 * 2, 0}));
}

TEST(ViewHistory, SeveralReadersOfAViewThatIsBehind) {
  const Tensor a = leaf({1, 2, 3, 4}, {2, 2}), x = a * 2;
  for (int round = 0; round < 20; ++round) {
    const Tensor v = x[0];
    x.mul_(1);
    std::vector<Values> gradients(4);
    std::vector<std::thread> threads;
    for (Values& gradient : gradients)
      threads.emplace_back([&] { gradient = grad((v * 3).sum(), v, {.retain_graph = true}).to_vector(); });
    for (std::thread& thread : threads) thread.join();
    for (const Values& gradient : gradients) EXPECT_EQ(gradient, (Values{3, 3}));
  }
}

}  // namespace
}  // namespace attn
