// tests/optim/optim_test.cc: optimisers beside torch's steps, states kept and restored, clipping, errors.
#include <attn/autograd.h>
#include <attn/nn.h>
#include <attn/ops.h>
#include <attn/optim.h>
#include <attn/random.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace attn::optim {
namespace {

using Json = nlohmann::json;
using attn::testing::error_of;
using attn::testing::golden_tensor;
using attn::testing::within_error_rule;

std::vector<Json> cases_of(const std::string& op) {
  std::vector<Json> cases;
  for (const Json& c : attn::testing::golden("torch_semantics.json").at("cases"))
    if (c.at("op") == op) cases.push_back(c);
  return cases;
}

AdamWOptions adamw_options(const Json& c) {
  const Json& o = c.at("options");
  AdamWOptions options{.lr = o.at("lr"),
                       .amsgrad = o.value("amsgrad", false),
                       .maximize = o.value("maximize", false),
                       .decoupled = c.at("op") == "AdamW"};
  if (o.contains("betas")) options.betas = {o.at("betas")[0], o.at("betas")[1]};
  options.eps = o.value("eps", 1e-8);
  options.weight_decay = o.value("weight_decay", 1e-2);
  return options;
}

SGDOptions sgd_options(const Json& o) {
  return {.lr = o.at("lr"),
          .momentum = o.value("momentum", 0.0),
          .dampening = o.value("dampening", 0.0),
          .weight_decay = o.value("weight_decay", 0.0),
          .nesterov = o.value("nesterov", false)};
}

/// The parameter after each step, and what is kept, beside torch's.
void follow(Optimizer& optimizer, const Tensor& parameter, const Json& c) {
  const Json& expect = c.at("expect");
  const Json& error = c.at("torch_error_vs_float64");
  for (int i = 0; c.at("inputs").contains("grad_" + std::to_string(i)); ++i) {
    parameter.set_grad(golden_tensor(c.at("inputs").at("grad_" + std::to_string(i))));
    optimizer.step();
    const std::string name = "param_after_" + std::to_string(i + 1);
    EXPECT_TRUE(within_error_rule(parameter.detach(), golden_tensor(expect.at(name)), error.at(name))) << name;
  }
  int compared = 0;
  for (const auto& [name, value] : optimizer.state_dict()) {
    const std::string key = "state " + name.substr(std::string("state.0.").size());
    if (!expect.contains(key)) continue;
    EXPECT_TRUE(within_error_rule(value.to(Dtype::f32), golden_tensor(expect.at(key)), error.at(key))) << key;
    ++compared;
  }
  int kept = 0;
  for (const auto& [key, value] : expect.items()) kept += key.rfind("state ", 0) == 0;
  EXPECT_EQ(compared, kept);
}

TEST(Optim, AdamWStepsAsTorch) {
  int count = 0;
  for (const char* op : {"AdamW", "Adam"})
    for (const Json& c : cases_of(op)) {
      SCOPED_TRACE(c.at("name").get<std::string>());
      Tensor parameter = golden_tensor(c.at("inputs").at("param"));
      AdamW optimizer({parameter.requires_grad_()}, adamw_options(c));
      follow(optimizer, parameter, c);
      ++count;
    }
  EXPECT_EQ(count, 5);
}

/// From weight 1/2 on torch's lerp begins at its end, so that with beta1 = 0 the mean is the gradient itself, whatever
/// stood before it.
TEST(Optim, ASmallBeta1BeginsAtTheGradient) {
  for (const double beta1 : {0.0, 0.25, 0.5, 0.75}) {
    const Tensor x = zeros({2}).requires_grad_();
    AdamW optimizer({x}, {.betas = {beta1, 0.999}});
    const float first = 1e8f, second = 1, weight = static_cast<float>(1 - beta1);
    for (const float g : {first, second}) {
      x.set_grad(full({2}, g));
      optimizer.step();
    }
    const auto lerp = [&](float m, float g) {
      return weight < 0.5f ? m + weight * (g - m) : g - (g - m) * (1 - weight);
    };
    EXPECT_EQ(optimizer.state_dict()[1].first, "state.0.exp_avg");
    EXPECT_EQ(optimizer.state_dict()[1].second.to_vector()[0], lerp(lerp(0, first), second)) << beta1;
    if (beta1 == 0) { EXPECT_EQ(optimizer.state_dict()[1].second.to_vector()[0], second); }
  }
}

TEST(Optim, SGDStepsAsTorch) {
  int count = 0;
  for (const Json& c : cases_of("SGD")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    Tensor parameter = golden_tensor(c.at("inputs").at("param"));
    SGD optimizer({parameter.requires_grad_()}, sgd_options(c.at("options")));
    follow(optimizer, parameter, c);
    ++count;
  }
  EXPECT_EQ(count, 4);
}

TEST(Optim, ClipsAsTorch) {
  int count = 0;
  for (const Json& c : cases_of("clip_grad_norm_")) {
    SCOPED_TRACE(c.at("name").get<std::string>());
    const Json& o = c.at("options");
    std::vector<Tensor> parameters;
    for (int i = 0; c.at("inputs").contains("grad_" + std::to_string(i)); ++i) {
      const Tensor g = golden_tensor(c.at("inputs").at("grad_" + std::to_string(i)));
      parameters.push_back(zeros(g.sizes()).requires_grad_());
      parameters.back().set_grad(g.clone());
    }
    parameters.push_back(zeros({2}).requires_grad_());  // without a gradient
    const std::string type = o.at("norm_type");
    const ClipOptions options{.norm_type = type == "inf" ? HUGE_VAL : std::stod(type),
                              .error_if_nonfinite = o.value("error_if_nonfinite", false)};
    ++count;
    if (c.contains("error")) {
      EXPECT_NE(error_of<ValueError>([&] {
                  clip_grad_norm_(parameters, o.at("max_norm"), options);
                }).find("it must be finite"),
                std::string::npos);
      continue;
    }
    const double norm = clip_grad_norm_(parameters, o.at("max_norm"), options);
    const Json& error = c.at("torch_error_vs_float64");
    EXPECT_TRUE(
        within_error_rule(full({}, norm), golden_tensor(c.at("expect").at("total_norm")), error.at("total_norm")));
    for (std::size_t i = 0; i + 1 < parameters.size(); ++i) {
      const std::string name = "grad_" + std::to_string(i) + "_after";
      EXPECT_TRUE(within_error_rule(parameters[i].grad(), golden_tensor(c.at("expect").at(name)), error.at(name)))
          << name;
    }
  }
  EXPECT_EQ(count, 7);
  EXPECT_EQ(clip_grad_norm_({zeros({2}).requires_grad_()}, 1), 0);
}

/// Ten steps of a quadratic from a fixed start, parameters of two shapes in two groups.
struct Descent {
  std::vector<Tensor> parameters;
  explicit Descent(Dtype dtype) {
    Generator generator(1);
    for (const Dims& sizes : {Dims{20000}, Dims{3, 4}})
      parameters.push_back(randn(sizes, generator).to(dtype).requires_grad_());
  }
  void backward() const {
    for (const Tensor& x : parameters) x.set_grad({});
    (sum(parameters[0] * parameters[0]) + sum(parameters[1] * 3)).backward();
  }
};

template <typename O, typename Options>
void resumes_to_the_bit(Dtype dtype, const Options& options) {
  Descent whole(dtype), cut(dtype);
  O through({{{whole.parameters[0]}, options}, {{whole.parameters[1]}, options}});
  O before({{{cut.parameters[0]}, options}, {{cut.parameters[1]}, options}});
  const auto run = [](O& optimizer, const Descent& descent, int steps) {
    for (int i = 0; i < steps; ++i) {
      descent.backward();
      optimizer.step();
    }
  };
  run(through, whole, 10);
  run(before, cut, 4);
  O after({{{cut.parameters[0]}, options}, {{cut.parameters[1]}, options}});
  after.load_state_dict(before.state_dict());
  run(after, cut, 6);
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(same_bits(whole.parameters[static_cast<std::size_t>(i)].detach(),
                          cut.parameters[static_cast<std::size_t>(i)].detach()));
}

TEST(Optim, AStateThatWasLoadedGoesOnToTheBit) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64, Dtype::bf16}) {
    resumes_to_the_bit<AdamW>(dtype, AdamWOptions{.lr = 0.01, .amsgrad = true});
    resumes_to_the_bit<SGD>(dtype, SGDOptions{.lr = 0.01, .momentum = 0.9});
  }
}

