// tests/model/train_test.cc: a training learns, gives the same bits on any number of threads, and resumes to the bit.
#include "io/files.h"
#include "model/flat_gradients.h"
#include "model/small_training.h"
#include "model/train_data.h"
#include "support/errors.h"
#include "support/golden.h"

#include <attn/autograd.h>
#include <attn/runtime.h>
#include <attn/safetensors.h>
#include <attn/train.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <tuple>

namespace attn {
namespace {

using testing::bits_equal;
using testing::error_of;
using testing::Folder;
using testing::same_weights;
using testing::trained;
using Ids = std::vector<std::int64_t>;

Ids ids() { return testing::training_ids(); }
TrainOptions options() { return testing::training_options(); }

TEST(Train, TheLossFalls) {
  TrainOptions o = options();
  o.steps = 150, o.eval_every = 75;
  Trainer trainer(ids(), o);
  const double before = trainer.validate();
  EXPECT_NEAR(before, std::log(static_cast<double>(o.model.vocab_size)), 0.2)
      << "weights of nanoGPT's first draw know nothing";
  while (!trainer.done()) trainer.advance();
  EXPECT_LT(trainer.best_loss(), before / 2);
  EXPECT_EQ(trainer.losses().size(0), 150);
  EXPECT_EQ(trainer.validations().size(0), 2);
}

TEST(Train, ResumesToTheBit) {
  const Trainer whole = trained(12);
  for (const std::int64_t stop : {0, 1, 5, 11, 12}) {
    const Folder folder;
    trained(stop).save(folder.path());
    rand({100});  // whatever was drawn meanwhile does not matter
    Trainer resumed = Trainer::resume(folder.path(), ids());
    EXPECT_EQ(resumed.step(), stop);
    EXPECT_EQ(resumed.options(), options());
    while (!resumed.done()) resumed.advance();
    EXPECT_TRUE(same_weights(resumed, whole)) << "stopped at " << stop;
    EXPECT_TRUE(bits_equal(resumed.losses(), whole.losses()));
    EXPECT_TRUE(bits_equal(resumed.validations(), whole.validations()));
    EXPECT_EQ(resumed.best_loss(), whole.best_loss());
    EXPECT_EQ(resumed.best_step(), whole.best_step());
  }
}

TEST(Train, ResumesAnyShape) {
  TrainOptions o = options();
  o.model.norm = ModelConfig::Norm::rms_norm, o.model.positions = ModelConfig::Positions::rotary,
  o.model.activation = ModelConfig::Activation::swiglu;
  o.model.kv_heads = 1, o.model.head_dim = 6, o.model.mlp_width = 20, o.model.rotary_theta = 500,
  o.model.tied_head = false, o.model.mlp_bias = false;
  o.model.end_tokens = {2, 5};
  const Folder folder;
  trained(6, o).save(folder.path());
  Trainer resumed = Trainer::resume(folder.path(), ids());
  EXPECT_EQ(resumed.options(), o);
  while (!resumed.done()) resumed.advance();
  EXPECT_TRUE(same_weights(resumed, trained(12, o)));
}

TEST(Train, GoesOnForMoreSteps) {
  TrainOptions longer = options();
  longer.steps = 20;
  Trainer at_once = trained(7);
  at_once.extend(20);
  EXPECT_EQ(at_once.options(), longer);
  const Folder folder;
  at_once.save(folder.path());
  while (!at_once.done()) {
    const TrainStep done = at_once.advance();
    EXPECT_EQ(done.lr, longer.lr_of(done.step));
  }
  Trainer resumed = Trainer::resume(folder.path(), ids());
  EXPECT_EQ(resumed.options(), longer);
  while (!resumed.done()) resumed.advance();
  EXPECT_TRUE(same_weights(at_once, resumed));
  // After the last step too.
  Trainer finished = trained(12);
  const double last = finished.options().lr_of(12);
  finished.extend(20);
  EXPECT_FALSE(finished.done());
  EXPECT_GT(finished.advance().lr, last) << "the schedule is that of twenty steps";
  while (!finished.done()) finished.advance();
  EXPECT_EQ(finished.losses().size(0), 20);
  EXPECT_EQ(error_of<ValueError>([&] { finished.extend(19); }),
            "Trainer: extend is given 19 steps; it must be at least the 20 there are");
  EXPECT_NO_THROW(finished.extend(20));
  EXPECT_TRUE(finished.done());
}

TEST(Train, TheDefaultWarmUpFitsShortTrainings) {
  for (const auto& [steps, warmup] :
       {std::pair<std::int64_t, std::int64_t>{1, 0}, {9, 0}, {60, 6}, {999, 99}, {1000, 100}, {100000, 100}}) {
    TrainOptions o;
    o.model = options().model;
    o.steps = steps;
    EXPECT_NO_THROW(o.check());
    EXPECT_EQ(o.warmup_steps(), warmup) << steps;
  }
}

TEST(Train, SavesIntoAFolderThatIsMade) {
  const Folder folder;
  const std::string path = folder.file("not/there/yet");
  trained(1).save(path);
  EXPECT_EQ(Trainer::resume(path, ids()).step(), 1);
  testing::write_file(folder.file("file"), {});
  EXPECT_EQ(error_of<IoError>([&] { trained(1).save(folder.file("file/below")); }),
            "Trainer::save: " + folder.file("file/below") + ": Not a directory");
  EXPECT_EQ(error_of<ValueError>([&] { trained(1).save(folder.file("x") + std::string(1, '\0') + "y"); }),
            "Trainer::save: the path " + folder.file("x") + "\\x00y has a zero byte at " +
                std::to_string(folder.file("x").size()) + "; no file has such a name");
}

TEST(TrainThreads, GiveTheSameBits) {
  const int before = num_threads();
  set_num_threads(1);
  const Trainer one = trained(4);
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    EXPECT_TRUE(same_weights(trained(4), one)) << threads;
  }
  set_num_threads(before);
}

TEST(Train, SeedsGiveOtherTrainings) {
  TrainOptions o = options();
  o.seed = 7;
  EXPECT_FALSE(same_weights(trained(1, o), trained(1)));
}

TEST(Train, HalfFloatsKeepTheirMasters) {
  TrainOptions o = options();
  o.dtype = Dtype::bf16;
  const Trainer whole = trained(12, o);
  EXPECT_EQ(whole.model().dtype(), Dtype::bf16);
  const Folder folder;
  trained(6, o).save(folder.path());
  Trainer resumed = Trainer::resume(folder.path(), ids());
  while (!resumed.done()) resumed.advance();
  EXPECT_TRUE(same_weights(resumed, whole));
  const double first = whole.losses().to_vector()[1];
  EXPECT_LT(whole.best_loss(), first);
}

TEST(Train, ValidationSeesEveryIdOnce) {
  for (const std::int64_t windows : {1, 3, 100}) {
    const TrainData data(ids(), 100, 12);
    Ids targets;
    for (const auto& [inputs, wanted] : data.validation(windows)) {
      EXPECT_LE(inputs.size(0), windows);
      const Ids before = inputs.to_int_vector(), after = wanted.to_int_vector();
      targets.insert(targets.end(), after.begin(), after.end());
    }
    const Ids all = ids();
    EXPECT_EQ(data.border(), static_cast<std::int64_t>(all.size() - all.size() / 10));
    EXPECT_EQ(targets, Ids(all.begin() + data.border() + 1, all.end()));
  }
}

TEST(Train, BatchesAreWindowsOfTheTrainingPart) {
  const TrainData data(ids(), 100, 12);
  manual_seed(3);
  const auto [inputs, targets] = data.draw(50);
  manual_seed(3);
  const Ids starts = randint(0, data.border() - 12, {50}).to_int_vector(), all = ids();  // as nanoGPT's get_batch
  for (std::int64_t row = 0; row < 50; ++row) {
    const auto from = all.begin() + starts[static_cast<std::size_t>(row)];
    EXPECT_EQ(inputs[row].to_int_vector(), Ids(from, from + 12));
    EXPECT_EQ(targets[row].to_int_vector(), Ids(from + 1, from + 13));
    EXPECT_LE(from + 13, all.begin() + data.border());
  }
}

TEST(Train, GradientsLieInOneBuffer) {
  manual_seed(5);
  const Tensor a = randn({3, 4}).requires_grad_(), b = randn({4}).requires_grad_();
  const auto loss = [&] { return sum(a * b * b); };
  const std::vector<Tensor> expected = grad({loss()}, {a, b});
  const FlatGradients flat({a, b});
  loss().backward();
  EXPECT_TRUE(bits_equal(a.grad(), expected[0]));
  EXPECT_TRUE(bits_equal(b.grad(), expected[1]));
  ASSERT_EQ(flat.buffers().size(), 1u);
  EXPECT_TRUE(bits_equal(flat.buffers()[0].narrow(0, 12, 4).contiguous(), expected[1]));
  flat.zero();
  EXPECT_TRUE(bits_equal(a.grad(), zeros({3, 4})));
}

TEST(Train, SaysWhatIsWrong) {
  const auto refused = [](auto change) {
    TrainOptions o = options();
    change(o);
    return error_of<ValueError>([&] { Trainer(ids(), o); });
  };
  EXPECT_EQ(refused([](auto& o) { o.steps = 0; }), "Trainer: steps is 0; it must be 1 or more");
  EXPECT_EQ(refused([](auto& o) { o.warmup = 13; }), "Trainer: warmup is 13 of 12 steps; it must be from 0 to that");
  EXPECT_EQ(refused([](auto& o) { o.lr = NAN; }), "Trainer: lr is nan; it must be 0 or more");
  EXPECT_EQ(refused([](auto& o) { o.model.vocab_size = 3; }).substr(0, 11), "Trainer: id");
  EXPECT_EQ(refused([](auto& o) { o.model.context = 5000; }).substr(0, 20), "Trainer: the text ha");
  TrainOptions half = options();
  half.dtype = Dtype::f16;
  EXPECT_EQ(error_of<DtypeError>([&] { Trainer(ids(), half); }), "Trainer: dtype is f16; it must be f32 or bf16");
  TrainOptions wild = options();
  wild.lr = 1e30, wild.clip = 0;
  EXPECT_NE(error_of<ValueError>([&] { trained(12, wild); }).find("the training has diverged; a smaller lr may help"),
            std::string::npos);
  wild.steps = wild.eval_every = 1, wild.warmup = 0;  // no step comes after
  EXPECT_EQ(error_of<ValueError>([&] { trained(1, wild); }),
            "Trainer: step 1 has validation loss nan: the training has diverged; a smaller lr may help");
}

TEST(Train, AnotherTextOrADamagedFileIsAnError) {
  const Folder folder;
  const std::string path = folder.path();
  EXPECT_EQ(Trainer::find(path), std::nullopt);
  trained(2).save(path);
  EXPECT_EQ(Trainer::find(path)->second, 2);
  Ids other = ids();
  other[5] ^= 1;
  EXPECT_NE(error_of<ValueError>([&] { Trainer::resume(path, other); }).find("was begun with another text"),
            std::string::npos);

  const std::string file = folder.file("train_state.safetensors");
  const Safetensors good = load_safetensors(file);
  const auto refused = [&](auto change) {
    Safetensors damaged = good;
    change(damaged);
    save_safetensors(file, damaged.tensors, damaged.metadata);
    const std::string text = error_of<FormatError>([&] { Trainer::resume(path, ids()); });
    EXPECT_NE(text, "");
    EXPECT_EQ(text.find("exception"), std::string::npos) << text;
    return text.substr(std::min(text.size(), text.find(": not") + 2));
  };
  EXPECT_EQ(refused([](auto& f) { f.metadata.clear(); }),
            "not the state of a training (its metadata has no attn_train)");
  EXPECT_EQ(refused([](auto& f) { f.metadata["attn_train"] = "{}"; }),
            "not the state of a training (key 'options' not found)");
  refused([](auto& f) { f.tensors.erase(f.tensors.begin()); });
  refused([](auto& f) { std::erase_if(f.tensors, [](const auto& t) { return t.first == "generator"; }); });
  refused([](auto& f) {
    std::erase_if(f.tensors, [](const auto& t) { return t.first.find("exp_avg_sq") != std::string::npos; });
  });
  refused([](auto& f) {
    for (auto& [name, value] : f.tensors)
      if (name == "generator") value = zeros({632}, Dtype::i64);
  });
  const auto with = [&](const char* wanted, const Tensor& x) {
    refused([&](auto& f) {
      for (auto& [name, value] : f.tensors)
        if (name == wanted) value = x;
    });
  };
  with("losses", zeros({1, 2}, Dtype::f64));
  with("losses", full({2, 2}, NAN, Dtype::f64));
  with("validations", full({1, 2}, 3, Dtype::f64));
  with("optimizer.state.0.step", full({}, -1, Dtype::i64));
  refused([](auto& f) {
    auto& text = f.metadata["attn_train"];
    text.replace(text.find("\"step\":2"), 8, "\"step\":1");
  });
  refused([](auto& f) {
    auto& text = f.metadata["attn_train"];
    text.replace(text.find("\"width\":16"), 10, "\"width\":9000000");
  });
}

TEST(Train, TheCurveIsADrawing) {
  const Trainer trainer = trained(12);
  const std::string svg = loss_curve_svg(trainer, "a <title> & \"more\"");
  EXPECT_TRUE(svg.starts_with("<svg xmlns="));
  EXPECT_NE(svg.find("a &lt;title&gt; &amp; &quot;more&quot;"), std::string::npos);
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), std::string::npos);
  EXPECT_NE(svg.find("validation, best "), std::string::npos);
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(loss_curve_svg(trained(0), "none").find("nan"), std::string::npos);
}

