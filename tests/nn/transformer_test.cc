// tests/nn/transformer_test.cc: recorded random configurations of torch's transformer modules: initial values, outputs,
// gradients, dropout, and torch's answers by its fast path.
#include <attn/autograd.h>
#include <attn/nn.h>
#include <attn/ops.h>

#include "support/errors.h"
#include "support/golden.h"
#include "support/sha256.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace attn::nn {
namespace {

using Json = nlohmann::json;

TransformerLayerOptions layer_options(const Json& o, bool exact) {
  return {.dim_feedforward = o.at("dim_feedforward"),
          .dropout = o.at("dropout"),
          .activation = o.at("activation") == "relu" ? Activation::relu : Activation::gelu,
          .layer_norm_eps = o.at("layer_norm_eps"),
          .batch_first = o.at("batch_first"),
          .norm_first = o.at("norm_first"),
          .bias = o.at("bias"),
          .exact = exact};
}

/// A handle of a module of any kind.
struct AnyModule : Module {
  explicit AnyModule(const Module& module) : Module(module) {}
};

/// A module, and how it is called with a case's tensors.
struct Made {
  AnyModule module;
  std::function<Tensor(const Tensor& src, const Tensor& tgt, const std::map<std::string, Tensor>&, const Json& hints)>
      call;
};

Tensor tensor_of(const std::map<std::string, Tensor>& tensors, const char* name) {
  const auto found = tensors.find(name);
  return found == tensors.end() ? Tensor() : found->second;
}

TransformerDecoderCall decoder_call(const std::map<std::string, Tensor>& t, const Json& hints) {
  return {.tgt_mask = tensor_of(t, "tgt_mask"),
          .memory_mask = tensor_of(t, "memory_mask"),
          .tgt_key_padding_mask = tensor_of(t, "tgt_key_padding_mask"),
          .memory_key_padding_mask = tensor_of(t, "memory_key_padding_mask"),
          .tgt_is_causal = hints.contains("tgt_is_causal") ? std::optional(true) : std::nullopt};
}

Made make(const Json& recorded, bool exact) {
  using Tensors = std::map<std::string, Tensor>;
  const Json& o = recorded.at("options");
  const std::int64_t d_model = o.at("d_model"), nhead = o.at("nhead");
  const TransformerLayerOptions layer = layer_options(o, exact);
  const std::string kind = recorded.at("kind");
  const bool with_norm = recorded.at("norm");
  manual_seed(recorded.at("seed").get<std::uint64_t>());
  if (kind == "encoder_layer") {
    const TransformerEncoderLayer m(d_model, nhead, layer);
    return {AnyModule(m), [m](const Tensor& src, const Tensor&, const Tensors& t, const Json& hints) {
              return m(src, {.src_mask = tensor_of(t, "src_mask"),
                             .src_key_padding_mask = tensor_of(t, "src_key_padding_mask"),
                             .is_causal = hints.contains("is_causal")});
            }};
  }
  if (kind == "decoder_layer") {
    const TransformerDecoderLayer m(d_model, nhead, layer);
    return {AnyModule(m), [m](const Tensor& src, const Tensor& tgt, const Tensors& t, const Json& hints) {
              return m(tgt, src, decoder_call(t, hints));
            }};
  }
  if (kind == "encoder") {
    const TransformerEncoderLayer one(d_model, nhead, layer);
    const TransformerEncoder m =
        with_norm ? TransformerEncoder(one, 2, LayerNorm(d_model)) : TransformerEncoder(one, 2);
    return {AnyModule(m), [m](const Tensor& src, const Tensor&, const Tensors& t, const Json&) {
              return m(src,
                       {.mask = tensor_of(t, "mask"), .src_key_padding_mask = tensor_of(t, "src_key_padding_mask")});
            }};
  }
  if (kind == "decoder") {
    const TransformerDecoderLayer one(d_model, nhead, layer);
    const TransformerDecoder m =
        with_norm ? TransformerDecoder(one, 2, LayerNorm(d_model)) : TransformerDecoder(one, 2);
    return {AnyModule(m), [m](const Tensor& src, const Tensor& tgt, const Tensors& t, const Json& hints) {
              return m(tgt, src, decoder_call(t, hints));
            }};
  }
  const Transformer m(d_model, nhead, {.num_encoder_layers = 2, .num_decoder_layers = 1, .layer = layer});
  return {AnyModule(m), [m](const Tensor& src, const Tensor& tgt, const Tensors& t, const Json& hints) {
            const TransformerDecoderCall d = decoder_call(t, hints);
            return m(src, tgt,
                     {.src_mask = tensor_of(t, "src_mask"),
                      .tgt_mask = d.tgt_mask,
                      .memory_mask = d.memory_mask,
                      .src_key_padding_mask = tensor_of(t, "src_key_padding_mask"),
                      .tgt_key_padding_mask = d.tgt_key_padding_mask,
                      .memory_key_padding_mask = d.memory_key_padding_mask});
          }};
}

Tensor draw_mask(const std::string& kind, std::int64_t batch_heads, std::int64_t rows, std::int64_t keys) {
  if (kind == "causal") return Transformer::generate_square_subsequent_mask(rows);
  if (kind == "bool") return gt(rand({rows, keys}), 0.6);
  return kind == "float" ? randn({rows, keys}) : randn({batch_heads, rows, keys});
}

Tensor padding_of(const Json& given, std::int64_t rows, bool batched) {
  const Json& lengths = given.at(1);
  const auto batch = static_cast<std::int64_t>(lengths.size());
  Tensor hidden = zeros({batch, rows}, Dtype::boolean);
  for (std::int64_t b = 0; b < batch; ++b) hidden[b].slice(0, lengths[static_cast<std::size_t>(b)], rows).fill_(true);
  if (!batched) hidden = hidden[0];
  if (given.at(0) == "bool") return hidden;
  return masked_fill(zeros(hidden.sizes()), hidden, -std::numeric_limits<double>::infinity());
}

struct Result {
  std::string initial;
  std::vector<std::string> names;
  Tensor output;
  std::vector<Tensor> gradients;
  double after = 0;
};

Result run(const Json& recorded, bool exact) {
  const Json& o = recorded.at("options");
  const Made made = make(recorded, exact);
  Result result;
  std::vector<std::uint8_t> bytes;
  for (const Tensor& parameter : made.module.parameters()) {
    const auto* first = static_cast<const std::uint8_t*>(parameter.data());
    bytes.insert(bytes.end(), first, first + parameter.numel() * 4);
  }
  result.initial = testing::sha256(bytes.data(), bytes.size());
  for (const auto& [name, value] : made.module.state_dict()) result.names.push_back(name);
  for (const Tensor& parameter : made.module.parameters())
    if (parameter.dim() == 1) init::normal_(parameter, 0.5, 0.2);

  const std::int64_t batch = recorded.at("batch"), d_model = o.at("d_model"), nhead = o.at("nhead");
  const std::int64_t src_rows = recorded.at("src_rows"), tgt_rows = recorded.at("tgt_rows");
  const bool batched = recorded.at("batched");
  const auto input = [&](std::int64_t rows) {
    return randn(!batched              ? Dims{rows, d_model}
                 : o.at("batch_first") ? Dims{batch, rows, d_model}
                                       : Dims{rows, batch, d_model});
  };
  Tensor src = input(src_rows), tgt = input(tgt_rows);
  std::map<std::string, Tensor> tensors;
  const std::map<std::string, std::string> sides = {
      {"src_mask", "ss"}, {"mask", "ss"}, {"tgt_mask", "tt"}, {"memory_mask", "ts"}};
  // torch's file lists masks in the order in which they were drawn, this object in that of the alphabet
  for (const char* name : {"src_mask", "mask", "tgt_mask", "memory_mask"})
    if (recorded.at("masks").contains(name))
      tensors[name] =
          draw_mask(recorded.at("masks").at(name), batch * nhead, sides.at(name)[0] == 's' ? src_rows : tgt_rows,
                    sides.at(name)[1] == 's' ? src_rows : tgt_rows);
  for (const auto& [name, given] : recorded.at("padding").items())
    tensors[name] = padding_of(given, name.rfind("tgt", 0) == 0 ? tgt_rows : src_rows, batched);

  made.module.train(recorded.at("mode") == "train");
  manual_seed(recorded.at("seed").get<std::uint64_t>() + 1);
  if (recorded.at("mode") == "no_grad") {
    const NoGrad guard;
    result.output = made.call(src, tgt, tensors, recorded.at("hints"));
    result.after = rand({1}).item();
    return result;
  }
  src.requires_grad_(), tgt.requires_grad_();
  const Tensor output = made.call(src, tgt, tensors, recorded.at("hints"));
  const std::string kind = recorded.at("kind");
  std::vector<Tensor> inputs = kind.rfind("encoder", 0) == 0 ? std::vector{src}
                               : kind == "transformer"       ? std::vector{src, tgt}
                                                             : std::vector{tgt, src};
  for (const Tensor& parameter : made.module.parameters()) inputs.push_back(parameter);
  const Tensor factors = linspace(-1, 1, output.numel()).reshape(output.sizes());
  result.gradients = grad({sum(output * output * factors)}, inputs);
  result.output = output.detach();
  result.after = rand({1}).item();
  return result;
}

Tensor recorded_tensor(const Json& values, const Tensor& like) {
  return testing::golden_tensor(values, like.sizes(), Dtype::f32);
}

TEST(Transformer, RecordedConfigurations) {
  for (const Json& recorded : testing::golden("transformer/transformer.json").at("cases")) {
    SCOPED_TRACE("seed " + recorded.at("seed").dump());
    const Result ours = run(recorded, /*exact=*/false);
    EXPECT_EQ(ours.initial, recorded.at("initial").get<std::string>());
    EXPECT_EQ(ours.names, recorded.at("names").get<std::vector<std::string>>());
    EXPECT_TRUE(testing::within_error_rule(ours.output, recorded_tensor(recorded.at("output"), ours.output),
                                           recorded.at("errors").at(0)));
    EXPECT_EQ(ours.after, static_cast<double>(recorded.at("after").at(0).get<float>()));  // as many numbers were drawn
    // The gradients of one call are sums along one chain that cancel, so its largest number is the scale of them all.
    double scale = 0;
    for (const Json& gradient : recorded.value("gradients", Json::array()))
      for (const Json& value : gradient) scale = std::max(scale, std::abs(value.get<double>()));
    for (std::size_t i = 0; i < ours.gradients.size(); ++i)
      EXPECT_TRUE(testing::within(ours.gradients[i], recorded_tensor(recorded.at("gradients").at(i), ours.gradients[i]),
                                  3 * recorded.at("errors").at(i + 1).get<double>() + 4 * 0x1p-23 * scale))
          << "gradient " << i;
  }
}

TEST(Transformer, ExactGivesTorchsAnswerByPath) {
  int with_nan = 0;
  for (const Json& recorded : testing::golden("transformer/transformer.json").at("cases")) {
    if (recorded.at("mode") != "no_grad") continue;
    SCOPED_TRACE("seed " + recorded.at("seed").dump());
    const Result ours = run(recorded, /*exact=*/true);
    // a fast path is as far from the truth as the other one, give or take
    EXPECT_TRUE(testing::within_error_rule(ours.output, recorded_tensor(recorded.at("fast"), ours.output),
                                           2 * recorded.at("errors").at(0).get<double>()));
    with_nan += recorded.at("fast").dump().find("nan") != std::string::npos;
  }
  EXPECT_GE(with_nan, 2);
}

TEST(Transformer, ClonesHaveTheValuesAndSwitchesAndParametersOfTheirOwn) {
  manual_seed(3);
  TransformerEncoderLayer layer(8, 2, {.dim_feedforward = 16, .dropout = 0});
  layer.linear1.weight.detach().fill_(0.25);
  Tensor frozen = layer.norm1.weight;
  frozen.requires_grad_(false);
  layer.eval();
  manual_seed(4);
  const TransformerEncoder encoder(layer, 3, RMSNorm(8));
  const Tensor next = rand({1});
  manual_seed(4);
  EXPECT_TRUE(testing::bits_equal(next, rand({1})));  // cloning draws nothing
  EXPECT_EQ(encoder.state_dict().size(), 3 * 12 + 1);
  EXPECT_EQ(encoder.state_dict().back().first, "norm.weight");
  for (const TransformerEncoderLayer& each : encoder.layers) {
    EXPECT_FALSE(each.is_training());
    EXPECT_FALSE(each.norm1.weight.requires_grad());
    EXPECT_TRUE(each.norm2.weight.requires_grad());
    EXPECT_TRUE(testing::bits_equal(each.linear1.weight.detach(), layer.linear1.weight.detach()));
  }
  encoder.layers[1].linear1.weight.detach().fill_(1);
  EXPECT_EQ(encoder.layers[0].linear1.weight.detach().select(0, 0)[0].item(), 0.25);
}

TEST(Transformer, CustomPartsAreSharedAndDrawnAgain) {
  manual_seed(5);
  const TransformerEncoder encoder(TransformerEncoderLayer(8, 2, {.dim_feedforward = 8}), 1);
  const Tensor before = encoder.layers[0].linear1.weight.detach().clone();
  const Transformer whole(8, 2, {.num_decoder_layers = 1, .layer = {.dim_feedforward = 8}, .custom_encoder = encoder});
  EXPECT_EQ(encoder.layers[0].linear1.weight.impl(), whole.encoder.layers[0].linear1.weight.impl());
  EXPECT_FALSE(testing::bits_equal(encoder.layers[0].linear1.weight.detach(), before));
}

TEST(Transformer, AFunctionAsActivation) {
  manual_seed(6);
  const Tensor x = randn({5, 8});
  const TransformerEncoderLayer named(8, 2, {.dim_feedforward = 8, .dropout = 0, .activation = Activation::gelu});
  const TransformerEncoderLayer given(
      8, 2, {.dim_feedforward = 8, .dropout = 0, .activation = [](const Tensor& t) { return gelu(t); }});
  given.load_state_dict(named.state_dict());
  EXPECT_TRUE(testing::bits_equal(named(x).detach(), given(x).detach()));
}

TEST(Transformer, ARowHasTheSameBitsInAnyBatchAndWithAnyPadding) {
  manual_seed(7);
  const Transformer model(
      8, 2, {.num_encoder_layers = 2, .num_decoder_layers = 2, .layer = {.dim_feedforward = 16, .batch_first = true}});
  model.eval();
  const NoGrad guard;
  const Tensor src = randn({3, 6, 8}), tgt = randn({3, 5, 8});
  const Tensor hidden = zeros({3, 6}, Dtype::boolean);
  hidden[1].slice(0, 4).fill_(true);
  src[1].slice(0, 4).fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor causal = Transformer::generate_square_subsequent_mask(5);
  const Tensor all =
      model(src, tgt, {.tgt_mask = causal, .src_key_padding_mask = hidden, .memory_key_padding_mask = hidden});
  const Tensor alone = model(src.slice(0, 1, 2).slice(1, 0, 4), tgt.slice(0, 1, 2), {.tgt_mask = causal});
  EXPECT_TRUE(testing::bits_equal(all[1].contiguous(), alone[0].contiguous()));
  const Tensor with_bool = model(src, tgt,
                                 {.tgt_mask = triu(ones({5, 5}), 1).to(Dtype::boolean),
                                  .src_key_padding_mask = hidden,
                                  .memory_key_padding_mask = hidden});
  EXPECT_TRUE(testing::bits_equal(all, with_bool));
}

TEST(Transformer, AMaskThatNeedsAGradientKeepsIt) {
  manual_seed(8);
  const TransformerEncoder encoder(TransformerEncoderLayer(8, 2, {.dim_feedforward = 8, .dropout = 0}), 1);
  Tensor mask = Transformer::generate_square_subsequent_mask(4);
  mask.requires_grad_();
  const Tensor slope = grad(sum(exp(encoder(randn({4, 8}), {.mask = mask}))), mask);
  EXPECT_NE(slope[2][0].item(), 0);
}

template <typename E, typename F>
void expect_error(const std::string& text, F&& call) {
  EXPECT_EQ(testing::error_of<E>(std::forward<F>(call)), text);
}

TEST(Transformer, Mistakes) {
  expect_error<ValueError>(
      "TransformerEncoderLayer: d_model 8 and nhead 3; both must be greater than 0, and nhead divide d_model",
      [] { TransformerEncoderLayer(8, 3); });
  expect_error<ValueError>("TransformerDecoderLayer: dim_feedforward is 0; it must be greater than 0",
                           [] { TransformerDecoderLayer(8, 2, {.dim_feedforward = 0}); });
  expect_error<ValueError>("Transformer: dropout is 1.5; it must be from 0 to 1",
                           [] { Transformer(8, 2, {.layer = {.dropout = 1.5}}); });
  expect_error<ValueError>("TransformerEncoderLayer: activation is an empty function", [] {
    TransformerEncoderLayer(8, 2, {.activation = std::function<Tensor(const Tensor&)>()});
  });
  const TransformerLayerOptions small{.dim_feedforward = 8, .batch_first = true};
  const TransformerEncoderLayer layer(8, 2, small);
  const TransformerDecoderLayer decoder(8, 2, small);
  const Tensor x = ones({3, 4, 8}), y = ones({3, 5, 8});
  expect_error<ValueError>("TransformerEncoder: num_layers is 0; it must be 1 or more",
                           [&] { TransformerEncoder(layer, 0); });
  expect_error<ValueError>("TransformerDecoder: num_layers is -1; it must be 1 or more",
                           [&] { TransformerDecoder(decoder, -1); });
  expect_error<ValueError>("TransformerEncoderLayer: src is undefined", [&] { layer(Tensor()); });
  expect_error<ShapeError>(
      "TransformerEncoderLayer: src has shape [3, 4, 7]; it must have rank 3, or 2 when unbatched, "
      "and the last dim must be d_model = 8",
      [&] { layer(ones({3, 4, 7})); });
  expect_error<DtypeError>("TransformerEncoderLayer: src is f64; it must be f32, as the parameters",
                           [&] { layer(ones({4, 8}, Dtype::f64)); });
  expect_error<ShapeError>("TransformerEncoderLayer: src_mask has shape [3, 3]; it must be [4, 4] or [6, 4, 4]",
                           [&] { layer(x, {.src_mask = zeros({3, 3})}); });
  expect_error<DtypeError>("TransformerEncoderLayer: src_mask is i64; it must be bool (True = blocked) or f32 (added)",
                           [&] { layer(x, {.src_mask = zeros({4, 4}, Dtype::i64)}); });
  expect_error<ShapeError>("TransformerDecoderLayer: memory_key_padding_mask has shape [3, 5]; it must be [3, 4]",
                           [&] { decoder(y, x, {.memory_key_padding_mask = zeros({3, 5}, Dtype::boolean)}); });
  expect_error<ShapeError>(
      "TransformerDecoderLayer: memory has shape [2, 4, 8]; its rank and batch must match tgt "
      "[3, 5, 8]",
      [&] { decoder(y, ones({2, 4, 8})); });
  expect_error<ValueError>("TransformerDecoderLayer: the causal hint is about memory_mask, which must be given with it",
                           [&] { decoder(y, x, {.memory_is_causal = true}); });
  expect_error<ValueError>("TransformerEncoderLayer: the causal hint is about src_mask, which must be given with it",
                           [&] { TransformerEncoder(layer, 1)(x, {.is_causal = true}); });
  expect_error<ShapeError>("Transformer: tgt has shape [2, 5, 8]; its rank and batch must match src [3, 4, 8]", [&] {
    Transformer(8, 2, {.num_encoder_layers = 1, .num_decoder_layers = 1, .layer = small})(x, ones({2, 5, 8}));
  });
}

}  // namespace
}  // namespace attn::nn
