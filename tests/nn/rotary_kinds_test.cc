// tests/nn/rotary_kinds_test.cc: every scaling and layout of rotary embedding against transformers.
#include <attn/autograd.h>
#include <attn/nn.h>
#include <attn/ops.h>
#include <attn/random.h>

#include "support/errors.h"
#include "support/golden.h"

#include <gtest/gtest.h>

#include <map>

namespace attn::nn {
namespace {

using Kind = RotaryScaling::Kind;
using nlohmann::json;
using testing::golden_tensor;

RotaryScaling scaling_of(const json& given, std::int64_t context) {
  const std::map<std::string, Kind> kinds = {{"llama3", Kind::llama3},
                                             {"linear", Kind::linear},
                                             {"dynamic", Kind::dynamic},
                                             {"yarn", Kind::yarn},
                                             {"longrope", Kind::longrope}};
  RotaryScaling scaling;
  scaling.kind = kinds.at(given.at("rope_type").get<std::string>());
  scaling.original_context = given.value("original_max_position_embeddings", context);
  scaling.factor = given.value("factor", static_cast<double>(context) / static_cast<double>(scaling.original_context));
  scaling.low_frequency = given.value("low_freq_factor", scaling.low_frequency);
  scaling.high_frequency = given.value("high_freq_factor", scaling.high_frequency);
  scaling.attention_factor = given.value("attention_factor", 0.0);
  scaling.beta_fast = given.value("beta_fast", scaling.beta_fast);
  scaling.beta_slow = given.value("beta_slow", scaling.beta_slow);
  scaling.truncate = given.value("truncate", true);
  scaling.short_factors = given.value("short_factor", std::vector<double>());
  scaling.long_factors = given.value("long_factor", std::vector<double>());
  return scaling;
}

/// The cosine of the first position is the tables' factor; that of position 1 shows the frequencies.
TEST(RotaryKinds, FrequenciesAreThoseOfTransformers) {
  int cases = 0;
  for (const json& recorded : testing::golden("model/rotary_kinds.json").at("frequencies")) {
    SCOPED_TRACE(recorded.at("name").get<std::string>() + ", tokens " + recorded.at("tokens").dump());
    const json& given = recorded.at("scaling");
    const RotaryScaling scaling = scaling_of(given, recorded.at("context").get<std::int64_t>());
    const RotaryEmbedding module(recorded.at("dim").get<std::int64_t>(),
                                 {.theta = given.at("rope_theta").get<double>(), .scaling = scaling});
    const auto factor = recorded.at("factor").get<double>();
    EXPECT_NEAR(scaling.table_factor(), factor, 1e-15 * factor);
    const Tensor theirs = golden_tensor(recorded.at("frequencies")).to(Dtype::f64);
    const auto tables =
        module.tables(tensor<std::int64_t>({0, 1}), Dtype::f64, recorded.at("tokens").get<std::int64_t>());
    // theirs: a power and a quotient in f32, or three products more
    const Tensor bound = theirs * 4 * 0x1p-23 * factor;
    EXPECT_TRUE(all(le(abs(tables.sin[1] - sin(theirs) * factor), bound))) << tables.sin[1] << theirs;
    EXPECT_TRUE(all(eq(tables.cos[0], factor)));
    ++cases;
  }
  EXPECT_EQ(cases, 36);
}

/// The greatest position decides the length of a text that is not given.
TEST(RotaryKinds, TheLengthOfATextIsThatOfItsPositions) {
  const RotaryEmbedding module(24,
                               {.scaling = RotaryScaling{.factor = 3, .original_context = 64, .kind = Kind::dynamic}});
  const Tensor positions = arange(0, 70);
  EXPECT_TRUE(same_bits(module.tables(positions).cos, module.tables(positions, Dtype::f32, 70).cos));
  EXPECT_FALSE(same_bits(module.tables(positions).cos, module.tables(positions, Dtype::f32, 71).cos));
  EXPECT_TRUE(same_bits(module.tables(arange(0, 64)).cos, RotaryEmbedding(24).tables(arange(0, 64)).cos));
}

TEST(RotaryKinds, RotationsAreThoseOfTransformers) {
  int cases = 0;
  for (const json& recorded : testing::golden("model/rotary_kinds.json").at("rotations")) {
    SCOPED_TRACE(recorded.at("name").get<std::string>());
    const RotaryEmbedding module(recorded.at("dim").get<std::int64_t>(),
                                 {.neighbours = recorded.at("name") == "neighbours",
                                  .sections = recorded.value("sections", std::vector<std::int64_t>()),
                                  .axial = recorded.value("axial", false)});
    const json& given = recorded.at("positions");
    std::vector<std::int64_t> list;
    for (const json& one : given)
      for (const json& position : one.is_array() ? one : json::array({one}))
        list.push_back(position.get<std::int64_t>());
    Tensor positions = tensor<std::int64_t>(list);
    if (given[0].is_array()) positions = positions.reshape({static_cast<std::int64_t>(given.size()), -1});
    const Tensor x = golden_tensor(recorded.at("x")), y = golden_tensor(recorded.at("y"));
    const double angle = 900 * 2 * 0x1p-23 + 4 * 0x1p-24;
    EXPECT_TRUE(testing::within(module(x, positions), y, 2 * angle * max(abs(x)).item()));
    // Positions of each sequence, and gradients.
    const Tensor each = positions.unsqueeze(-2).expand(
        positions.dim() == 2 ? Dims{positions.size(0), 2, positions.size(1)} : Dims{2, positions.size(0)});
    EXPECT_TRUE(same_bits(module(cat({x, x}), each)[1], module(x, positions)[0]));
    const Tensor wide = x.to(Dtype::f64).requires_grad_();
    EXPECT_EQ(check_gradients([&](const std::vector<Tensor>& in) { return module(in[0], positions); }, {wide}), "");
    ++cases;
  }
  EXPECT_EQ(cases, 4);
}

TEST(RotaryKinds, Mistakes) {
  using testing::error_of;
  const auto error = [](const RotaryEmbeddingOptions& options) {
    return error_of<ValueError>([&] { RotaryEmbedding(8, options); });
  };
  EXPECT_EQ(error({.scaling = RotaryScaling{.kind = static_cast<Kind>(5)}}),
            "RotaryEmbedding: scaling has kind 5; the enumeration has no such value");
  EXPECT_EQ(
      error({.scaling = RotaryScaling{.kind = Kind::longrope, .short_factors = {1, 1, 1, 1}, .long_factors = {2}}}),
      "RotaryEmbedding: scaling has 1 long_factors; it must have one for each of the 4 frequencies");
  EXPECT_EQ(error({.scaling = RotaryScaling{.kind = Kind::longrope, .short_factors = {1, 0, 1, 1}}}),
            "RotaryEmbedding: scaling has 0 in short_factors; each must be above 0");
  EXPECT_EQ(
      error({.scaling = RotaryScaling{.kind = Kind::yarn, .beta_slow = 0}}),
      "RotaryEmbedding: scaling has beta_fast 32, beta_slow 0, attention_factor 0; the first two must be above 0, "
      "the last must not be negative");
  EXPECT_EQ(
      error({.scaling = RotaryScaling{.factor = 0.5, .kind = Kind::dynamic}}),
      "RotaryEmbedding: scaling is dynamic with factor 0.5 for several frequencies; it needs a factor of at least "
      "1, and two frequencies");
  EXPECT_EQ(error({.sections = {2, 1}}),
            "RotaryEmbedding: sections are [2, 1]; each must be above 0, and their sum dim / 2, 4");
  EXPECT_EQ(error({.axial = true}), "RotaryEmbedding: axial needs sections, and no scaling");
  const RotaryEmbedding three(8, {.sections = {2, 1, 1}});
  EXPECT_EQ(error_of<ShapeError>([&] { three(zeros({1, 1, 4, 8}), zeros({2, 4}, Dtype::i64)); }),
            "RotaryEmbedding: positions have shape [2, 4]; the first size must be the number of sections, 3");
}

}  // namespace
}  // namespace attn::nn