/// Mean cross entropy of ids[border + 1 ..] by how often three characters in a row stood before `border`, with the best
/// of several k added.
double best_three_gram(const Ids& ids, std::size_t border, std::int64_t vocab_size) {
  std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, double> three;
  std::map<std::pair<std::int64_t, std::int64_t>, double> two;
  for (std::size_t i = 2; i < border; ++i) ++three[{ids[i - 2], ids[i - 1], ids[i]}], ++two[{ids[i - 2], ids[i - 1]}];
  double best = std::numeric_limits<double>::infinity();
  for (const double k : {1.0, 0.3, 0.1, 0.03, 0.01, 0.003}) {
    double sum = 0;
    for (std::size_t i = border + 1; i < ids.size(); ++i)
      sum -= std::log((three[{ids[i - 2], ids[i - 1], ids[i]}] + k) /
                      (two[{ids[i - 2], ids[i - 1]}] + k * static_cast<double>(vocab_size)));
    best = std::min(best, sum / static_cast<double>(ids.size() - border - 1));
  }
  return best;
}

// Minutes: what attn train does with the text by itself.
TEST(LongTrain, ALicenseIsLearntBetterThanThreeCharactersInARowSay) {
  const std::string license = "/usr/share/common-licenses/GPL-3";
  if (!std::filesystem::exists(license)) GTEST_SKIP() << "this system has no " << license;
  const testing::Bytes bytes = testing::read_file(license);
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const Tokenizer tokenizer = Tokenizer::train(text, Tokenizer::Kind::characters);
  const Ids all = tokenizer.encode(text);
  TrainOptions o;
  o.model = ModelConfig::nano(tokenizer.size());
  o.model.dropout = 0.1;
  Trainer trainer(all, o);
  while (!trainer.done()) trainer.advance();
  const double three = best_three_gram(all, all.size() - all.size() / 10, tokenizer.size());
  RecordProperty("three_gram", std::to_string(three));
  EXPECT_LT(trainer.best_loss(), three);
}

}  // namespace
}  // namespace attn
