// tests/model/fields_test.cc: no field of a model's shape or a training's options is forgotten by a file.
#include "model/fields.h"

#include "model/tiny_models.h"
#include "model/train_settings.h"
#include "support/errors.h"
#include "support/golden.h"

#include <algorithm>
#include <functional>
#include <set>

namespace attn {
namespace {

using testing::error_of;

/// Every byte of a T belongs to a field that is visited, or fills up to the next one's alignment.
template <typename T>
void expect_all_visited() {
  struct Place {
    std::size_t begin, size, alignment;
  };
  const T x{};
  std::vector<Place> places;
  std::set<std::string> names;
  each_field(x, [&](const char* name, const auto& field) {
    places.push_back(
        {static_cast<std::size_t>(reinterpret_cast<const char*>(&field) - reinterpret_cast<const char*>(&x)),
         sizeof field, alignof(decltype(field))});
    EXPECT_TRUE(names.insert(name).second) << name;
  });
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  places.push_back({sizeof(T), 0, alignof(T)});
  std::size_t end = 0;
  for (const Place& place : places) {
    EXPECT_EQ((end + place.alignment - 1) / place.alignment * place.alignment, place.begin)
        << "a field before byte " << place.begin << " is not visited";
    end = place.begin + place.size;
  }
}

TEST(Fields, AllAreVisited) {
  expect_all_visited<ModelConfig>();
  expect_all_visited<TrainOptions>();
  expect_all_visited<nn::RotaryScaling>();
  expect_all_visited<LayerConfig>();
  expect_all_visited<EncoderDecoderConfig>();
}

/// Each field of `a` differs from that of `b`.
template <typename T>
void expect_all_differ(const T& a, const T& b) {
  each_field(a, [&](const std::string& name, const auto& x) {
    each_field(b, [&](const std::string& other, const auto& y) {
      if constexpr (std::is_same_v<decltype(x), decltype(y)>) {
        EXPECT_FALSE(name == other && x == y) << name << " is as by default";
      }
    });
  });
}

/// A shape without a field that is as by default.
ModelConfig model() {
  return {.vocab_size = 13,
          .context = 12,
          .layers = 2,
          .heads = 4,
          .kv_heads = 2,
          .width = 8,
          .head_dim = 6,
          .mlp_width = 20,
          .norm = ModelConfig::Norm::rms_norm,
          .norm_eps = 1e-6,
          .positions = ModelConfig::Positions::rotary,
          .rotary_theta = 500,
          .rotary_scaling = nn::RotaryScaling{4, 2, 3, 6},
          .rotary_dim = 4,
          .activation = ModelConfig::Activation::swiglu,
          .attention_bias = false,
          .attention_out_bias = true,
          .qk_norm = true,
          .query_scalar = 5,
          .attention_softcap = 7,
          .sliding_window = 5,
          .per_layer = {{.sliding_window = 3}, {.rotary = false}},
          .post_norms = true,
          .mlp_bias = false,
          .scaled_embedding = true,
          .final_softcap = 3,
          .tied_head = false,
          .dropout = 0.1,
          .end_tokens = {2, 5}};
}
TrainOptions options() {
  TrainOptions o{.model = model(),
                 .dtype = Dtype::bf16,
                 .steps = 6,
                 .batch = 3,
                 .seed = 7,
                 .lr = 2e-3,
                 .warmup = 2,
                 .betas = {0.8, 0.95},
                 .weight_decay = 0.2,
                 .clip = 0.5,
                 .eval_every = 2,
                 .parts = 2};
  return o;
}

/// An encoder-decoder without a field that is as by default.
EncoderDecoderConfig pair_model() {
  return {.family = EncoderDecoderConfig::Family::t5,
          .vocab_size = 13,
          .decoder_vocab_size = 12,
          .positions = 11,
          .encoder_layers = 1,
          .decoder_layers = 2,
          .encoder_heads = 3,
          .decoder_heads = 4,
          .width = 24,
          .head_dim = 8,
          .encoder_mlp_width = 5,
          .decoder_mlp_width = 6,
          .activation = EncoderDecoderConfig::Activation::relu,
          .gated = true,
          .norm_eps = 1e-6,
          .relative_buckets = 8,
          .relative_distance = 20,
          .scaled_embedding = true,
          .scaled_output = true,
          .shared_embedding = false,
          .tied_head = false,
          .padding_id = 3,
          .dropout = 0.2};
}

std::vector<std::int64_t> ids() {
  std::vector<std::int64_t> ids;
  for (int i = 0; i < 200; ++i) ids.push_back(i * i % 13);
  return ids;
}

TEST(Fields, EachGoesThroughATraining) {
  expect_all_differ(model(), ModelConfig{});
  TrainOptions of_pairs = options();
  of_pairs.encoder_decoder = pair_model();
  of_pairs.label_smoothing = 0.1;
  of_pairs.parts = 1;
  expect_all_differ(of_pairs, TrainOptions{});
  expect_all_differ(pair_model(), EncoderDecoderConfig{});
  EXPECT_EQ(options_of(settings_of(of_pairs)), of_pairs);
  TrainOptions o = options();
  o.model.rotary_scaling.reset();  // a training begins without
  EXPECT_EQ(options_of(settings_of(o)), o);
  const testing::Folder folder;
  Trainer trainer(ids(), o), whole(ids(), o);
  while (!whole.done()) whole.advance();
  Trainer begun(ids(), o);
  begun.advance();
  begun.save(folder.path());
  EXPECT_EQ(Trainer::find(folder.path())->first, o);
  Trainer resumed = Trainer::resume(folder.path(), ids());
  EXPECT_EQ(resumed.options(), o);
  while (!resumed.done()) resumed.advance();
  const auto x = resumed.model().state_dict(), y = whole.model().state_dict();
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(testing::bits_equal(x[i].second, y[i].second)) << x[i].first;
}

/// One field at a time away from the default, through the state and back.
TEST(Fields, EachAloneGoesThroughATraining) {
  const ModelConfig all = model();
  int fields = 0;
  each_field(all, [&](const std::string& name, const auto& away) {
    TrainOptions o;
    each_field(o.model, [&](const std::string& other, auto& field) {
      if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::decay_t<decltype(away)>>)
        if (name == other) field = away;
    });
    if (name == "rotary_scaling") return;
    if (name == "heads" || name == "kv_heads") o.model.heads = 4, o.model.kv_heads = name == "heads" ? 0 : 2;
    if (name == "width") o.model.heads = 4;
    if (name == "per_layer") o.model.layers = 2;
    EXPECT_EQ(options_of(settings_of(o)), o) << name;
    ++fields;
  });
  EXPECT_EQ(fields, 28);
}

/// As a config.json has it that says what 0 means.
ModelConfig spelled_out(ModelConfig c) {
  c.kv_heads = c.key_value_heads(), c.head_dim = c.dim_of_head(), c.mlp_width = c.dim_of_mlp();
  return c;
}

TEST(Fields, EachGoesThroughAConfig) {
  ModelConfig own = model();
  EXPECT_EQ(ModelConfig::from_json(own.to_json()), own);
  own.attention_out_bias = std::nullopt;
  EXPECT_EQ(ModelConfig::from_json(own.to_json()), own);
  // One at a time, in each family's words.
  ModelConfig mixture;
  mixture.sliding_window = 7;
  const ModelConfig other = model();
  for (const ModelConfig& base :
       {ModelConfig{}, testing::tiny_llama(), testing::tiny_qwen2(), testing::tiny_qwen3(), testing::tiny_mistral(),
        testing::tiny_gemma2(), testing::tiny_gemma3(), testing::tiny_phi3(), testing::tiny_smollm3(), mixture})
    each_field(other, [&](const std::string& name, const auto& away) {
      ModelConfig c = base;
      c.kv_heads = c.head_dim = c.mlp_width = 0;
      if (name == "width" || name == "heads") c.heads = 4, c.width = 8;
      if (name == "kv_heads") c.heads = 4, c.width = 8;
      each_field(c, [&](const std::string& same, auto& field) {
        if constexpr (std::is_same_v<std::decay_t<decltype(field)>, std::decay_t<decltype(away)>>)
          if (name == same) field = away;
      });
      if (name == "positions" || name == "head_dim" || name == "rotary_dim") c.head_dim = 6;
      if (name == "per_layer") c.layers = 2;
      const bool needs_rotary = name == "rotary_theta" || name == "rotary_scaling";
      if (needs_rotary && c.positions != ModelConfig::Positions::rotary) return;  // nothing turns
      ModelConfig again = ModelConfig::from_json(c.to_json()), expected = spelled_out(c);
      again = spelled_out(again);
      // said or as attention_bias: the same shape
      if (again.attention_out_bias.has_value() != expected.attention_out_bias.has_value()) {
        EXPECT_EQ(again.bias_of_out(), expected.bias_of_out()) << name;
        again.attention_out_bias = expected.attention_out_bias;
      }
      EXPECT_EQ(again, expected) << name << "\n" << c.to_json();
    });
}

TEST(Fields, TrainingsOfBeforeAreRead) {
  const char* before =
      R"({"activation":1,"attention_bias":true,"batch":3,"beta1":0.8,"beta2":0.95,"clip":0.5,
    "context":12,"dropout":0.1,"dtype":2,"eval_every":2,
    "head_dim":0,"heads":2,"kv_heads":0,"layers":2,"lr":0.002,"mlp_bias":true,"mlp_width":0,"norm":0,
    "norm_eps":1e-05,"positions":0,"rotary_theta":10000.0,"seed":7,
    "steps":6,"tied_head":true,"vocab_size":13,"warmup":2,"weight_decay":0.2,"width":8})";
  TrainOptions expected = options();
  expected.model = {.vocab_size = 13, .context = 12, .layers = 2, .heads = 2, .width = 8, .dropout = 0.1};
  expected.parts = 1;  // their batches were one graph
  nlohmann::json json = nlohmann::json::parse(before);
  EXPECT_EQ(options_of(json), expected);
  json["later"] = 1;
  EXPECT_EQ(error_of<ValueError>([&] { options_of(json); }), "29 settings, of which 28 are known here");
  for (const char* field : {"width", "lr", "tied_head", "beta2", "norm"}) {
    nlohmann::json less = nlohmann::json::parse(before);
    less.erase(field);
    EXPECT_ANY_THROW(options_of(less)) << field;
    less[field] = "x";
    EXPECT_ANY_THROW(options_of(less)) << field;
  }
  for (const auto& [field, wrong] :
       {std::pair("norm", 3), {"norm", -1}, {"positions", 2}, {"activation", 4}, {"dtype", 7}}) {
    nlohmann::json other = nlohmann::json::parse(before);
    other[field] = wrong;
    EXPECT_EQ(error_of<ValueError>([&] { options_of(other); }), std::string(field) + " is " + std::to_string(wrong));
  }
}

}  // namespace
}  // namespace attn