TEST(Optim, WeightsAreLoadedBeforeTheStateOrAfterIt) {
  const auto step = [](SGD& optimizer, const Tensor& x) {
    x.set_grad(ones(x.sizes(), x.dtype()));
    optimizer.step();
  };
  for (const Dtype dtype : {Dtype::bf16, Dtype::f16}) {
    const Tensor whole = ones({4}, dtype).requires_grad_();
    SGD through({whole}, {.lr = 1e-5});
    for (int i = 0; i < 7; ++i) step(through, whole);
    const StateDict saved = through.state_dict();
    const Tensor weights = whole.detach().clone();
    step(through, whole);
    for (const bool weights_last : {false, true}) {
      const Tensor x = zeros({4}, dtype).requires_grad_();
      SGD optimizer({x}, {.lr = 1e-5});
      if (weights_last) optimizer.load_state_dict(saved);
      x.detach().copy_(weights);
      if (!weights_last) optimizer.load_state_dict(saved);
      step(optimizer, x);
      EXPECT_EQ(optimizer.state_dict()[1].second.to_vector(), through.state_dict()[1].second.to_vector())
          << weights_last;
    }
    // weights of its own stay: the state's copies are of others
    const Tensor other = full({4}, 5, dtype).requires_grad_();
    SGD optimizer({other}, {.lr = 1e-5});
    optimizer.load_state_dict(saved);
    step(optimizer, other);
    EXPECT_EQ(other.to_vector()[0], 5);
  }
  const Tensor wide = zeros({2, 2}).t().detach().requires_grad_();  // f32 has no copy, whatever the state holds
  SGD optimizer({wide}, {.lr = 1});
  optimizer.load_state_dict({{"state.0.step", scalar_tensor<std::int64_t>(1)}, {"state.0.master", ones({2, 2})}});
  for (int i = 0; i < 2; ++i) step(optimizer, wide);
  EXPECT_EQ(wide.to_vector(), std::vector<double>(4, -2));
}

