// tests/model/train_parts_test.cc: a batch in parts: their gradients are added by the tree, whatever the threads, and a
// training in parts resumes to the bit.
#include "model/part_tree.h"
#include "model/small_training.h"
#include "model/train_data.h"
#include "support/errors.h"
#include "support/folder.h"

#include <attn/autograd.h>
#include <attn/ops.h>
#include <attn/runtime.h>
#include <attn/safetensors.h>

#include <nlohmann/json.hpp>

#include <functional>

namespace attn::testing {
namespace {

TrainOptions in_parts(std::int64_t parts, Dtype dtype = Dtype::f32) { return training_in_parts(8, parts, dtype); }

TEST(TrainParts, TheirNumberFollowsFromTheTokensOfABatch) {
  const auto count = [](std::int64_t batch, std::int64_t context, std::int64_t parts = 0) {
    TrainOptions o;
    o.batch = batch, o.model.context = context, o.parts = parts;
    return o.part_count();
  };
  EXPECT_EQ(count(12, 64), 1);  // the presets nano, baby and small
  EXPECT_EQ(count(8, 256), 2);
  EXPECT_EQ(count(4, 1024), 4);
  EXPECT_EQ(count(2, 4096), 2) << "a part has a window or more";
  EXPECT_EQ(count(12, 64, 5), 5);
  for (const std::int64_t parts : {-1, 9}) {
    EXPECT_EQ(error_of<ValueError>([&] { in_parts(parts).check(); }),
              "Trainer: parts is " + std::to_string(parts) +
                  "; it must be from 1 to the 8 windows of a batch, or 0 to choose by its tokens");
  }
}

TEST(TrainParts, TheTreeHasTheLargestPowerOfTwoOnItsLeft) {
  EXPECT_EQ(middle_of({0, 7}), 4);
  EXPECT_EQ(middle_of({4, 7}), 6);
  EXPECT_EQ(middle_of({0, 8}), 4);
  EXPECT_EQ(nodes_inside({0, 12}, {3, 6}), (std::vector<Span>{{3, 4}, {4, 6}}));
  EXPECT_EQ(nodes_inside({0, 12}, {0, 12}), (std::vector<Span>{{0, 12}}));
  EXPECT_EQ(nodes_inside({0, 12}, {6, 12}), (std::vector<Span>{{6, 8}, {8, 12}}));
}

/// A training as the documents describe it, in the operations of the library. Without dropout.
std::vector<Tensor> by_definition(TrainOptions o, std::int64_t steps) {
  const TrainData data(training_ids(), o.model.vocab_size, o.model.context);
  manual_seed(o.seed);
  const LanguageModel model(o.model);
  const std::vector<Tensor> parameters = model.parameters();
  std::vector<Tensor> matrices, vectors;
  for (const Tensor& x : parameters) (x.dim() >= 2 ? matrices : vectors).push_back(x);
  optim::AdamWOptions plain{.lr = o.lr, .betas = o.betas, .weight_decay = 0}, decays = plain;
  decays.weight_decay = o.weight_decay;
  optim::AdamW adamw({{matrices, decays}, {vectors, plain}});
  for (std::int64_t step = 1; step <= steps; ++step) {
    const auto [inputs, targets] = data.draw(o.batch);
    const std::int64_t parts = o.part_count(), rows = inputs.numel();
    const std::function<std::vector<Tensor>(std::int64_t, std::int64_t)> node = [&](std::int64_t a, std::int64_t b) {
      if (b - a > 1) {
        std::int64_t left = 1;
        while (2 * left < b - a) left *= 2;
        std::vector<Tensor> x = node(a, a + left), y = node(a + left, b);
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = x[i] + y[i];
        return x;
      }
      const std::int64_t begin = o.batch * a / parts, windows = o.batch * b / parts - begin;
      const Tensor logits = model.forward(inputs.narrow(0, begin, windows)).flatten(0, 1);
      const Tensor losses =
          cross_entropy(logits, targets.narrow(0, begin, windows).reshape({-1}), {.reduction = Reduction::none});
      return grad({losses}, parameters,
                  {.grad_outputs = {full({losses.numel()}, 1 / static_cast<double>(rows), Dtype::f32)}});
    };
    const std::vector<Tensor> gradients = node(0, parts);
    for (std::size_t i = 0; i < parameters.size(); ++i) parameters[i].set_grad(gradients[i].contiguous());
    optim::clip_grad_norm_(parameters, o.clip);
    for (auto& group : adamw.groups) group.options.lr = o.lr_of(step);
    adamw.step();
  }
  return parameters;
}

TEST(TrainParts, HaveTheBitsOfTheirDefinition) {
  for (const std::int64_t parts : {1, 2, 3, 5, 8}) {
    TrainOptions o = in_parts(parts);
    o.model.dropout = 0;
    const Trainer trainer = trained(4, o);
    const std::vector<Tensor> expected = by_definition(o, 4), ours = trainer.model().parameters();
    for (std::size_t i = 0; i < ours.size(); ++i)
      EXPECT_TRUE(bits_equal(ours[i].detach(), expected[i].detach())) << parts << " parts, parameter " << i;
  }
}

TEST(TrainParts, OneGivesTheBitsOfOneGraph) {  // dropout and all
  const TrainOptions o = in_parts(1);
  Trainer trainer(training_ids(), o);
  const double loss = trainer.advance().loss;
  manual_seed(o.seed);
  const LanguageModel model(o.model);
  model.train();
  const auto [inputs, targets] = TrainData(training_ids(), o.model.vocab_size, o.model.context).draw(o.batch);
  EXPECT_EQ(loss, model.loss(inputs, targets).item());
}

TEST(TrainParts, OtherNumbersGiveOtherBits) {
  EXPECT_FALSE(same_weights(trained(2, in_parts(2)), trained(2, in_parts(1))));
  EXPECT_FALSE(same_weights(trained(2, in_parts(2)), trained(2, in_parts(4))));
}

TEST(TrainParts, DropoutFollowsFromTheWholeSeed) {
  TrainOptions o = in_parts(4);
  const double first = Trainer(training_ids(), o).advance().gradient_norm;
  EXPECT_EQ(Trainer(training_ids(), o).advance().gradient_norm, first);
  o.seed += std::uint64_t{1} << 32;  // its low half alone seeds the weights and the windows
  EXPECT_NE(Trainer(training_ids(), o).advance().gradient_norm, first);
}

TEST(TrainPartsThreads, GiveTheSameBits) {
  const int before = num_threads();
  set_num_threads(1);
  const Trainer one = trained(3, in_parts(3));
  for (const int threads : {2, 5}) {
    set_num_threads(threads);
    EXPECT_TRUE(same_weights(trained(3, in_parts(3)), one)) << threads;
  }
  set_num_threads(before);
}

TEST(TrainParts, ResumeToTheBit) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
    for (const std::int64_t parts : {2, 5}) {
      const TrainOptions o = in_parts(parts, dtype);
      const Trainer whole = trained(12, o);
      EXPECT_LT(whole.best_loss(), 2.6);
      const Folder folder;
      trained(5, o).save(folder.path());
      rand({100});
      Trainer resumed = Trainer::resume(folder.path(), training_ids());
      EXPECT_EQ(resumed.options(), o);
      while (!resumed.done()) resumed.advance();
      EXPECT_TRUE(same_weights(resumed, whole)) << parts;
      EXPECT_TRUE(bits_equal(resumed.losses(), whole.losses()));
    }
}

TEST(TrainParts, AFileWithoutThemIsOfATrainingInOne) {
  TrainOptions o = in_parts(1);
  const Folder folder;
  trained(3, o).save(folder.path());
  const std::string path = folder.file("train_state.safetensors");
  Safetensors file = load_safetensors(path);
  auto facts = nlohmann::json::parse(file.metadata.at("attn_train"));
  EXPECT_EQ(facts.at("options").erase("parts"), 1u);
  save_safetensors(path, file.tensors, {{"attn_train", facts.dump()}});
  Trainer resumed = Trainer::resume(folder.path(), training_ids());
  EXPECT_EQ(resumed.options().parts, 1);
  while (!resumed.done()) resumed.advance();
  EXPECT_TRUE(same_weights(resumed, trained(12, o)));
}

}  // namespace
}  // namespace attn::testing