TEST(Optim, HalfFloatsMoveBySmallSteps) {
  Tensor x = full({4}, 1, Dtype::bf16);
  x.requires_grad_();
  SGD optimizer({x}, {.lr = 1e-4});
  for (int i = 0; i < 100; ++i) {
    x.set_grad(ones({4}, Dtype::bf16));
    optimizer.step();
  }
  // half of bf16's last digit below 1; without the f32 copy it would stay 1
  EXPECT_NEAR(x.to_vector()[0], 0.99, 0.002);
  {
    const NoGrad guard;
    x.fill_(5);  // the copy is made anew
  }
  x.set_grad(ones({4}, Dtype::bf16));
  optimizer.step();
  EXPECT_EQ(x.to_vector()[0], 5);
}

TEST(Optim, OptionsAreThoseOfTheGroupAndOfTheMoment) {
  Tensor a = ones({2}), b = ones({2}), unused = ones({2});
  a.requires_grad_(), b.requires_grad_(), unused.requires_grad_();
  SGD optimizer({{{a, unused}, {.lr = 0.5}}, {{b}, {.lr = 0.25}}});
  a.set_grad(ones({2}));
  b.set_grad(ones({2}));
  optimizer.step();
  optimizer.groups[1].options.lr = 1;
  optimizer.step();
  EXPECT_EQ(a.to_vector()[0], 0);
  EXPECT_EQ(b.to_vector()[0], -0.25);
  EXPECT_EQ(unused.to_vector()[0], 1);
  EXPECT_TRUE(a.is_leaf());
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optim, AParameterThatIsAViewOfAnyStrides) {
  const Tensor memory = ones({3, 2});
  Tensor x = memory.t().detach();
  x.requires_grad_();
  const Tensor gradient = arange(0.0, 6.0).reshape({2, 3});
  x.set_grad(gradient);
  SGD({x}, {.lr = 1}).step();
  EXPECT_EQ(memory.t().to_vector(), (1 - gradient).to_vector());
}

TEST(Optim, GroupsKeepTheirParameters) {
  const Tensor a = ones({2}).requires_grad_(), b = ones({3}).requires_grad_();
  for (const Tensor& x : {a, b}) x.set_grad(ones(x.sizes()));
  const auto refused = [](const char* name, auto& optimizer) {
    EXPECT_EQ(error_of<ValueError>([&] { optimizer.step(); }),
              std::string(name) +
                  ": the parameters of the groups are not those of the beginning; only their options may change");
  };
  AdamW adamw({a});
  adamw.groups[0].parameters.push_back(b);
  refused("AdamW", adamw);
  adamw.groups[0].parameters = {b};
  refused("AdamW", adamw);
  SGD sgd({a, b});
  sgd.groups[0].parameters.pop_back();
  refused("SGD", sgd);
  sgd.groups.push_back({{b}, {.lr = 0.5}});
  sgd.step();
  EXPECT_EQ(b.detach().to_vector(), (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(a.detach().to_vector(), (std::vector<double>{0.999f, 0.999f}));
}

TEST(Optim, Errors) {
  Tensor x = ones({2});
  EXPECT_EQ(error_of<ValueError>([&] { SGD({x}); }), "Optimizer: parameter 0 must be a leaf that requires a gradient");
  x.requires_grad_();
  EXPECT_EQ(error_of<ValueError>([&] { SGD({x, x}); }),
            "Optimizer: parameter 1 is given twice; it may be in one group only");
  EXPECT_EQ(error_of<ValueError>([&] { SGD({x}, {.lr = -1}); }), "SGD: lr is -1; it must be 0 or more");
  EXPECT_EQ(error_of<ValueError>([&] { SGD({x}, {.nesterov = true}); }),
            "SGD: nesterov needs momentum and no dampening");
  EXPECT_EQ(error_of<ValueError>([&] { AdamW({x}, {.betas = {0.9, 1}}); }),
            "AdamW: a beta is 1; it must be from 0 to below 1");
  AdamW optimizer({x});
  EXPECT_EQ(
      error_of<ValueError>([&] { optimizer.load_state_dict({{"state.0.exp_avg", ones({3})}, {"what", ones({})}}); }),
      "load_state_dict: state.0.exp_avg has shape [3], it must be [2]; what is unexpected");
  EXPECT_EQ(error_of<ValueError>([&] { optimizer.load_state_dict({{"state.0.exp_avg", ones({2})}}); }),
            "load_state_dict: state.0.step is missing");
  EXPECT_EQ(error_of<ValueError>([&] { Schedule{.steps = 4}(-1); }), "Schedule: step is -1; it must be 0 or more");
  EXPECT_EQ(error_of<ValueError>([&] { Schedule{.warmup = 5, .steps = 4}(0); }),
            "Schedule: warmup is 5 of 4 steps; it must be from 0 to that");
}

TEST(Optim, AStateIsWholeOrAbsent) {
  const Tensor x = ones({2}).requires_grad_(), y = ones({3}).requires_grad_();
  const Tensor step = scalar_tensor<std::int64_t>(100);
  AdamW optimizer({x, y}, {.amsgrad = true});
  x.set_grad(ones({2}));
  optimizer.step();
  const StateDict before = optimizer.state_dict();
  const auto refused = [&](const StateDict& state) {
    const std::string text = error_of<ValueError>([&] { optimizer.load_state_dict(state); });
    const StateDict after = optimizer.state_dict();
    EXPECT_EQ(after.size(), before.size());
    for (std::size_t n = 0; n < std::min(before.size(), after.size()); ++n)
      EXPECT_TRUE(after[n].first == before[n].first && same_bits(after[n].second, before[n].second));
    return text;
  };
  EXPECT_EQ(refused({{"state.0.step", step}}),
            "load_state_dict: state.0.exp_avg is missing; state.0.exp_avg_sq is missing");
  EXPECT_EQ(refused({{"state.1.step", step}, {"state.1.exp_avg", zeros({3})}}),
            "load_state_dict: state.1.exp_avg_sq is missing");
  EXPECT_EQ(refused({{"state.1.step", step}, {"state.1.exp_avg_sq", zeros({2})}}),
            "load_state_dict: state.1.exp_avg is missing; state.1.exp_avg_sq has shape [2], it must be [3]");
  EXPECT_EQ(refused({{"state.0.step", step}, {"state.0.max_exp_avg_sq", zeros({2})}}),
            "load_state_dict: state.0.exp_avg is missing; state.0.exp_avg_sq is missing");
  EXPECT_EQ(refused({{"state.0.exp_avg", zeros({2})}, {"state.0.exp_avg_sq", zeros({2})}}),
            "load_state_dict: state.0.step is missing");
  // amsgrad may begin later, as momentum may: the largest v so far is not of every state
  optimizer.load_state_dict(
      {{"state.1.step", step}, {"state.1.exp_avg", zeros({3})}, {"state.1.exp_avg_sq", zeros({3})}});
  EXPECT_EQ(optimizer.state_dict().size(), 3u);
  SGD({x}, {.momentum = 0.9}).load_state_dict({{"state.0.step", step}});
  optimizer.load_state_dict({});
  EXPECT_TRUE(optimizer.state_dict().empty());
}

/// A forgotten register_module trains nothing: torch's ValueError, with what was forgotten.
TEST(Optim, NoParametersAreAMistake) {
  const std::string text =
      "Optimizer: there are no parameters; a module has those that register_parameter and register_module have seen";
  struct Forgotten : nn::Module {
    const nn::Linear linear{2, 2};
  };
  EXPECT_EQ(error_of<ValueError>([] { AdamW(Forgotten().parameters()); }), text);
  EXPECT_EQ(error_of<ValueError>([] { SGD(std::vector<Tensor>{}); }), text);
  EXPECT_EQ(error_of<ValueError>([] { AdamW(std::vector<Group<AdamWOptions>>{{}, {}}); }), text);
}

TEST(Optim, OptionsThatAreNoNumbers) {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const Tensor x = ones({2}).requires_grad_();
  for (const double wrong : {nan, inf, -inf, -1.0}) {
    for (const AdamWOptions& options :
         {AdamWOptions{.lr = wrong}, AdamWOptions{.betas = {wrong, 0.9}}, AdamWOptions{.betas = {0.9, wrong}},
          AdamWOptions{.eps = wrong}, AdamWOptions{.weight_decay = wrong}})
      EXPECT_THROW(AdamW({x}, options), ValueError) << wrong;
    for (const SGDOptions& options :
         {SGDOptions{.lr = wrong}, SGDOptions{.momentum = wrong}, SGDOptions{.weight_decay = wrong}})
      EXPECT_THROW(SGD({x}, options), ValueError) << wrong;
    EXPECT_THROW((Schedule{.peak = wrong, .steps = 4}(0)), ValueError) << wrong;
    EXPECT_THROW((Schedule{.last = wrong, .steps = 4}(0)), ValueError) << wrong;
  }
  EXPECT_EQ(error_of<ValueError>([&] { SGD({x}, {.momentum = 0.5, .dampening = nan}); }),
            "SGD: dampening is nan; it must be finite");
  x.set_grad(ones({2}));
  EXPECT_EQ(error_of<ValueError>([&] { clip_grad_norm_({x}, nan); }),
            "clip_grad_norm_: max_norm is nan; it must be 0 or more");
  EXPECT_EQ(error_of<ValueError>([&] { clip_grad_norm_({x}, -1); }),
            "clip_grad_norm_: max_norm is -1; it must be 0 or more");
  EXPECT_EQ(error_of<ValueError>([&] { clip_grad_norm_({x}, 1, {.norm_type = nan}); }),
            "clip_grad_norm_: norm_type is nan; it must be a number");
  EXPECT_EQ(x.grad().to_vector(), (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace attn::optim
